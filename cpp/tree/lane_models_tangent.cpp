// Many small models on one tree with derivatives: one model per lane, value and tangent through every merge.
//
// Messages cover all counts; values are scaled so that their largest entry lies in [1, 2), and a multiple of the value
// is taken off the tangent wherever that keeps it small, which changes no expectation. At every node the belief is
// up . down / <up, down>. What underflow may have taken is followed as one absolute error per message and lane ("lost",
// as its log2): a table may lift it again. It is harmless as long as every <up, down> is far above it, and otherwise the
// bound of the model is infinite.
#include "base/real.hpp"
#include "base/lane_entries.hpp"
#include "tree/lane_table.hpp"
#include "base/lane_tree.hpp"
#include "tree/tangent_kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr double kSafe = 0x1p-700;
constexpr double kUnderflow = -1060;  // log2 of an error that a product may make
constexpr double kHarmless = -200;    // log2 of an error as a share of <up, down>

struct State {
  const TreeView& f;
  const LaneTangents& in;
  Dual *up, *down;  // of all nodes; leaves have two entries
  vec** table;      // of inner nodes, null without one
  vec* direction;   // of the leaves
  vec *lost_up, *lost_down;  // of all nodes
  Dual padded, gradient;
  vec weakest, worst_lost;
  ptrdiff_t size;   // doubles of memory used

  ptrdiff_t counts(int32_t node) const { return f.size[node] + 1; }
};

// Places everything in `scratch`; with null it only measures.
State lay_out(const TreeView& f, const LaneTangents& in, double* scratch, Dual* up, Dual* down, vec** table) {
  LaneRoom room = {(vec*)scratch};
  State s = {f, in, up, down, table, nullptr, nullptr, nullptr, {}, {}, splat(1.0), splat(kUnderflow), 0};
  ptrdiff_t longest = 2;
  for (int32_t v = 0; v < f.leaves + f.inner; v++) {
    const Dual u = room.take_dual(s.counts(v) + kLanes), d = room.take_dual(s.counts(v) + kLanes);
    if (up) up[v] = u, down[v] = d;
    longest = s.counts(v) > longest ? s.counts(v) : longest;
  }
  for (int32_t i = 0; i < f.inner; i++) {
    vec* t = f.table_offset[i] >= 0 ? room.take(s.counts(f.leaves + i) + kLanes) : nullptr;
    if (table) table[i] = t;
  }
  s.direction = room.take(f.leaves);
  s.lost_up = room.take((ptrdiff_t)f.leaves + f.inner);
  s.lost_down = room.take((ptrdiff_t)f.leaves + f.inner);
  s.padded = room.take_dual(longest + 2 * kLanePad);
  s.gradient = room.take_dual(longest + 2 * kLanePad);
  s.size = room.doubles_from(scratch);
  return s;
}

// Takes the multiple of the value off the tangent that makes the tangent's sum vanish.
void centre(Dual x, ptrdiff_t n) {
  vec sum = vec{}, moved = vec{};
  for (ptrdiff_t k = 0; k < n; k++) sum += x.value[k], moved += x.change[k];
  const vec mean = sum > 0.0 ? moved / sum : vec{};
  for (ptrdiff_t k = 0; k < n; k++) x.change[k] -= mean * x.value[k];
}

vec scale(Dual x, ptrdiff_t n) {
  const vec shift = rescale(x.value, n), factor = pow2(-shift);
  for (ptrdiff_t k = 0; k < n; k++) x.change[k] *= factor;
  return shift;
}

// What a sum of n products of messages with these errors may have lost.
vec lost_in_merge(vec a, vec b, ptrdiff_t n) {
  return max(max(a, b), splat(kUnderflow)) + (real::log2((double)n) + 3.0);
}

void put_leaves(const State& s) {
  by_entry(s.in.nu, s.in.count, s.f.leaves, [&](ptrdiff_t d, vec x) {
    const Leaf w = leaf_of(x, deviation(x));
    s.up[d].value[0] = w.off;
    s.up[d].value[1] = w.on;
  });
  by_entry(s.in.v, s.in.count, s.f.leaves, [&](ptrdiff_t d, vec v) {
    const vec spread = s.up[d].value[0] * s.up[d].value[1], moved = spread > 0.0 ? spread * v : vec{};
    s.direction[d] = v;
    s.up[d].change[0] = -moved;
    s.up[d].change[1] = moved;
    s.lost_up[d] = splat(kUnderflow);
  });
}

// up = f . (up_l * up_r), and f (h c + c') for the tangent.
void merge_up(const State& s, int32_t i) {
  const int32_t v = s.f.leaves + i, a = s.f.left[i], b = s.f.right[i];
  const ptrdiff_t n = s.counts(v);
  const Dual c = s.up[v];
  convolve_any(s.up[a], s.counts(a), s.up[b], s.counts(b), c, s.padded);
  vec lost = lost_in_merge(s.lost_up[a], s.lost_up[b], n);
  if (s.table[i]) {
    vec faint = splat(kUnderflow);
    weigh_table(s.in.tables, s.in.shared_tables, s.f.table_offset[i], n, s.table[i], &faint);
    if (s.in.h[0]) {
      const double* h[8];
      for (int l = 0; l < 8; l++) h[l] = s.in.h[l] + s.f.table_offset[i];
      by_entry(h, s.in.count, n, [&](ptrdiff_t k, vec x) {
        c.change[k] += s.table[i][k] > 0.0 ? x * c.value[k] : vec{};
      });
    }
    for (ptrdiff_t k = 0; k < n; k++) {
      c.value[k] *= s.table[i][k];
      c.change[k] *= s.table[i][k];
    }
    lost = max(lost, faint) + 1.0;
  }
  s.lost_up[v] = lost - scale(c, n);
  centre(c, n);
}

// g = f . down with its derivative; the table itself at a root.
Dual gradient_of(const State& s, int32_t i) {
  const int32_t v = s.f.leaves + i;
  const ptrdiff_t n = s.counts(v);
  const Dual g = s.gradient, d = s.down[v];
  for (ptrdiff_t k = 0; k < n; k++) {
    const vec f = s.table[i] ? s.table[i][k] : splat(1.0);
    g.value[k] = d.value[k] * f;
    g.change[k] = d.change[k] * f;
  }
  if (s.table[i] && s.in.h[0]) {
    const double* h[8];
    for (int l = 0; l < 8; l++) h[l] = s.in.h[l] + s.f.table_offset[i];
    by_entry(h, s.in.count, n, [&](ptrdiff_t k, vec x) { g.change[k] += g.value[k] > 0.0 ? x * g.value[k] : vec{}; });
  }
  return g;
}

// Scales a downward message and centres the belief's derivative; notes <up, down>.
void settle_down(State& s, int32_t v, vec lost) {
  const ptrdiff_t n = s.counts(v);
  const Dual u = s.up[v], d = s.down[v];
  s.lost_down[v] = lost - scale(d, n);
  vec overlap = vec{}, moved = vec{};
  for (ptrdiff_t k = 0; k < n; k++) {
    overlap += u.value[k] * d.value[k];
    moved += u.value[k] * d.change[k] + u.change[k] * d.value[k];
  }
  const vec mean = overlap > 0.0 ? moved / overlap : vec{};
  for (ptrdiff_t k = 0; k < n; k++) d.change[k] -= mean * d.value[k];
  s.weakest = min(s.weakest, overlap);
  const vec error = lost_in_merge(s.lost_up[v], s.lost_down[v], n) - exponent_of(overlap);
  s.worst_lost = max(s.worst_lost, error);
}

// Entries of all models to memory from a place on, where they are asked for.
template <class Give>
void put_rows(const State& s, double* const* models, ptrdiff_t from, ptrdiff_t n, const Give& give) {
  if (!models[0]) return;
  double* rows[8] = {};
  for (int l = 0; l < s.in.count; l++) rows[l] = models[l] + from;
  to_rows(rows, s.in.count, n, give);
}

void put_beliefs(const State& s, int32_t i) {
  const int32_t v = s.f.leaves + i;
  const ptrdiff_t n = s.counts(v);
  const Dual u = s.up[v], d = s.down[v];
  vec overlap = vec{};
  for (ptrdiff_t k = 0; k < n; k++) overlap += u.value[k] * d.value[k];
  const vec inverse = 1.0 / overlap;
  put_rows(s, s.in.beliefs, s.f.table_offset[i], n, [&](ptrdiff_t k) { return u.value[k] * d.value[k] * inverse; });
  put_rows(s, s.in.belief_change, s.f.table_offset[i], n,
           [&](ptrdiff_t k) { return (u.value[k] * d.change[k] + u.change[k] * d.value[k]) * inverse; });
}

// Free leaves have no message from above.
vec leaf_change(const State& s, ptrdiff_t d) {
  const vec off_weight = s.up[d].value[0], on_weight = s.up[d].value[1];
  const bool free = s.f.parent[d] < 0;
  const vec one = splat(1.0);
  const vec d0 = free ? one : s.down[d].value[0], d1 = free ? one : s.down[d].value[1];
  const vec e0 = free ? vec{} : s.down[d].change[0], e1 = free ? vec{} : s.down[d].change[1];
  const vec inverse = 1.0 / (off_weight * d0 + on_weight * d1);
  const vec on = on_weight * (d1 * inverse), off = off_weight * (d0 * inverse), spread = on * off;
  const vec cross = (on_weight * (e1 * inverse)) * off - (off_weight * (e0 * inverse)) * on;
  return (spread > 0.0 ? spread * s.direction[d] : vec{}) + cross;
}

}  // namespace

ptrdiff_t lane_models_tangent_scratch(const TreeView& f) {
  const LaneTangents none{};
  const ptrdiff_t doubles = lay_out(f, none, nullptr, nullptr, nullptr, nullptr).size;
  const ptrdiff_t nodes = (ptrdiff_t)f.leaves + f.inner;
  return doubles + (ptrdiff_t)((2 * nodes * sizeof(Dual) + f.inner * sizeof(vec*)) / sizeof(double)) + 16;
}

void lane_models_tangent(const TreeView& f, const LaneTangents& in, double* scratch, double* bound) {
  const ptrdiff_t nodes = (ptrdiff_t)f.leaves + f.inner;
  const ptrdiff_t used = lay_out(f, in, nullptr, nullptr, nullptr, nullptr).size;
  Dual *up = (Dual*)(scratch + used), *down = up + nodes;
  State s = lay_out(f, in, scratch, up, down, (vec**)(down + nodes));
  put_leaves(s);
  for (int32_t i = 0; i < f.inner; i++) merge_up(s, i);
  for (int32_t i = f.inner; i-- > 0;) {
    const int32_t v = f.leaves + i;
    if (f.parent[v] < 0) {
      for (ptrdiff_t k = 0; k < s.counts(v); k++) down[v].value[k] = splat(1.0), down[v].change[k] = vec{};
      settle_down(s, v, splat(kUnderflow));
    }
    const Dual g = gradient_of(s, i);
    const int32_t child[2] = {f.left[i], f.right[i]};
    for (int side = 0; side < 2; side++) {
      const int32_t own = child[side], other = child[1 - side];
      correlate_any(g, up[other], s.counts(other), down[own], s.counts(own));
      settle_down(s, own, lost_in_merge(s.lost_down[v], s.lost_up[other], s.counts(v)));
    }
    if (s.table[i]) put_beliefs(s, i);
  }
  if (in.change[0]) to_rows(in.change, in.count, f.leaves, [&](ptrdiff_t d) { return leaf_change(s, d); });
  for (int l = 0; l < in.count; l++)
    bound[l] = s.weakest[l] > kSafe && s.worst_lost[l] < kHarmless ? 0.0 : __builtin_inf();
}

}  // namespace tallytree::TT_LEVEL
