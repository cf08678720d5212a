// The merges of lane_tree.hpp with their derivatives: (a b)' = a' b + a b'.
#pragma once
#include "tree/lane_tree.hpp"

namespace tallytree::TT_LEVEL {

template <int na, int nb>
static inline void convolve_fixed_tangent(const vec* a, const vec* a1, const vec* b, const vec* b1, vec* out) {
  vec acc[na + nb - 1];
  for (int k = 0; k < na + nb - 1; k++) acc[k] = vec{};
#pragma GCC unroll 16
  for (int i = 0; i < na; i++)
#pragma GCC unroll 16
    for (int j = 0; j < nb; j++) acc[i + j] += a1[i] * b[j] + a[i] * b1[j];
  for (int k = 0; k < na + nb - 1; k++) out[k] = acc[k];
}

template <int outputs, int terms>
static inline void correlate_fixed_tangent(const vec* d, const vec* d1, const vec* u, const vec* u1, vec* out) {
  vec acc[outputs];
  for (int k = 0; k < outputs; k++) acc[k] = vec{};
#pragma GCC unroll 16
  for (int j = 0; j < terms; j++)
#pragma GCC unroll 16
    for (int k = 0; k < outputs; k++) acc[k] += d1[k + j] * u[j] + d[k + j] * u1[j];
  for (int k = 0; k < outputs; k++) out[k] = acc[k];
}

struct ConvolveTangentTiles {
  const vec *a, *a1, *b, *b1;  // b and b1 padded by zeros
  ptrdiff_t na, nb;
  vec* out;
  template <int tile>
  void run(ptrdiff_t k) const {
    const ptrdiff_t from = k - nb + 1 > 0 ? k - nb + 1 : 0, to = na < k + tile ? na : k + tile;
    vec acc[tile];
    for (int t = 0; t < tile; t++) acc[t] = vec{};
    for (ptrdiff_t i = from; i < to; i++)
#pragma GCC unroll 16
      for (int t = 0; t < tile; t++) acc[t] += a1[i] * b[k + t - i] + a[i] * b1[k + t - i];
    for (int t = 0; t < tile; t++) out[k + t] = acc[t];
  }
};

struct CorrelateTangentTiles {
  const vec *d, *d1, *u, *u1;
  ptrdiff_t terms;
  vec* out;
  template <int tile>
  void run(ptrdiff_t k) const {
    vec acc[tile];
    for (int t = 0; t < tile; t++) acc[t] = vec{};
    for (ptrdiff_t j = 0; j < terms; j++)
#pragma GCC unroll 16
      for (int t = 0; t < tile; t++) acc[t] += d1[k + j + t] * u[j] + d[k + j + t] * u1[j];
    for (int t = 0; t < tile; t++) out[k + t] = acc[t];
  }
};

// A message and its derivative.
struct Dual {
  vec *value, *change;
};

// `padded` has room for the longer vector and kLanePad on either side, twice.
static inline void convolve_dual(Dual a, ptrdiff_t na, Dual b, ptrdiff_t nb, Dual out, Dual padded) {
  if (na > nb) {
    const Dual c = a;
    const ptrdiff_t n = na;
    a = b, na = nb, b = c, nb = n;
  }
  for (int t = 0; t < kLanePad; t++) {
    padded.value[t] = padded.value[kLanePad + nb + t] = vec{};
    padded.change[t] = padded.change[kLanePad + nb + t] = vec{};
  }
  for (ptrdiff_t j = 0; j < nb; j++) {
    padded.value[kLanePad + j] = b.value[j];
    padded.change[kLanePad + j] = b.change[j];
  }
  const vec *value = padded.value + kLanePad, *change = padded.change + kLanePad;
  in_tiles(na + nb - 1, ConvolveTiles{a.value, value, na, nb, out.value});
  in_tiles(na + nb - 1, ConvolveTangentTiles{a.value, a.change, value, change, na, nb, out.change});
}

static inline void correlate_dual(Dual d, Dual u, ptrdiff_t terms, Dual out, ptrdiff_t outputs) {
  in_tiles(outputs, CorrelateTiles{d.value, u.value, terms, out.value});
  in_tiles(outputs, CorrelateTangentTiles{d.value, d.change, u.value, u.change, terms, out.change});
}

struct DualGroup {
  Group value, change;
};

static inline void merge_dual_group(const Leaf* leaf, const Leaf* change, DualGroup* g) {
  merge_group(leaf, &g->value);
  for (int i = 0; i < 4; i++)
    convolve_fixed_tangent<2, 2>(&leaf[2 * i].off, &change[2 * i].off, &leaf[2 * i + 1].off, &change[2 * i + 1].off,
                                 g->change.pairs[i]);
  for (int i = 0; i < 2; i++)
    convolve_fixed_tangent<3, 3>(g->value.pairs[2 * i], g->change.pairs[2 * i], g->value.pairs[2 * i + 1],
                                 g->change.pairs[2 * i + 1], g->change.fours[i]);
}

// The layout of `tree` is that of lane_up.
static inline void dual_up(const Leaf* leaf, const Leaf* change, ptrdiff_t groups, Dual tree, Dual padded) {
  if (groups == 1) {
    DualGroup g;
    merge_dual_group(leaf, change, &g);
    convolve_fixed<5, 5>(g.value.fours[0], g.value.fours[1], tree.value);
    convolve_fixed_tangent<5, 5>(g.value.fours[0], g.change.fours[0], g.value.fours[1], g.change.fours[1], tree.change);
    return;
  }
  const ptrdiff_t left = (groups + 1) / 2, right = groups / 2, at_left = kGroup * groups + 1;
  const ptrdiff_t at_right = at_left + tree_size(left);
  const Dual l = {tree.value + at_left, tree.change + at_left}, r = {tree.value + at_right, tree.change + at_right};
  dual_up(leaf, change, left, l, padded);
  dual_up(leaf + kGroup * left, change + kGroup * left, right, r, padded);
  convolve_dual(l, kGroup * left + 1, r, kGroup * right + 1, tree, padded);
}

// Turns the leaves and their derivatives into their downward messages.
static inline void dual_down(Leaf* leaf, Leaf* change, ptrdiff_t groups, Dual tree, Dual d, Dual buffer) {
  if (groups == 1) {
    DualGroup g;
    merge_dual_group(leaf, change, &g);
    vec four[5], four1[5], pair[3], pair1[3];
    Leaf result[kGroup], result1[kGroup];
    for (int h = 0; h < 2; h++) {
      correlate_fixed<5, 5>(d.value, g.value.fours[1 - h], four);
      correlate_fixed_tangent<5, 5>(d.value, d.change, g.value.fours[1 - h], g.change.fours[1 - h], four1);
      for (int i = 0; i < 2; i++) {
        const int other = 2 * h + 1 - i;
        correlate_fixed<3, 3>(four, g.value.pairs[other], pair);
        correlate_fixed_tangent<3, 3>(four, four1, g.value.pairs[other], g.change.pairs[other], pair1);
        for (int j = 0; j < 2; j++) {
          const int sibling = 4 * h + 2 * i + 1 - j, own = 4 * h + 2 * i + j;
          correlate_fixed<2, 2>(pair, &leaf[sibling].off, &result[own].off);
          correlate_fixed_tangent<2, 2>(pair, pair1, &leaf[sibling].off, &change[sibling].off, &result1[own].off);
        }
      }
    }
    for (int i = 0; i < kGroup; i++) leaf[i] = result[i], change[i] = result1[i];
    return;
  }
  const ptrdiff_t left = (groups + 1) / 2, right = groups / 2, nl = kGroup * left + 1, nr = kGroup * right + 1;
  const ptrdiff_t at_left = kGroup * groups + 1, at_right = at_left + tree_size(left);
  const Dual l = {tree.value + at_left, tree.change + at_left}, r = {tree.value + at_right, tree.change + at_right};
  correlate_dual(d, r, nr, buffer, nl);
  dual_down(leaf, change, left, l, buffer, {buffer.value + nl, buffer.change + nl});
  correlate_dual(d, l, nl, buffer, nr);
  dual_down(leaf + kGroup * left, change + kGroup * left, right, r, buffer, {buffer.value + nr, buffer.change + nr});
}

}  // namespace tallytree::TT_LEVEL
