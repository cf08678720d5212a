// Convolution of log-messages with relative accuracy in every entry: in tiles, and entry by entry where a tile cannot hold
// what is asked of it.
#include "base/tiled.hpp"
#include "sample/kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr double kFarthest = 1e14;  // nats between entries whose exponents tell them from zero

// The weights relative to the largest, whose logarithm is `top`; false if some are too small for that.
bool in_tiles(Worker& worker, const double* log_weight, int n, double* top, Tiled* out) {
  const double zero = -__builtin_inf();
  double least = 0;
  *top = zero;
  for (int i = 0; i < n; i++) *top = max(*top, log_weight[i]);
  for (int i = 0; i < n; i++) least = min(least, log_weight[i] > zero ? log_weight[i] - *top : 0.0);
  if (*top == zero || least < -kFarthest) return false;
  *out = tiled_of(worker, n, [](int) { return 1.0; });
  multiply_by(*out, [&](int j, vec& exponent) { return exp_split_or_zero(load_up_to(log_weight + j, n - j, zero) - *top, exponent); });
  return true;
}

// The logarithms of a tile's entries, but for `top`.
void logarithms(const Tiled& x, int tile, double* out) {
  for (int k = 0; k < kTile; k += kLanes) {
    const vec value = load(x.value + (ptrdiff_t)tile * kTile + k), e = x.exponent[tile] + exponent_of(value);
    const vec logs = e * kLn2High + (e * kLn2Low + log(mantissa_of(value)));
    store(out + k, value > 0.0 ? logs : splat(-__builtin_inf()));
  }
}

// log sum exp of one entry; -inf where no pair is possible.
double entry(const double* a, int na, const double* b, int nb, int k, double* terms) {
  const int low = max(0, k - nb + 1), n = min(na - 1, k) - low + 1;
  double top = -__builtin_inf();
  for (int i = 0; i < n; i++) {
    terms[i] = a[low + i] + b[k - low - i];
    top = max(top, terms[i]);
  }
  if (top == -__builtin_inf()) return top;
  vec sum = vec{};
  for (int i = 0; i < n; i += kLanes) sum += exp(load_up_to(terms + i, n - i, -__builtin_inf()) - top);
  let_signals_through_after(n);
  return top + real::log(sum_lanes(sum));
}

}  // namespace

void log_convolve(const double* a, ptrdiff_t na, const double* b, ptrdiff_t nb, ptrdiff_t first, ptrdiff_t last,
                  double* out, Worker& worker) {
  double top_a, top_b, *terms = scratch_part(worker, 7);
  Tiled x, y, c = {};
  const bool tiled = in_tiles(worker, a, (int)na, &top_a, &x) && in_tiles(worker, b, (int)nb, &top_b, &y);
  if (tiled) c = convolve_tiled(worker, x, y, (int)first, (int)last, scratch_part(worker, 0), scratch_part(worker, 4));
  const int origin = (int)last + 1 - c.length;  // of the tiles
  for (int k = (int)first, end; k <= (int)last; k = end) {
    const int tile = (k - origin) / kTile;
    end = min((int)last + 1, tiled ? origin + (tile + 1) * kTile : (int)last + 1);
    double found[kTile];
    const bool lost = !tiled || c.floor[tile] > kNothing || c.fresh[tile] > kNothing;
    if (!lost) logarithms(c, tile, found);
    for (int j = k; j < end; j++)
      out[j - first] = lost ? entry(a, (int)na, b, (int)nb, j, terms) : found[(j - origin) % kTile] + (top_a + top_b);
  }
}

}  // namespace tallytree::TT_LEVEL
