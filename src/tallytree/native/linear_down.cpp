// Downward linear pass: down_l(i) = sum_j (f_p down_p)(i+j) up_r(j), beliefs and leaf messages.
#include "linear.hpp"
#include "tree_kernels.hpp"

namespace tallytree::TT_LEVEL {

void linear_start_down(TreeItem& item, Worker& worker, int32_t i) {
  const Interval reach = item.reach[item.forest->leaves + i];
  const int n = reach.hi - reach.lo + 1;
  double* ones = arena_take(worker.arena, (size_t)(n + kLanes));
  fill(ones, n, 1.0);
  fill(ones + n, kLanes, 0.0);
  item.down[i] = {ones, nullptr, reach.lo, n, 0.0};
  item.notes[i].lost_down = -__builtin_inf();
}

// Posterior log-distribution of the count, log(up) + log(down) - log <up, down>.
static void write_beliefs(TreeItem& item, int32_t i, double* product) {
  const Message u = item.up[i], d = item.down[i];
  double* out = item.log_beliefs + item.forest->table_offset[i];
  fill(out, item.forest->size[item.forest->leaves + i] + 1, -__builtin_inf());
  const int lo = max(u.lo, d.lo), hi = min(u.lo + u.length, d.lo + d.length);
  double largest = -__builtin_inf();
  for (int k = lo; k < hi; k += kLanes) {
    const int valid = min(kLanes, hi - k);
    const vec x = log(load_part(u.value + k - u.lo, valid, 0.0)) + log(load_part(d.value + k - d.lo, valid, 0.0));
    store(product + k - lo, x);
    largest = max(largest, max_lanes(x));
  }
  if (largest == -__builtin_inf()) return;
  double sum = 0;
  for (int k = lo; k < hi; k++) sum += std::exp(product[k - lo] - largest);
  const double log_sum = largest + std::log(sum);
  for (int k = lo; k < hi; k++) out[k] = product[k - lo] - log_sum;
}

// log(d(1) / d(0)) and what underflow may have done to it.
static void finish_leaf(TreeItem& item, int32_t leaf, const double* d, double lost) {
  const Interval reach = item.reach[leaf];
  const double off = reach.lo == 0 ? d[0] : 0.0, on = reach.hi == 1 ? d[1 - reach.lo] : 0.0;
  if (off > 0 && on > 0) {
    item.messages[leaf] = std::log(on) - std::log(off) + item.tilt;
  } else {
    item.messages[leaf] = on > 0 ? __builtin_inf() : off > 0 ? -__builtin_inf() : 0.0;
  }
  double bound = 0;
  if (lost > -__builtin_inf()) {
    // A state outside the reach is impossible for certain; one inside that vanished may have been lost.
    const double error = lost > 0 ? __builtin_inf() : pow2(std::ceil(lost));
    if (reach.lo == 0) bound += error / off;
    if (reach.hi == 1) bound += error / on;
  }
  item.leaf_bound[leaf] = bound;
}

static void down_to_child(TreeItem& item, Worker& worker, int32_t child, const Message& sibling, double sibling_sum,
                          double sibling_least, double sibling_lost, const double* g, int g_lo, double g_sum,
                          double g_least, double g_lost) {
  const int32_t leaves = item.forest->leaves;
  const Interval reach = item.reach[child];
  const int n = reach.hi - reach.lo + 1;
  double lost = log2_sum_above(g_lost + std::log2(sibling_sum), sibling_lost + std::log2(g_sum));
  if (g_least * sibling_least < pow2(kTiny)) lost = log2_sum_above(lost, -1070.0 + std::log2((double)sibling.length));
  const bool leaf = child < leaves;
  double pair[kTileOutputs];
  double* out = leaf ? pair : arena_take(worker.arena, (size_t)(n + kTileOutputs));
  correlate_direct(g + reach.lo + sibling.lo - g_lo, sibling.value, sibling.length, out, n);
  if (leaf) return finish_leaf(item, child, out, lost);

  fill(out + n, kLanes, 0.0);
  vec top = {};
  for (int j = 0; j < n; j += kLanes) top = max(top, load(out + j));
  const double largest = max_lanes(top);
  if (largest > 0) {
    const double shift = exponent_of(largest), factor = pow2(-shift), tiny = pow2(kTiny);
    ivec dropped = {};
    for (int j = 0; j < n; j += kLanes) {
      const vec x = load(out + j) * factor;
      dropped |= (x < tiny) & (x > 0.0);
      store(out + j, x < tiny ? vec{} : x);
    }
    lost -= shift;
    for (int j = 0; j < kLanes; j++)
      if (dropped[j]) lost = log2_sum_above(lost, kTiny);
  }
  item.down[child - leaves] = {out, nullptr, reach.lo, n, 0.0};
  item.notes[child - leaves].lost_down = lost;
}

static void down_node(TreeItem& item, Worker& worker, int32_t i) {
  const ForestView& forest = *item.forest;
  const NodeNotes& note = item.notes[i];
  const Message d = item.down[i];
  double* product = scratch_part(worker, 0);
  if (item.log_beliefs && forest.table_offset[i] >= 0) write_beliefs(item, i, product);
  if (!item.messages && !item.log_beliefs) return;

  double pair_a[kLanes], pair_b[kLanes], sum_a, sum_b, least_a, least_b, lost_a, lost_b;
  const int32_t l = forest.left[i], r = forest.right[i];
  const Message a = up_message(item, l, pair_a, sum_a, least_a, lost_a);
  const Message b = up_message(item, r, pair_b, sum_b, least_b, lost_b);

  // g = f . down, with zeros at every count that a shift by a child's entry can touch.
  const int lo = min(d.lo, min(item.reach[l].lo + b.lo, item.reach[r].lo + a.lo));
  const int end = max(d.lo + d.length, max(item.reach[l].hi + b.lo + b.length, item.reach[r].hi + a.lo + a.length));
  double* g = scratch_part(worker, 1);
  double* at_d = g + (d.lo - lo);
  double lost = note.lost_down;
  fill(g, d.lo - lo, 0.0);
  std::memcpy(at_d, d.value, sizeof(double) * (size_t)d.length);
  if (forest.table_offset[i] >= 0) {
    bool dropped;
    double least_f;
    scaled_table(item, i, d.lo, d.length, note.table_exponent, product, dropped, least_f);
    for (int j = 0; j < d.length; j++) at_d[j] *= product[j];
    lost += 1;
    if (dropped) lost = log2_sum_above(lost, kTiny + 1);
  }
  fill(at_d + d.length, end - d.lo - d.length + kPad, 0.0);
  vec sum = {}, least = splat(2.0);
  const double tiny = pow2(kTiny);
  bool underflow = false;
  for (int j = 0; j < d.length; j += kLanes) {
    vec x = load(at_d + j);
    sum += x;
    least = x > 0.0 ? min(least, x) : least;
  }
  const double g_least = min_lanes(least);
  underflow = g_least < tiny;
  if (underflow) lost = log2_sum_above(lost, kTiny);
  const double g_sum = sum_lanes(sum);
  down_to_child(item, worker, l, b, sum_b, least_b, lost_b, g, lo, g_sum, g_least, lost);
  down_to_child(item, worker, r, a, sum_a, least_a, lost_a, g, lo, g_sum, g_least, lost);
}

void linear_down(TreeItem& item, Worker& worker, const int32_t* nodes, ptrdiff_t count) {
  for (ptrdiff_t j = 0; j < count; j++) down_node(item, worker, nodes[j]);
}

}  // namespace tallytree::TT_LEVEL
