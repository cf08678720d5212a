// Many small models on one tree: one model per lane, direct convolutions, no branches on the numbers.
//
// Up and down messages cover all counts and are scaled by powers of two, so that their largest entry lies in [1, 2). Only
// positive terms are added; what underflow may have taken is followed as one absolute error per message and lane
// ("lost", as its log2). A model for which that matters, or whose answer may be a zero, is left to the passes that
// work on one model at a time: its bound is infinite.
#include <cmath>

#include "tree/lane_table.hpp"
#include "tree/lane_tree.hpp"
#include "tree/linear.hpp"
#include "tree/kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr double kUnderflow = -1060;   // log2 of an error that a product may make

vec log2_of(double x) { return splat(std::log2(x)); }

}  // namespace

// Doubles: messages of all nodes up and down, their losses, tables.
ptrdiff_t lane_models_scratch(const TreeView& f) {
  ptrdiff_t vectors = 0, longest = 2;
  for (int32_t v = 0; v < f.leaves + f.inner; v++) {
    vectors += 2 * (f.size[v] + 1 + kLanes);  // up and down
    longest = f.size[v] + 1 > longest ? f.size[v] + 1 : longest;
  }
  for (int32_t i = 0; i < f.inner; i++)
    if (f.table_offset[i] >= 0) vectors += f.size[f.leaves + i] + 1 + kLanes;
  const ptrdiff_t pointers = 3 * ((ptrdiff_t)f.leaves + f.inner) + 8;
  return kLanes * (vectors + 2 * (f.leaves + f.inner) + 2 * longest + 4 * kLanePad + 64) + pointers;
}

void lane_models(const TreeView& f, const LaneModels& in, double* scratch, double* log_mean, double* bound) {
  const ptrdiff_t nodes = (ptrdiff_t)f.leaves + f.inner;
  vec* next = (vec*)scratch;
  const auto take = [&](ptrdiff_t count) {
    vec* taken = next;
    next += count;
    return taken;
  };
  ptrdiff_t longest = 2;
  for (ptrdiff_t v = 0; v < nodes; v++) longest = f.size[v] + 1 > longest ? f.size[v] + 1 : longest;
  vec *lost_up = take(nodes), *lost_down = take(nodes), *padded = take(longest + 2 * kLanePad);
  vec* gradient = take(longest + 2 * kLanePad);
  vec *leaf_up = take(2 * f.leaves), *leaf_down = take(2 * f.leaves);
  vec** inner_up = (vec**)take((3 * nodes * (ptrdiff_t)sizeof(void*)) / (ptrdiff_t)sizeof(vec) + 1);
  vec **inner_down = inner_up + f.inner, **table = inner_down + f.inner;
  const auto up_of = [&](int32_t v) { return v < f.leaves ? leaf_up + 2 * v : inner_up[v - f.leaves]; };

  // Leaves: (q, p), q + p = 1.
  const auto put_leaf = [&](ptrdiff_t d, vec x) {
    const Leaf w = leaf_of(x, deviation(x));
    leaf_up[2 * d] = w.off;
    leaf_up[2 * d + 1] = w.on;
  };
  ptrdiff_t d = 0;
  for (; d + kLanes <= f.leaves; d += kLanes) {
    vec block[kLanes];
    for (int l = 0; l < kLanes; l++) block[l] = load(in.nu[l] + d);
    transpose(block);
    for (int l = 0; l < kLanes; l++) put_leaf(d + l, block[l]);
  }
  for (; d < f.leaves; d++) {
    vec x;
    for (int l = 0; l < kLanes; l++) x[l] = in.nu[l][d];
    put_leaf(d, x);
  }
  for (ptrdiff_t v = 0; v < f.leaves; v++) lost_up[v] = splat(kUnderflow);

  vec mean = vec{}, scale = vec{}, weakest = splat(1.0);
  double variance = 4.0 * f.leaves;
  vec worst_lost = splat(-2000.0);
  for (int32_t i = 0; i < f.inner; i++) {
    const int32_t v = f.leaves + i, a = f.left[i], b = f.right[i];
    const ptrdiff_t na = f.size[a] + 1, nb = f.size[b] + 1, n = na + nb - 1;
    vec* c = inner_up[i] = take(n + kLanes);
    inner_down[i] = nullptr;
    convolve_any(up_of(a), na, up_of(b), nb, c, padded);
    const double terms = (double)(na < nb ? na : nb);
    variance += terms + 16;
    vec lost = max(max(lost_up[a], lost_up[b]), splat(kUnderflow)) + log2_of((double)n) + 2.0;
    table[i] = nullptr;
    if (f.table_offset[i] >= 0) {
      table[i] = take(n + kLanes);
      vec faint = splat(-2000.0);
      const vec top = weigh_table(in.tables, in.shared_tables, f.table_offset[i], n, table[i], &faint);
      for (ptrdiff_t k = 0; k < n; k++) c[k] *= table[i][k];
      mean += top;
      lost = max(lost, faint) + 1.0;
    }
    const vec shift = rescale(c, n);
    scale += shift;
    lost_up[v] = lost - shift;
  }

  vec largest = vec{};
  for (int32_t i = f.inner; i-- > 0;) {
    const int32_t v = f.leaves + i;
    const ptrdiff_t n = f.size[v] + 1;
    vec* g = gradient;
    if (f.parent[v] < 0) {
      vec sum = vec{};
      for (ptrdiff_t k = 0; k < n; k++) sum += inner_up[i][k];
      weakest = min(weakest, sum);
      for (int l = 0; l < kLanes; l++) mean[l] += std::log((double)sum[l]);
      worst_lost = max(worst_lost, lost_up[v] + log2_of((double)n));
      lost_down[v] = splat(kUnderflow);
      for (ptrdiff_t k = 0; k < n; k++) g[k] = table[i] ? table[i][k] : splat(1.0);
    } else if (table[i]) {
      for (ptrdiff_t k = 0; k < n; k++) g[k] = inner_down[i][k] * table[i][k];
    } else {
      g = inner_down[i];
    }
    const int32_t child[2] = {f.left[i], f.right[i]};
    for (int side = 0; side < 2; side++) {
      const int32_t own = child[side], other = child[1 - side];
      const ptrdiff_t n_own = f.size[own] + 1, n_other = f.size[other] + 1;
      vec* out = own < f.leaves ? leaf_down + 2 * own : (inner_down[own - f.leaves] = take(n_own + kLanes));
      correlate_any(g, up_of(other), n_other, out, n_own);
      const vec shift = rescale(out, n_own);
      lost_down[own] = max(max(lost_down[v], lost_up[other]), splat(kUnderflow)) + log2_of((double)n) + 3.0 - shift;
    }
  }
  for (ptrdiff_t v = 0; v < f.leaves; v++) {
    vec r = vec{};
    if (f.parent[v] >= 0) {
      const vec off = leaf_down[2 * v], on = leaf_down[2 * v + 1];
      weakest = min(weakest, min(off, on));
      worst_lost = max(worst_lost, lost_down[v] - exponent_of(min(off, on)));
      r = log(on) - log(off);
      largest = max(largest, r < 0.0 ? -r : r);
    }
    leaf_up[v] = r;
  }
  for (d = 0; d + kLanes <= f.leaves; d += kLanes) {
    vec block[kLanes];
    for (int l = 0; l < kLanes; l++) block[l] = leaf_up[d + l];
    transpose(block);
    for (int l = 0; l < in.count; l++) store(in.messages[l] + d, block[l]);
  }
  for (; d < f.leaves; d++)
    for (int l = 0; l < in.count; l++) in.messages[l][d] = leaf_up[d][l];

  const double rounding = kUnitRoundoff * (8 * std::sqrt(variance) + 0.5 * f.leaves);
  for (int l = 0; l < in.count; l++) {
    log_mean[l] = mean[l] + scale[l] * kLn2;
    const double lost = std::exp2((double)worst_lost[l] + 2);
    const double total = 4 * rounding + 2 * kUnitRoundoff * largest[l] + lost;
    // A divisor of zero, or nearly so: impossible or lost, which this pass cannot tell.
    bound[l] = weakest[l] > 0x1p-900 && total < 1e-6 ? total : __builtin_inf();
  }
}

}  // namespace tallytree::TT_LEVEL
