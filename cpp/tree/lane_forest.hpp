// The way up a tree for up to one register of models: one model per lane, direct convolutions, all counts.
//
// Messages are scaled by powers of two, so that their largest entry lies in [1, 2). Only positive terms are added; what
// underflow may have taken is followed as one absolute error per message and lane ("lost", as its log2).
#pragma once
#include "base/real.hpp"
#include "base/lane_entries.hpp"
#include "tree/lane_table.hpp"
#include "base/lane_tree.hpp"
#include "tree/types.hpp"

namespace tallytree::TT_LEVEL {

constexpr double kUnderflow = -1060;  // log2 of an error that a product may make

static inline vec log2_of(double x) { return splat(real::log2(x)); }

struct LaneForest {
  const TreeView& f;
  vec* leaf_up;           // (off, on) of every leaf
  vec **inner_up, **table;  // of every inner node, its own table included; null without one
  vec* lost_up;           // of every node
  vec* padded;            // room for the longest message and kLanePad on either side
  vec log_tables, scale;  // what tables and messages were divided by: as a logarithm, as a power of two
  double variance;        // of the rounding errors, in squared unit round-offs

  vec* up_of(int32_t v) const { return v < f.leaves ? leaf_up + 2 * v : inner_up[v - f.leaves]; }
};

static inline ptrdiff_t longest_message(const TreeView& f) {
  ptrdiff_t longest = 2;
  for (int32_t v = 0; v < f.leaves + f.inner; v++) longest = f.size[v] + 1 > longest ? f.size[v] + 1 : longest;
  return longest;
}

// Leaves: (q, p), q + p = 1.
static inline void put_leaves(const LaneForest& up, const LaneModels& in) {
  by_entry(in.nu, kLanes, up.f.leaves, [&](ptrdiff_t d, vec x) {
    const Leaf w = leaf_of(x, deviation(x));
    up.leaf_up[2 * d] = w.off;
    up.leaf_up[2 * d + 1] = w.on;
    up.lost_up[d] = splat(kUnderflow);
  });
}

// Merges node i. Without `weigh` its own table stays out, and the message is scaled as it is.
static inline void merge_lanes(LaneForest* up, const LaneModels& in, LaneRoom* room, int32_t i, bool weigh) {
  const TreeView& f = up->f;
  const int32_t a = f.left[i], b = f.right[i];
  const ptrdiff_t na = f.size[a] + 1, nb = f.size[b] + 1, n = na + nb - 1;
  vec* c = up->inner_up[i] = room->take(n + kLanes);
  if (n == 3)
    convolve_fixed<2, 2>(up->up_of(a), up->up_of(b), c);
  else
    convolve_any(up->up_of(a), na, up->up_of(b), nb, c, up->padded);
  up->variance += (double)(na < nb ? na : nb) + 16;
  vec lost = max(max(up->lost_up[a], up->lost_up[b]), splat(kUnderflow)) + log2_of((double)n) + 2.0;
  up->table[i] = nullptr;
  if (weigh && f.table_offset[i] >= 0) {
    vec* table = up->table[i] = room->take(n + kLanes);
    vec faint = splat(-2000.0);
    up->log_tables += weigh_table(in.tables, in.shared_tables, f.table_offset[i], n, table, &faint);
    for (ptrdiff_t k = 0; k < n; k++) c[k] *= table[k];
    lost = max(lost, faint) + 1.0;
  }
  const vec shift = rescale(c, n);
  up->scale += shift;
  up->lost_up[f.leaves + i] = lost - shift;
}

// Memory for the messages of the nodes below; the merges themselves follow.
static inline LaneForest open_lanes(const TreeView& f, const LaneModels& in, LaneRoom* room) {
  LaneForest up = {f, nullptr, nullptr, nullptr, nullptr, nullptr, vec{}, vec{}, 4.0 * f.leaves};
  up.lost_up = room->take((ptrdiff_t)f.leaves + f.inner);
  up.padded = room->take(longest_message(f) + 2 * kLanePad);
  up.leaf_up = room->take(2 * (ptrdiff_t)f.leaves);
  up.inner_up = room->take_other<vec*>(f.inner);
  up.table = room->take_other<vec*>(f.inner);
  put_leaves(up, in);
  return up;
}

// Doubles that all of this takes.
static inline ptrdiff_t lane_forest_doubles(const TreeView& f) {
  ptrdiff_t vectors = (ptrdiff_t)f.leaves + f.inner + longest_message(f) + 2 * kLanePad + 2 * (ptrdiff_t)f.leaves;
  for (int32_t i = 0; i < f.inner; i++)
    vectors += (f.table_offset[i] >= 0 ? 2 : 1) * (f.size[f.leaves + i] + 1 + kLanes);
  return kLanes * (vectors + 4) + 2 * f.inner;
}

}  // namespace tallytree::TT_LEVEL
