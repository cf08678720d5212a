// Direct tree with derivatives for small flat models: one model per lane, value and tangent through every merge.
//
// Leaves are (q, p), q + p = 1, with derivatives (-p q v, p q v); the table is scaled to maximum 1. With the downward
// messages d(0), d(1) of a leaf and their derivatives, Z = q d(0) + p d(1) and
//   d P(y = 1) = p q (v d(0) d(1) + d'(1) d(0) - d'(0) d(1)) / Z^2.
// Zeros are counted where these are fewer, as in direct.cpp. Only Z is divided by: underflow makes absolute errors,
// harmless as long as Z is far above them.
#include "base/real.hpp"
#include "flat/direct.hpp"
#include "flat/tangent_kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

struct Layout {
  ptrdiff_t groups;
  Leaf *leaf, *leaf_change, *weight;
  vec* direction;
  Dual tree, root, padded, buffer;
  ptrdiff_t doubles;
};

Layout layout(ptrdiff_t n, double* scratch) {
  Layout s;
  s.groups = (n + kGroup - 1) / kGroup;
  const ptrdiff_t leaves = kGroup * s.groups, counts = leaves + 1;
  LaneRoom room = {(vec*)scratch};
  s.leaf = (Leaf*)room.take(2 * leaves);
  s.leaf_change = (Leaf*)room.take(2 * leaves);
  s.weight = (Leaf*)room.take(2 * leaves);
  s.direction = room.take(leaves);
  s.tree = room.take_dual(tree_size(s.groups));
  s.root = room.take_dual(counts + kLanePad);
  s.padded = room.take_dual(counts + 2 * kLanePad);
  s.buffer = room.take_dual(2 * counts + 256);
  s.doubles = room.doubles_from(scratch);
  return s;
}

// f and f (h - the derivative of log Z) at the root; returns Z, `top` is the scale of f. Impossible counts have no
// derivative, whatever h says of them.
vec weigh_root(const DirectTangent& in, ptrdiff_t n, ptrdiff_t most, bool zeros, const Layout& s, vec top) {
  const vec base = top > -__builtin_inf() ? top : vec{};
  const ptrdiff_t last = n < most ? n : most;
  vec z = vec{}, z_change = vec{};
  for (ptrdiff_t k = 0; k <= last; k++) {
    const vec f = exp(s.root.value[k] - base);
    s.root.value[k] = f;
    s.root.change[k] = vec{};
    z += f * s.tree.value[k];
    z_change += f * s.tree.change[k];
  }
  if (in.h[0])
    by_entry(in.h, in.models, n + 1, [&](ptrdiff_t count, vec h) {
      const ptrdiff_t k = zeros ? n - count : count;
      if (k > last) return;
      s.root.change[k] = s.root.value[k] > 0.0 ? h * s.root.value[k] : vec{};
      z_change += s.root.change[k] * s.tree.value[k];
    });
  const vec mean = z > kTiny ? z_change / z : vec{};
  for (ptrdiff_t k = 0; k <= last; k++) s.root.change[k] -= mean * s.root.value[k];
  for (ptrdiff_t k = last + 1; k <= kGroup * s.groups + kLanePad; k++) s.root.value[k] = s.root.change[k] = vec{};
  return z;
}

}  // namespace

ptrdiff_t tangent_direct_scratch(ptrdiff_t n) { return layout(n, nullptr).doubles; }

void tangent_direct(const DirectTangent& in, ptrdiff_t n, double* scratch, DirectTotals* totals) {
  const Layout s = layout(n, scratch);
  const vec slope = in_lanes(in.tilt, in.models);
  const LaneTables tables = read_tables(in.log_f, in.models, n, slope, s.root.value);
  const bool zeros = counts_zeros(tables, n);
  const ptrdiff_t most = largest_count(zeros ? n - tables.first : tables.last, s.groups);
  if (zeros) reverse(s.root.value, n + 1);
  by_entry(in.nu, in.models, n, [&](ptrdiff_t i, vec x) {
    const vec t = x + slope;
    s.weight[i] = leaf_of(t, deviation(t));
    s.leaf[i] = sides(s.weight[i], zeros);
  });
  by_entry(in.v, in.models, n, [&](ptrdiff_t i, vec v) {
    const vec spread = s.leaf[i].off * s.leaf[i].on, moved = spread > 0.0 ? spread * v : vec{};
    s.direction[i] = v;
    s.leaf_change[i] = sides({-moved, moved}, zeros);
  });
  for (ptrdiff_t i = n; i < kGroup * s.groups; i++) {
    s.leaf[i] = {splat(1.0), vec{}};
    s.leaf_change[i] = {vec{}, vec{}};
  }
  const Dual leaves = {pairs_of(s.leaf), pairs_of(s.leaf_change)};
  lane_up(leaves, s.groups, most, s.tree, s.padded);
  const vec z = weigh_root(in, n, most, zeros, s, tables.top), inverse = 1.0 / z;
  const auto by_count = [&](double* const* out, const auto& entry) {
    to_rows(out, in.models, n + 1, [&](ptrdiff_t count) {
      const ptrdiff_t k = zeros ? n - count : count;
      return k <= most ? entry(k) * inverse : vec{};
    });
  };
  if (in.counts[0]) by_count(in.counts, [&](ptrdiff_t k) { return s.root.value[k] * s.tree.value[k]; });
  if (in.count_change[0])
    by_count(in.count_change, [&](ptrdiff_t k) {
      return s.root.change[k] * s.tree.value[k] + s.root.value[k] * s.tree.change[k];
    });
  if (in.change[0]) {
    lane_down(leaves, s.groups, most, s.tree, s.root, s.buffer);
    to_rows(in.change, in.models, n, [&](ptrdiff_t i) {
      const Leaf w = s.weight[i], d = sides(s.leaf[i], zeros), d1 = sides(s.leaf_change[i], zeros);
      const vec on = w.on * (d.on * inverse), off = w.off * (d.off * inverse);
      const vec cross = (w.on * (d1.on * inverse)) * off - (w.off * (d1.off * inverse)) * on;
      const vec spread = on * off;
      return (spread > 0.0 ? spread * s.direction[i] : vec{}) + cross;
    });
  }
  for (int l = 0; l < in.models; l++)
    totals[l] = {(z[l] > kTiny ? real::log(z[l]) : -__builtin_inf()) + tables.top[l], z[l], 0, 0};
}

}  // namespace tallytree::TT_LEVEL
