// Sum-product in exponent-tiled vectors: relatively accurate entries, ranges far beyond a double.
#include "tree/linear.hpp"
#include "base/tiled.hpp"

namespace tallytree::TT_LEVEL {

// A message keeps its tiles in Message::value, with exponents, floors, fresh losses and least values behind them.
static Tiled view(const Message& m, bool lossy) {
  const ptrdiff_t tiles = (m.length + kTile - 1) / kTile;
  double* p = m.exponent;
  return {m.value, p, p + tiles, p + 2 * tiles, p + 3 * tiles, m.length, lossy, false};
}
static Message as_message(const Tiled& t, int lo, double scale) { return {t.value, t.exponent, lo, t.length, scale}; }

// A leaf's weights, or an inner node's message.
struct TiledUp {
  double storage[kTile + 4];
  Message message;
  Tiled tiled;

  TiledUp(const TreeItem& item, int32_t node) {
    const int32_t leaves = item.tree->leaves;
    if (node >= leaves) {
      message = item.up[node - leaves];
      tiled = view(message, item.notes[node - leaves].lost_up > -__builtin_inf());
      return;
    }
    const Interval s = item.support[node];
    double weights[2][kTile] = {};
    TileSide off = {{}, kZeroExponent, kZeroExponent}, on = off;
    double* p = storage + kTile;
    tiled = {storage, p, p + 1, p + 2, p + 3, s.hi - s.lo + 1, false, false};
    for (int y = s.lo; y <= s.hi; y++) {
      weights[y][y - s.lo] = item.leaf_value[y][node];
      (y ? on : off).exponent = item.leaf_exponent[y][node];
    }
    for (int r = 0; r < kTileRows; r++) {
      off.value[r] = load(weights[0] + r * kLanes);
      on.value[r] = load(weights[1] + r * kLanes);
    }
    combine_pieces(tiled, 0, off, on);
    message = as_message(tiled, s.lo, 0.0);
  }
  TiledUp(const TiledUp&) = delete;
};

static void multiply_table(const TreeItem& item, int32_t i, int lo, Tiled& x) {
  multiply_by(x, [&](int j, vec& e) { return exp_split_or_zero(log_table(item, i, lo + j, x.length - j), e); });
}

// Makes kCentre below zero the largest tile exponent, so that the largest entry is about 1; returns what was taken out.
static double take_out_scale(Tiled& x) {
  const double top = scale_of(x);
  if (top <= kNothing) return 0.0;
  take_out(x, top);
  return top;
}

static double largest_floor(const Tiled& x) {
  if (!x.lossy) return -__builtin_inf();
  double floor = kZeroExponent;
  for (int t = 0; t < x.tiles(); t++) floor = max(floor, x.floor[t]);
  return floor;
}

// <x, y> over the counts that both have.
static ScaledSum inner_product(const Tiled& x, int x_lo, const Tiled& y, int y_lo) {
  ScaledSum z;
  for (int k = max(x_lo, y_lo); k < min(x_lo + x.length, y_lo + y.length); k++) {
    const int i = k - x_lo, j = k - y_lo;
    z.add(x.value[i], y.value[j], x.exponent[i / kTile] + y.exponent[j / kTile]);
  }
  return z;
}

// Share of Z that fresh losses in x, weighted by its adjoint y, may amount to: sum of 2^fresh(k) y(k) / <x, y>. An
// entry far above the loss in its tile is not affected.
static double share_of_fresh_losses(const Tiled& x, int x_lo, const Tiled& y, int y_lo) {
  if (!x.has_fresh) return 0.0;
  ScaledSum weight;
  for (int k = max(x_lo, y_lo); k < min(x_lo + x.length, y_lo + y.length); k++) {
    const int i = k - x_lo, j = k - y_lo, t = i / kTile;
    if (x.fresh[t] <= kNothing) continue;
    if (x.value[i] > 0 && x.exponent[t] + exponent_of(x.value[i]) > x.fresh[t] - kSkip) continue;
    weight.add(1.0, y.value[j], y.exponent[j / kTile] + x.fresh[t]);
  }
  if (weight.value == 0) return 0.0;
  const double share = weight.log2() - inner_product(x, x_lo, y, y_lo).log2();
  return share > 0 ? __builtin_inf() : pow2(max(real::ceil(share), -1022.0));
}

void tiled_up(TreeItem& item, Worker& worker, int32_t i) {
  const TreeView& tree = *item.tree;
  const TiledUp a(item, tree.left[i]), b(item, tree.right[i]);
  const Interval s = item.support[tree.leaves + i];
  const int start = a.message.lo + b.message.lo, first = s.lo - start, last = s.hi - start;
  Tiled c = convolve_tiled(worker, a.tiled, b.tiled, first, last, scratch_part(worker, 0), scratch_part(worker, 4));
  const int lo = start + first / kTile * kTile;
  if (tree.table_offset[i] >= 0) multiply_table(item, i, lo, c);
  const double shift = take_out_scale(c);
  item.up[i] = as_message(c, lo, a.message.scale + b.message.scale + shift);

  NodeNotes& note = item.notes[i];
  note.rounding = min(a.message.length, b.message.length) + 16.0;
  note.lost_up = largest_floor(c);
  note.amplified = note.sum = 0;
  note.exact = !c.has_fresh;
  if (tree.parent[tree.leaves + i] < 0)
    for (int j = 0; j < c.length; j++) note.sum += c.value[j] * pow2(c.exponent[j / kTile]);
}

void tiled_start_down(TreeItem& item, Worker& worker, int32_t i) {
  const Interval reach = item.reach[item.tree->leaves + i];
  const Tiled ones = tiled_of(worker, reach.hi - reach.lo + 1, [](int) { return 1.0; });
  item.down[i] = as_message(ones, reach.lo, 0.0);
  item.notes[i].lost_down = -__builtin_inf();
}

// Two bounds on what losses did to the message: the floor itself, and the losses' share of Z over the posterior
// probability of each state (leaf_amplification). The smaller one holds.
static void finish_leaf(TreeItem& item, int32_t leaf, const TiledUp& own, const Tiled& d) {
  const Interval reach = item.reach[leaf];
  write_message(item, leaf, d.value);
  double bound = 0;
  if (d.lossy) {
    const double floor = d.floor[0] - d.exponent[0];
    const double error = floor < 1000 ? pow2(max(real::ceil(floor), -1022.0)) : __builtin_inf();
    for (int y = reach.lo; y <= reach.hi; y++) bound += error / d.value[y - reach.lo];
  }
  // A zero where the supports allow a value may be exact (tables with holes) or lost: the next rung decides.
  bool doubtful = false;
  for (int y = reach.lo; y <= reach.hi; y++) doubtful |= !(d.value[y - reach.lo] > 0);
  item.leaf_bound[leaf] = bound >= 0 && !doubtful ? bound : __builtin_inf();

  item.leaf_amplification[leaf] = doubtful ? __builtin_inf() : 0.0;
  if (!d.lossy || doubtful) return;
  double amplification = 0;
  const double z = inner_product(own.tiled, own.message.lo, d, reach.lo).log2();
  for (int y = reach.lo; y <= reach.hi; y++) {
    const double value = item.leaf_value[y][leaf] * d.value[y - reach.lo];
    const double log2_p = value > 0 ? real::log2(value) + item.leaf_exponent[y][leaf] + d.exponent[0] - z : -2000.0;
    amplification += log2_p < -1020 ? __builtin_inf() : real::exp2(-log2_p);
  }
  item.leaf_amplification[leaf] = amplification;
}

// down(k) = sum_j g(k+j) up_sibling(j).
static void down_to_child(TreeItem& item, Worker& worker, NodeNotes& above, int32_t child, const TiledUp& own,
                          const TiledUp& sibling, const Tiled& g, const Tiled* G, int g_lo) {
  const int32_t leaves = item.tree->leaves;
  const Interval reach = item.reach[child];
  const int n = reach.hi - reach.lo + 1, offset = reach.lo + sibling.message.lo - g_lo;
  const int needed = n + sibling.message.length - 1;
  Tiled out;
  if (g.length <= kTile && offset == 0 && needed <= kTile) {
    out = correlate_small(worker, g, sibling.tiled, n);
  } else {
    const Tiled moved = offset == 0 && G ? *G : shifted(worker, g, offset, needed);
    out = correlate_tiled(worker, moved, sibling.tiled, n, scratch_part(worker, 0), scratch_part(worker, 4));
  }
  const double share = share_of_fresh_losses(out, reach.lo, own.tiled, own.message.lo);
  if (child < leaves) {
    // What one tile could not hold of the leaf's own two weights counts as well.
    above.amplified += share + share_of_fresh_losses(own.tiled, own.message.lo, out, reach.lo);
    return finish_leaf(item, child, own, out);
  }
  take_out_scale(out);
  item.notes[child - leaves].amplified = share;
  item.down[child - leaves] = as_message(out, reach.lo, 0.0);
  item.notes[child - leaves].lost_down = largest_floor(out);
}

void tiled_down(TreeItem& item, Worker& worker, int32_t i) {
  const TreeView& tree = *item.tree;
  const bool table = tree.table_offset[i] >= 0;
  const TiledUp a(item, tree.left[i]), b(item, tree.right[i]);
  const Message d = item.down[i];
  write_beliefs(item, i, kTile);
  NodeNotes& note = item.notes[i];
  Tiled g = view(d, note.lost_down > -__builtin_inf());
  if (!note.exact) {
    Tiled u = view(item.up[i], true);
    u.has_fresh = true;
    note.amplified += share_of_fresh_losses(u, item.up[i].lo, g, d.lo);
  }
  if (table) multiply_table(item, i, d.lo, g);
  Tiled G;
  if (g.length > kTile) G = shifted(worker, g, 0, g.length);
  const Tiled* shared = g.length > kTile ? &G : nullptr;
  down_to_child(item, worker, note, tree.left[i], a, b, g, shared, d.lo);
  down_to_child(item, worker, note, tree.right[i], b, a, g, shared, d.lo);
}

}  // namespace tallytree::TT_LEVEL
