// Many small models on one tree: one model per lane, direct convolutions, no branches on the numbers.
//
// Up and down messages cover all counts and are scaled by powers of two, so that their largest entry lies in [1, 2). Only
// positive terms are added; what underflow may have taken is followed as one absolute error per message and lane
// ("lost", as its log2). A model for which that matters, or whose answer may be a zero, is left to the passes that
// work on one model at a time: its bound is infinite.
#include "tree/lane_forest.hpp"
#include "tree/kernels.hpp"

namespace tallytree::TT_LEVEL {

// Doubles: the way up; messages down and their losses take no more.
ptrdiff_t lane_models_scratch(const TreeView& f) { return 2 * lane_forest_doubles(f); }

void lane_models(const TreeView& f, const LaneModels& in, double* scratch, double* log_mean, double* bound) {
  LaneRoom room = {(vec*)scratch};
  LaneForest up = open_lanes(f, in, &room);
  for (int32_t i = 0; i < f.inner; i++) merge_lanes(&up, in, &room, i, true);

  vec *lost_down = room.take((ptrdiff_t)f.leaves + f.inner), *gradient = room.take(longest_message(f) + 2 * kLanePad);
  vec *leaf_down = room.take(2 * (ptrdiff_t)f.leaves), **inner_down = room.take_other<vec*>(f.inner);
  vec mean = up.log_tables, weakest = splat(1.0), largest = vec{}, worst_lost = splat(-2000.0);
  for (int32_t i = f.inner; i-- > 0;) {
    const int32_t v = f.leaves + i;
    const ptrdiff_t n = f.size[v] + 1;
    vec* g = gradient;
    if (f.parent[v] < 0) {
      vec sum = vec{};
      for (ptrdiff_t k = 0; k < n; k++) sum += up.inner_up[i][k];
      weakest = min(weakest, sum);
      for (int l = 0; l < kLanes; l++) mean[l] += real::log((double)sum[l]);
      worst_lost = max(worst_lost, up.lost_up[v] + log2_of((double)n));
      lost_down[v] = splat(kUnderflow);
      for (ptrdiff_t k = 0; k < n; k++) g[k] = up.table[i] ? up.table[i][k] : splat(1.0);
    } else if (up.table[i]) {
      for (ptrdiff_t k = 0; k < n; k++) g[k] = inner_down[i][k] * up.table[i][k];
    } else {
      g = inner_down[i];
    }
    if (in.beliefs[0] && up.table[i]) {
      vec *belief = up.padded, sum = vec{};
      for (ptrdiff_t k = 0; k < n; k++)
        sum += belief[k] = f.parent[v] < 0 ? up.inner_up[i][k] : up.inner_up[i][k] * inner_down[i][k];
      weakest = min(weakest, sum);
      worst_lost = max(worst_lost, max(up.lost_up[v], lost_down[v]) + log2_of((double)n) + 2.0 - exponent_of(sum));
      double* rows[8];
      for (int l = 0; l < in.count; l++) rows[l] = in.beliefs[l] + f.table_offset[i];
      to_rows(rows, in.count, n, [&](ptrdiff_t k) { return belief[k] / sum; });
    }
    const int32_t child[2] = {f.left[i], f.right[i]};
    for (int side = 0; side < 2; side++) {
      const int32_t own = child[side], other = child[1 - side];
      const ptrdiff_t n_own = f.size[own] + 1, n_other = f.size[other] + 1;
      vec* out = own < f.leaves ? leaf_down + 2 * own : (inner_down[own - f.leaves] = room.take(n_own + kLanes));
      correlate_any(g, up.up_of(other), n_other, out, n_own);
      const vec shift = rescale(out, n_own);
      lost_down[own] = max(max(lost_down[v], up.lost_up[other]), splat(kUnderflow)) + log2_of((double)n) + 3.0 - shift;
    }
  }
  for (ptrdiff_t v = 0; v < f.leaves && in.messages[0]; v++) {
    vec r = vec{};
    if (f.parent[v] >= 0) {
      const vec off = leaf_down[2 * v], on = leaf_down[2 * v + 1];
      weakest = min(weakest, min(off, on));
      worst_lost = max(worst_lost, lost_down[v] - exponent_of(min(off, on)));
      r = log(on) - log(off);
      largest = max(largest, r < 0.0 ? -r : r);
    }
    up.leaf_up[v] = r;
  }
  if (in.messages[0]) to_rows(in.messages, in.count, f.leaves, [&](ptrdiff_t d) { return up.leaf_up[d]; });

  const double rounding = kUnitRoundoff * (8 * real::sqrt(up.variance) + 0.5 * f.leaves);
  for (int l = 0; l < in.count; l++) {
    log_mean[l] = mean[l] + up.scale[l] * kLn2;
    const double lost = real::exp2((double)worst_lost[l] + 2);
    const double total = 4 * rounding + 2 * kUnitRoundoff * largest[l] + lost;
    // A divisor of zero, or nearly so: impossible or lost, which this pass cannot tell.
    bound[l] = weakest[l] > 0x1p-900 && total < 1e-6 ? total : __builtin_inf();
  }
}

}  // namespace tallytree::TT_LEVEL
