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

template <int tile>
static inline void convolve_tangent_tile(const vec* a, const vec* a1, ptrdiff_t from, ptrdiff_t to, const vec* b,
                                         const vec* b1, vec* out) {
  vec acc[tile];
  for (int t = 0; t < tile; t++) acc[t] = vec{};
  add_convolved<tile>(a1, from, to, b, acc);
  add_convolved<tile>(a, from, to, b1, acc);
  for (int t = 0; t < tile; t++) out[t] = acc[t];
}

template <int tile>
static inline void correlate_tangent_tile(const vec* d, const vec* d1, const vec* u, const vec* u1, ptrdiff_t terms,
                                          vec* out) {
  vec acc[tile];
  for (int t = 0; t < tile; t++) acc[t] = vec{};
  add_correlated<tile>(d1, u, terms, acc);
  add_correlated<tile>(d, u1, terms, acc);
  for (int t = 0; t < tile; t++) out[t] = acc[t];
}

struct ConvolveTangentTiles {
  const vec *a, *a1, *b, *b1;  // b and b1 padded by zeros
  ptrdiff_t na, nb;
  vec* out;
  template <int tile>
  void run(ptrdiff_t k) const {
    const ptrdiff_t from = k - nb + 1 > 0 ? k - nb + 1 : 0, to = na < k + tile ? na : k + tile;
    convolve_tangent_tile<tile>(a, a1, from, to, b + k, b1 + k, out + k);
  }
};

struct CorrelateTangentTiles {
  const vec *d, *d1, *u, *u1;
  ptrdiff_t terms;
  vec* out;
  template <int tile>
  void run(ptrdiff_t k) const {
    correlate_tangent_tile<tile>(d + k, d1 + k, u, u1, terms, out + k);
  }
};

// A message and its derivative.
struct Dual {
  vec *value, *change;
};

// Zeros on either side of a copy of b; returns where the copy begins.
static inline Dual pad_dual(Dual b, ptrdiff_t nb, Dual padded) {
  for (int t = 0; t < kLanePad; t++) {
    padded.value[t] = padded.value[kLanePad + nb + t] = vec{};
    padded.change[t] = padded.change[kLanePad + nb + t] = vec{};
  }
  for (ptrdiff_t j = 0; j < nb; j++) {
    padded.value[kLanePad + j] = b.value[j];
    padded.change[kLanePad + j] = b.change[j];
  }
  return {padded.value + kLanePad, padded.change + kLanePad};
}

// `padded` has room for the longer vector and kLanePad on either side, twice.
static inline void convolve_dual(Dual a, ptrdiff_t na, Dual b, ptrdiff_t nb, Dual out, Dual padded) {
  if (na > nb) {
    const Dual c = a;
    const ptrdiff_t n = na;
    a = b, na = nb, b = c, nb = n;
  }
  const Dual inside = pad_dual(b, nb, padded);
  in_tiles(na + nb - 1, ConvolveTiles{a.value, inside.value, na, nb, out.value});
  in_tiles(na + nb - 1, ConvolveTangentTiles{a.value, a.change, inside.value, inside.change, na, nb, out.change});
}

static inline void correlate_dual(Dual d, Dual u, ptrdiff_t terms, Dual out, ptrdiff_t outputs) {
  in_tiles(outputs, CorrelateTiles{d.value, u.value, terms, out.value});
  in_tiles(outputs, CorrelateTangentTiles{d.value, d.change, u.value, u.change, terms, out.change});
}

// convolve_lanes and correlate_lanes of messages and their derivatives.
static inline void convolve_dual_lanes(Dual a, ptrdiff_t na, Dual b, ptrdiff_t nb, Dual out, ptrdiff_t outputs,
                                       Dual padded) {
  const Dual inside = pad_dual(b, nb, padded);
  for (ptrdiff_t k = 0; k + 1 < outputs; k += kTile) {
    const bool last = k + kTile + 1 == outputs;
    const ptrdiff_t after = k + kTile + last;
    const ptrdiff_t from = k - nb + 1 > 0 ? k - nb + 1 : 0, to = na < after ? na : after;
    const vec *value = inside.value + k, *change = inside.change + k;
    if (last) {
      convolve_tile<kTile + 1>(a.value, from, to, value, out.value + k);
      convolve_tangent_tile<kTile + 1>(a.value, a.change, from, to, value, change, out.change + k);
    } else {
      convolve_tile<kTile>(a.value, from, to, value, out.value + k);
      convolve_tangent_tile<kTile>(a.value, a.change, from, to, value, change, out.change + k);
    }
  }
}

static inline void correlate_dual_lanes(Dual d, ptrdiff_t nd, Dual u, ptrdiff_t terms, Dual out, ptrdiff_t outputs) {
  for (ptrdiff_t k = 0; k + 1 < outputs; k += kTile) {
    const ptrdiff_t within = terms < nd - k ? terms : nd - k;
    const vec *value = d.value + k, *change = d.change + k;
    if (k + kTile + 1 == outputs) {
      correlate_tile<kTile + 1>(value, u.value, within, out.value + k);
      correlate_tangent_tile<kTile + 1>(value, change, u.value, u.change, within, out.change + k);
    } else {
      correlate_tile<kTile>(value, u.value, within, out.value + k);
      correlate_tangent_tile<kTile>(value, change, u.value, u.change, within, out.change + k);
    }
  }
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

// The layout of `tree` and the meaning of `most` are those of lane_up.
static inline void dual_up(const Leaf* leaf, const Leaf* change, ptrdiff_t groups, ptrdiff_t most, Dual tree,
                           Dual padded) {
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
  dual_up(leaf, change, left, most, l, padded);
  dual_up(leaf + kGroup * left, change + kGroup * left, right, most, r, padded);
  convolve_dual_lanes(l, counts_of(left, most), r, counts_of(right, most), tree, counts_of(groups, most), padded);
}

// Turns the leaves and their derivatives into their downward messages; d as for lane_down.
static inline void dual_down(Leaf* leaf, Leaf* change, ptrdiff_t groups, ptrdiff_t most, Dual tree, Dual d,
                             Dual buffer) {
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
  const ptrdiff_t left = (groups + 1) / 2, right = groups / 2, nd = counts_of(groups, most);
  const ptrdiff_t nl = counts_of(left, most), nr = counts_of(right, most);
  const ptrdiff_t at_left = kGroup * groups + 1, at_right = at_left + tree_size(left);
  const Dual l = {tree.value + at_left, tree.change + at_left}, r = {tree.value + at_right, tree.change + at_right};
  const auto descend = [&](ptrdiff_t first, ptrdiff_t own_groups, Dual own, ptrdiff_t n, Dual other, ptrdiff_t n_other) {
    correlate_dual_lanes(d, nd, other, n_other, buffer, n);
    for (int t = 0; t < kLanePad; t++) buffer.value[n + t] = buffer.change[n + t] = vec{};
    const ptrdiff_t used = n + kLanePad;
    dual_down(leaf + first, change + first, own_groups, most, own, buffer, {buffer.value + used, buffer.change + used});
  };
  descend(0, left, l, nl, r, nr);
  descend(kGroup * left, right, r, nr, l, nl);
}

}  // namespace tallytree::TT_LEVEL
