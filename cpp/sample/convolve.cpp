// Convolution of log-messages with relative accuracy in every entry: plain sums under a few slopes.
//
// Multiplying entry i by exp(-s i) on both sides multiplies entry k of the result by exp(-s k). Near a slope at which
// both peaks add up to k nothing underflows. Entries in holes that no slope reaches are summed one by one.
#include "base/convolve.hpp"
#include "sample/kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr double kReach = 340.0;     // nats below the peak that are kept: products of two such numbers stay normal
constexpr double kFloor = 1.1e-126;  // exp(-290): entries above it lose less than 2^-60 of themselves to the cut
const double kInf = __builtin_inf();

struct Scaled {
  ptrdiff_t first, length;  // the part within reach of the peak
  double top;               // log of the peak
};

// out[i] = exp(values[first + i] - slope (first + i) - top), 0 below reach.
Scaled scale(const double* values, ptrdiff_t n, double slope, double* out) {
  double top = -kInf;
  for (ptrdiff_t i = 0; i < n; i++) {
    const double v = values[i] - slope * (double)i;
    top = v > top ? v : top;
  }
  // Differences from the peak, not `top - kReach`: beside a large peak the reach would vanish. The peak itself stays.
  const auto negligible = [&](ptrdiff_t i) { return !(values[i] - slope * (double)i - top > -kReach); };
  ptrdiff_t first = 0, last = n - 1;
  while (first < last && negligible(first)) first++;
  while (last > first && negligible(last)) last--;
  const ptrdiff_t length = last - first + 1;
  for (ptrdiff_t i = 0; i < length; i += kLanes) {
    vec v = load_up_to(values + first + i, length - i, -kInf);
    vec place;
    for (int j = 0; j < kLanes; j++) place[j] = (double)(first + i + j);
    v = v - slope * place - top;
    const vec e = exp(v);
    store(out + i, v > -kReach ? e : vec{});  // out has room for a whole vector
  }
  return {first, length, top};
}

// c[k - from] = sum_i x[i] y[k - i] for k = from..to; y is surrounded by kTileOutputs zeros on both sides.
void direct_sums(const double* x, ptrdiff_t nx, const double* y, ptrdiff_t ny, ptrdiff_t from, ptrdiff_t to, double* c) {
  for (ptrdiff_t k = from; k <= to; k += kTileOutputs) {
    double all[kTileOutputs];
    accumulate_tile<kRows, -1>(x, (int)max(ptrdiff_t{0}, k - ny + 1), (int)min(nx, k + kTileOutputs), y + k, all);
    std::memcpy(c + (k - from), all, (size_t)min(ptrdiff_t{kTileOutputs}, to - k + 1) * sizeof(double));
    let_signals_through_after((int)nx);
  }
}

ptrdiff_t peak(const double* values, ptrdiff_t n, double slope) {
  ptrdiff_t best = 0;
  double top = -kInf;
  for (ptrdiff_t i = 0; i < n; i++) {
    const double v = values[i] - slope * (double)i;
    if (v > top) top = v, best = i;
  }
  return best;
}

// Slope at which the peaks add up to k, or jump over it.
double slope_through(const double* a, ptrdiff_t na, const double* b, ptrdiff_t nb, ptrdiff_t k) {
  double low = -1.0, high = 1.0;
  while (peak(a, na, low) + peak(b, nb, low) < k && low > -1e300) low *= 4.0;
  while (peak(a, na, high) + peak(b, nb, high) > k && high < 1e300) high *= 4.0;
  for (int step = 0; step < 100; step++) {
    const double middle = 0.5 * (low + high);
    const ptrdiff_t at = peak(a, na, middle) + peak(b, nb, middle);
    if (at == k || middle == low || middle == high) return middle;
    if (at < k) high = middle;
    else low = middle;
  }
  return 0.5 * (low + high);
}

// log sum exp of one entry; -inf where no pair is possible.
double entry(const double* a, ptrdiff_t na, const double* b, ptrdiff_t nb, ptrdiff_t k, double* terms) {
  const ptrdiff_t low = max(ptrdiff_t{0}, k - nb + 1), high = min(na - 1, k), n = high - low + 1;
  double top = -kInf;
  for (ptrdiff_t i = 0; i < n; i++) {
    terms[i] = a[low + i] + b[k - low - i];
    top = terms[i] > top ? terms[i] : top;
  }
  if (top == -kInf) return top;
  vec sum = vec{};
  for (ptrdiff_t i = 0; i < n; i += kLanes)
    sum += exp(load_up_to(terms + i, n - i, -kInf) - top);
  return top + real::log(sum_lanes(sum));
}

bool has_zero(const double* values, ptrdiff_t n) {
  for (ptrdiff_t i = 0; i < n; i++)
    if (values[i] == -kInf) return true;
  return false;
}

}  // namespace

void log_convolve(const double* a, ptrdiff_t na, const double* b, ptrdiff_t nb, ptrdiff_t first, ptrdiff_t last,
                  double* out, double* scratch) {
  if (na < nb) return log_convolve(b, nb, a, na, first, last, out, scratch);
  const ptrdiff_t count = last - first + 1;
  const double open = __builtin_nan("");  // marks entries that are still to be found
  double *x = scratch, *y = x + nb + kLanes, *c = y + na + 3 * kTileOutputs;
  double top_a = -kInf, top_b = -kInf;
  for (ptrdiff_t i = 0; i < na; i++) top_a = a[i] > top_a ? a[i] : top_a;
  for (ptrdiff_t i = 0; i < nb; i++) top_b = b[i] > top_b ? b[i] : top_b;
  const bool dead = top_a == -kInf || top_b == -kInf;
  for (ptrdiff_t k = 0; k < count; k++) out[k] = dead ? -kInf : open;
  if (dead) return;
  bool zeros = has_zero(a, na) || has_zero(b, nb);
  ptrdiff_t from = first, to = last, left = count;
  double slope = 0.0;
  while (left > 0) {
    let_signals_through_after((int)nb);
    for (int j = 0; j < kTileOutputs; j++) y[j] = 0.0;
    const Scaled sb = scale(b, nb, slope, x), sa = scale(a, na, slope, y + kTileOutputs);
    for (int j = 0; j < 2 * kTileOutputs; j++) y[kTileOutputs + sa.length + j] = 0.0;
    const ptrdiff_t shift = sa.first + sb.first;
    const ptrdiff_t begin = max(from, shift), end = min(to, shift + sa.length + sb.length - 2);
    ptrdiff_t covered = 0;
    if (begin <= end) {
      direct_sums(x, sb.length, y + kTileOutputs, sa.length, begin - shift, end - shift, c);
      for (ptrdiff_t k = begin; k <= end; k++) {
        if (out[k - first] == out[k - first] || !(c[k - begin] > kFloor)) continue;
        out[k - first] = real::log(c[k - begin]) + (sa.top + sb.top) + slope * (double)k;
        covered++;
      }
    }
    left -= covered;
    if (left && zeros) {  // tell impossible counts from those that the cut has lost
      for (int j = 0; j < kTileOutputs; j++) y[j] = y[kTileOutputs + na + j] = y[2 * kTileOutputs + na + j] = 0.0;
      for (ptrdiff_t i = 0; i < na; i++) y[kTileOutputs + i] = a[i] > -kInf;
      for (ptrdiff_t i = 0; i < nb; i++) x[i] = b[i] > -kInf;
      direct_sums(x, nb, y + kTileOutputs, na, first, last, c);
      for (ptrdiff_t k = 0; k < count; k++)
        if (out[k] != out[k] && c[k] < 0.5) out[k] = -kInf, left--;
      zeros = false;
    }
    if (!left) return;
    while (out[from - first] == out[from - first]) from++;
    while (out[to - first] == out[to - first]) to--;
    // Going on must be cheaper than summing what this slope has covered entry by entry.
    if ((double)covered * 8.0 * (double)nb < (double)sa.length * (double)sb.length) break;
    ptrdiff_t middle = from;
    for (ptrdiff_t k = from, seen = 0; k <= to; k++)
      if (out[k - first] != out[k - first] && ++seen == (left + 1) / 2) middle = k;
    slope = slope_through(a, na, b, nb, middle);
  }
  for (ptrdiff_t k = from; k <= to; k++) {
    if (out[k - first] == out[k - first]) continue;
    out[k - first] = entry(a, na, b, nb, k, c);
    let_signals_through_after((int)nb);
  }
}

}  // namespace tallytree::TT_LEVEL
