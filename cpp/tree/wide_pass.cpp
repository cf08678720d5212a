// Sum-product with one exponent per entry: right for every finite input.
#include "tree/linear.hpp"
#include "base/wide.hpp"

namespace tallytree::TT_LEVEL {

struct LeafPair {
  double value[kLanes + 2], exponent[kLanes + 2];
};

static Message wide_up_message(const TreeItem& item, int32_t node, LeafPair& pair) {
  if (node >= item.tree->leaves) return item.up[node - item.tree->leaves];
  const Interval s = item.support[node];
  for (int y = s.lo; y <= s.hi; y++) {
    pair.value[y - s.lo] = item.leaf_value[y][node];
    pair.exponent[y - s.lo] = item.leaf_exponent[y][node];
  }
  return {pair.value, pair.exponent, s.lo, s.hi - s.lo + 1, 0.0};
}

// Multiplies entries for the counts lo .. lo+n-1 by the table of node i.
static void multiply_table(const TreeItem& item, int32_t i, int lo, int n, double* value, double* exponent) {
  for (int j = 0; j < n; j += kLanes) {
    vec fe;
    const vec f = exp_split_or_zero(log_table(item, i, lo + j, n - j), fe);
    store_wide(load(value + j) * f, load(exponent + j) + fe, value + j, exponent + j);
  }
}

void wide_up(TreeItem& item, Worker& worker, int32_t i) {
  const TreeView& tree = *item.tree;
  LeafPair pair_a, pair_b;
  const Message a = wide_up_message(item, tree.left[i], pair_a);
  const Message b = wide_up_message(item, tree.right[i], pair_b);
  const Interval s = item.support[tree.leaves + i];
  const int lo = s.lo, n = s.hi - s.lo + 1, first = lo - a.lo - b.lo;
  double* value = arena_take(worker.arena, (size_t)(n + kTileOutputs));
  double* exponent = arena_take(worker.arena, (size_t)(n + kTileOutputs));
  convolve_wide({a.value, a.exponent, a.length}, {b.value, b.exponent, b.length}, first, first + n, value, exponent,
                scratch_part(worker, 0));
  if (tree.table_offset[i] >= 0) multiply_table(item, i, lo, n, value, exponent);
  const double shift = take_out_scale(value, exponent, n);
  item.up[i] = {value, exponent, lo, n, a.scale + b.scale + shift};

  double sum = 0;
  if (tree.parent[tree.leaves + i] < 0)
    for (int j = 0; j < n; j++) sum += value[j] * pow2(exponent[j]);
  item.notes[i].sum = sum;
  item.notes[i].amplified = 0;
  item.notes[i].rounding = min(a.length, b.length) + 16.0;
  item.notes[i].lost_up = -__builtin_inf();
}

void wide_start_down(TreeItem& item, Worker& worker, int32_t i) {
  const Interval reach = item.reach[item.tree->leaves + i];
  const int n = reach.hi - reach.lo + 1;
  double* ones = arena_take(worker.arena, (size_t)(n + kLanes));
  double* zeros = arena_take(worker.arena, (size_t)(n + kLanes));
  fill(ones, n + kLanes, 1.0);
  fill(zeros, n + kLanes, 0.0);
  item.down[i] = {ones, zeros, reach.lo, n, 0.0};
}

static void down_to_child(TreeItem& item, Worker& worker, int32_t child, const Message& sibling, const double* g,
                          const double* g_exponent, int g_lo) {
  const int32_t leaves = item.tree->leaves;
  const Interval reach = item.reach[child];
  const int n = reach.hi - reach.lo + 1;
  const bool leaf = child < leaves;
  double pair[kTileOutputs], pair_exponent[kTileOutputs];
  double* out = leaf ? pair : arena_take(worker.arena, (size_t)(n + kTileOutputs));
  double* out_exponent = leaf ? pair_exponent : arena_take(worker.arena, (size_t)(n + kTileOutputs));
  const ptrdiff_t start = reach.lo + sibling.lo - g_lo;
  correlate_wide(g + start, g_exponent + start, {sibling.value, sibling.exponent, sibling.length}, out, out_exponent, n,
                 scratch_part(worker, 2));
  if (leaf) {
    item.leaf_bound[child] = item.leaf_amplification[child] = 0;
    return write_message(item, child, out, n == 2 ? (out_exponent[1] - out_exponent[0]) * kLn2 : 0.0);
  }
  take_out_scale(out, out_exponent, n);
  item.down[child - leaves] = {out, out_exponent, reach.lo, n, 0.0};
}

void wide_down(TreeItem& item, Worker& worker, int32_t i) {
  const TreeView& tree = *item.tree;
  const Message d = item.down[i];
  const bool table = tree.table_offset[i] >= 0;
  write_beliefs(item, i);

  LeafPair pair_a, pair_b;
  const int32_t l = tree.left[i], r = tree.right[i];
  const Message a = wide_up_message(item, l, pair_a), b = wide_up_message(item, r, pair_b);

  // g = f . down, with zeros at every count that a shift by a child's entry can touch.
  const int lo = min(d.lo, min(item.reach[l].lo + b.lo, item.reach[r].lo + a.lo));
  const int end = max(d.lo + d.length, max(item.reach[l].hi + b.lo + b.length, item.reach[r].hi + a.lo + a.length));
  double *g = scratch_part(worker, 0), *g_exponent = scratch_part(worker, 1);
  double *at_d = g + (d.lo - lo), *at_d_exponent = g_exponent + (d.lo - lo);
  fill(g, d.lo - lo, 0.0);
  fill(g_exponent, d.lo - lo, kZeroExponent);
  std::memcpy(at_d, d.value, sizeof(double) * (size_t)d.length);
  std::memcpy(at_d_exponent, d.exponent, sizeof(double) * (size_t)d.length);
  if (table) multiply_table(item, i, d.lo, d.length, at_d, at_d_exponent);
  fill(at_d + d.length, end - d.lo - d.length + kPad, 0.0);
  fill(at_d_exponent + d.length, end - d.lo - d.length + kPad, kZeroExponent);
  down_to_child(item, worker, l, b, g, g_exponent, lo);
  down_to_child(item, worker, r, a, g, g_exponent, lo);
}

}  // namespace tallytree::TT_LEVEL
