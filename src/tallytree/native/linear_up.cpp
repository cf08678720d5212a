// Upward linear pass: up_p = f_p . (up_l * up_r), with its record of what underflow may have lost.
#include "linear.hpp"
#include "tree_kernels.hpp"

namespace tallytree::TT_LEVEL {

static void store_zero(TreeItem& item, Worker& worker, int32_t i, int lo, double lost) {
  item.up[i] = {arena_take(worker.arena, kLanes), nullptr, lo, 1, 0.0};
  fill(item.up[i].value, kLanes, 0.0);
  NodeNotes& note = item.notes[i];
  note.sum = note.norm2 = 0;
  note.smallest = 1;
  note.lost_up = lost;
}

// Scales the n values so that the largest lies in [1, 2), drops those below 2^kTiny and keeps the result.
static void normalise_and_store(TreeItem& item, Worker& worker, int32_t i, double* c, int lo, int n, double scale,
                                double lost) {
  fill(c + n, kLanes, 0.0);
  vec top = {};
  for (int j = 0; j < n; j += kLanes) top = max(top, load(c + j));
  const double largest = max_lanes(top);
  if (!(largest > 0)) return store_zero(item, worker, i, lo, lost);
  NodeNotes& note = item.notes[i];
  note.shift = exponent_of(largest);
  const double factor = pow2(-note.shift), tiny = pow2(kTiny);
  double* out = arena_take(worker.arena, (size_t)(n + kLanes));
  vec sum = {}, squares = {}, least = splat(2.0);
  ivec dropped = {};
  for (int j = 0; j < n; j += kLanes) {
    vec x = load(c + j) * factor;
    const auto small = x < tiny;
    dropped |= small & (x > 0.0);
    x = small ? vec{} : x;
    least = small ? least : min(least, x);
    sum += x;
    squares += x * x;
    store(out + j, x);
  }
  note.sum = sum_lanes(sum);
  note.norm2 = std::sqrt(sum_lanes(squares));
  note.smallest = min_lanes(least);
  note.lost_up = lost - note.shift;
  for (int j = 0; j < kLanes; j++)
    if (dropped[j]) note.lost_up = log2_sum_above(note.lost_up, kTiny);
  item.up[i] = {out, nullptr, lo, n, scale + note.shift};
}

static void up_node(TreeItem& item, Worker& worker, int32_t i) {
  const ForestView& forest = *item.forest;
  NodeNotes& note = item.notes[i];
  double pair_a[kLanes], pair_b[kLanes], sum_a, sum_b, least_a, least_b, lost_a, lost_b;
  const Message a = up_message(item, forest.left[i], pair_a, sum_a, least_a, lost_a);
  const Message b = up_message(item, forest.right[i], pair_b, sum_b, least_b, lost_b);
  const int terms = min(a.length, b.length);
  note.rounding = terms + 16.0;
  note.table_exponent = 0;
  const Interval s = item.support[forest.leaves + i];
  const int lo = max(a.lo + b.lo, s.lo), hi = min(a.lo + b.lo + a.length + b.length - 2, s.hi);
  double lost = log2_sum_above(lost_a + std::log2(sum_b), lost_b + std::log2(sum_a));
  if (hi < lo) return store_zero(item, worker, i, s.lo, __builtin_inf());

  double* c = scratch_part(worker, 0);
  convolve_direct(a.value, a.length, b.value, b.length, c, scratch_part(worker, 1));
  c += lo - a.lo - b.lo;
  const int n = hi - lo + 1;
  if (least_a * least_b < pow2(kTiny)) lost = log2_sum_above(lost, -1070.0 + std::log2((double)terms));

  if (forest.table_offset[i] >= 0) {
    const Interval reach = item.reach[forest.leaves + i];
    note.table_exponent = table_exponent(item, i, reach.lo, reach.hi - reach.lo + 1);
    double* f = scratch_part(worker, 1);
    bool dropped;
    double least_f;
    scaled_table(item, i, lo, n, note.table_exponent, f, dropped, least_f);
    for (int j = 0; j < n; j += kLanes) store(c + j, load(c + j) * load(f + j));
    lost += 1;
    if (dropped) lost = log2_sum_above(lost, kTiny + std::log2(min(sum_a, 1.0) * sum_b + 1.0));
    if (least_a * least_b * least_f < pow2(kTiny)) lost = log2_sum_above(lost, -1070.0);
  }
  normalise_and_store(item, worker, i, c, lo, n, a.scale + b.scale + note.table_exponent, lost);
}

void linear_up(TreeItem& item, Worker& worker, const int32_t* nodes, ptrdiff_t count) {
  for (ptrdiff_t j = 0; j < count; j++) up_node(item, worker, nodes[j]);
}

}  // namespace tallytree::TT_LEVEL
