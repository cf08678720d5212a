// A small binary tree of direct convolutions in every lane of a register.
//
// Only positive terms are added, so every number is relatively accurate as long as it stays in range. Leaves are pairs
// (q, p) with q + p = 1, so every upward message is at most 1.
#pragma once
#include "flat/elementary.hpp"

namespace tallytree::TT_LEVEL {

constexpr int kGroup = 8;  // leaves of a bottom group; missing leaves are (1, 0)
constexpr int kTile = 8;   // outputs kept in registers
constexpr int kLanePad = kTile + 1;

template <int na, int nb>
static inline void convolve_fixed(const vec* a, const vec* b, vec* out) {
  vec acc[na + nb - 1];
  for (int k = 0; k < na + nb - 1; k++) acc[k] = vec{};
#pragma GCC unroll 16
  for (int i = 0; i < na; i++)
#pragma GCC unroll 16
    for (int j = 0; j < nb; j++) acc[i + j] += a[i] * b[j];
  for (int k = 0; k < na + nb - 1; k++) out[k] = acc[k];
}

// out[k] = sum_j d[k + j] u[j]
template <int outputs, int terms>
static inline void correlate_fixed(const vec* d, const vec* u, vec* out) {
  vec acc[outputs];
  for (int k = 0; k < outputs; k++) acc[k] = vec{};
#pragma GCC unroll 16
  for (int j = 0; j < terms; j++)
#pragma GCC unroll 16
    for (int k = 0; k < outputs; k++) acc[k] += d[k + j] * u[j];
  for (int k = 0; k < outputs; k++) out[k] = acc[k];
}

// Terms that are added with both factors in registers: 32 of them hold a tile, its terms and what they slide along.
constexpr int kTerms = kLanes == 8 ? 8 : 1;

// acc[t] += sum of a[i] b[t - i] over from <= i < to
template <int tile>
static inline void add_convolved(const vec* a, ptrdiff_t from, ptrdiff_t to, const vec* b, vec* acc) {
  ptrdiff_t i = from;
  for (; kTerms > 1 && i + kTerms <= to; i += kTerms) {
    vec slide[tile + kTerms - 1];
#pragma GCC unroll 16
    for (int j = 0; j < tile + kTerms - 1; j++) slide[j] = b[j - i - (kTerms - 1)];
#pragma GCC unroll 16
    for (int s = 0; s < kTerms; s++) {
      const vec term = a[i + s];
#pragma GCC unroll 16
      for (int t = 0; t < tile; t++) acc[t] += term * slide[t - s + kTerms - 1];
    }
  }
  for (; i < to; i++)
#pragma GCC unroll 16
    for (int t = 0; t < tile; t++) acc[t] += a[i] * b[t - i];
}

// acc[t] += sum of d[j + t] u[j] over j < terms
template <int tile>
static inline void add_correlated(const vec* d, const vec* u, ptrdiff_t terms, vec* acc) {
  ptrdiff_t j = 0;
  for (; kTerms > 1 && j + kTerms <= terms; j += kTerms) {
    vec slide[tile + kTerms - 1];
#pragma GCC unroll 16
    for (int m = 0; m < tile + kTerms - 1; m++) slide[m] = d[j + m];
#pragma GCC unroll 16
    for (int s = 0; s < kTerms; s++) {
      const vec term = u[j + s];
#pragma GCC unroll 16
      for (int t = 0; t < tile; t++) acc[t] += slide[t + s] * term;
    }
  }
  for (; j < terms; j++)
#pragma GCC unroll 16
    for (int t = 0; t < tile; t++) acc[t] += d[j + t] * u[j];
}

template <int tile>
static inline void convolve_tile(const vec* a, ptrdiff_t from, ptrdiff_t to, const vec* b, vec* out) {
  vec acc[tile];
  for (int t = 0; t < tile; t++) acc[t] = vec{};
  add_convolved<tile>(a, from, to, b, acc);
  for (int t = 0; t < tile; t++) out[t] = acc[t];
}

template <int tile>
static inline void correlate_tile(const vec* d, const vec* u, ptrdiff_t terms, vec* out) {
  vec acc[tile];
  for (int t = 0; t < tile; t++) acc[t] = vec{};
  add_correlated<tile>(d, u, terms, acc);
  for (int t = 0; t < tile; t++) out[t] = acc[t];
}

// Messages have 8 g + 1 entries, so outputs come in tiles of 8 and a last one of 9.
// `padded` holds zeros on either side of a copy of b.
static inline void convolve_lanes(const vec* a, ptrdiff_t na, const vec* b, ptrdiff_t nb, vec* out, ptrdiff_t outputs,
                                  vec* padded) {
  for (int t = 0; t < kLanePad; t++) padded[t] = padded[kLanePad + nb + t] = vec{};
  for (ptrdiff_t j = 0; j < nb; j++) padded[kLanePad + j] = b[j];
  for (ptrdiff_t k = 0; k + 1 < outputs; k += kTile) {
    const bool last = k + kTile + 1 == outputs;
    const ptrdiff_t after = k + kTile + last;
    const ptrdiff_t from = k - nb + 1 > 0 ? k - nb + 1 : 0, to = na < after ? na : after;
    if (last)
      convolve_tile<kTile + 1>(a, from, to, padded + kLanePad + k, out + k);
    else
      convolve_tile<kTile>(a, from, to, padded + kLanePad + k, out + k);
  }
}

// d has nd entries, and kLanePad zeros behind them unless nd = terms + outputs - 1.
static inline void correlate_lanes(const vec* d, ptrdiff_t nd, const vec* u, ptrdiff_t terms, vec* out,
                                   ptrdiff_t outputs) {
  for (ptrdiff_t k = 0; k + 1 < outputs; k += kTile) {
    const ptrdiff_t within = terms < nd - k ? terms : nd - k;
    if (k + kTile + 1 == outputs)
      correlate_tile<kTile + 1>(d + k, u, within, out + k);
    else
      correlate_tile<kTile>(d + k, u, within, out + k);
  }
}

// Convolution and correlation of any lengths; `padded` has room for the longer vector and kLanePad on either side.
template <class Tile>
static inline void in_tiles(ptrdiff_t outputs, const Tile& tile) {
  ptrdiff_t k = 0;
  for (; k + 8 <= outputs; k += 8) tile.template run<8>(k);
  switch (outputs - k) {
    case 1: return tile.template run<1>(k);
    case 2: return tile.template run<2>(k);
    case 3: return tile.template run<3>(k);
    case 4: return tile.template run<4>(k);
    case 5: return tile.template run<5>(k);
    case 6: return tile.template run<6>(k);
    case 7: return tile.template run<7>(k);
    default: return;
  }
}

struct ConvolveTiles {
  const vec *a, *b;  // b padded by zeros
  ptrdiff_t na, nb;
  vec* out;
  template <int tile>
  void run(ptrdiff_t k) const {
    const ptrdiff_t from = k - nb + 1 > 0 ? k - nb + 1 : 0, to = na < k + tile ? na : k + tile;
    convolve_tile<tile>(a, from, to, b + k, out + k);
  }
};

static inline void convolve_any(const vec* a, ptrdiff_t na, const vec* b, ptrdiff_t nb, vec* out, vec* padded) {
  if (na == 2 && nb == 2) return convolve_fixed<2, 2>(a, b, out);
  if (na > nb) {
    const vec* c = a;
    const ptrdiff_t n = na;
    a = b, na = nb, b = c, nb = n;
  }
  for (int t = 0; t < kLanePad; t++) padded[t] = padded[kLanePad + nb + t] = vec{};
  for (ptrdiff_t j = 0; j < nb; j++) padded[kLanePad + j] = b[j];
  in_tiles(na + nb - 1, ConvolveTiles{a, padded + kLanePad, na, nb, out});
}

struct CorrelateTiles {
  const vec *d, *u;
  ptrdiff_t terms;
  vec* out;
  template <int tile>
  void run(ptrdiff_t k) const {
    correlate_tile<tile>(d + k, u, terms, out + k);
  }
};

static inline void correlate_any(const vec* d, const vec* u, ptrdiff_t terms, vec* out, ptrdiff_t outputs) {
  in_tiles(outputs, CorrelateTiles{d, u, terms, out});
}

// A subtree over `groups` bottom groups keeps its message first, then the left and the right subtree.
static inline ptrdiff_t tree_size(ptrdiff_t groups) {
  const ptrdiff_t own = kGroup * groups + 1;
  return groups == 1 ? own : own + tree_size((groups + 1) / 2) + tree_size(groups / 2);
}

struct Group {
  vec pairs[4][3], fours[2][5];
};

static inline void merge_group(const Leaf* leaf, Group* g) {
  for (int i = 0; i < 4; i++) convolve_fixed<2, 2>(&leaf[2 * i].off, &leaf[2 * i + 1].off, g->pairs[i]);
  for (int i = 0; i < 2; i++) convolve_fixed<3, 3>(g->pairs[2 * i], g->pairs[2 * i + 1], g->fours[i]);
}

// Counts of a message over `groups` bottom groups if none above `most`, a multiple of 8, matters.
static inline ptrdiff_t counts_of(ptrdiff_t groups, ptrdiff_t most) {
  return (kGroup * groups < most ? kGroup * groups : most) + 1;
}

static inline void lane_up(const Leaf* leaf, ptrdiff_t groups, ptrdiff_t most, vec* tree, vec* padded) {
  if (groups == 1) {
    Group g;
    merge_group(leaf, &g);
    convolve_fixed<5, 5>(g.fours[0], g.fours[1], tree);
    return;
  }
  const ptrdiff_t left = (groups + 1) / 2, right = groups / 2;
  vec *l = tree + kGroup * groups + 1, *r = l + tree_size(left);
  lane_up(leaf, left, most, l, padded);
  lane_up(leaf + kGroup * left, right, most, r, padded);
  convolve_lanes(l, counts_of(left, most), r, counts_of(right, most), tree, counts_of(groups, most), padded);
}

// Turns the leaves into their downward messages. d has kLanePad zeros behind its counts if some are above `most`.
static inline void lane_down(Leaf* leaf, ptrdiff_t groups, ptrdiff_t most, const vec* tree, const vec* d, vec* buffer) {
  if (groups == 1) {
    Group g;
    merge_group(leaf, &g);
    vec four[5], pair[3], one[2];
    Leaf result[kGroup];
    for (int h = 0; h < 2; h++) {
      correlate_fixed<5, 5>(d, g.fours[1 - h], four);
      for (int i = 0; i < 2; i++) {
        correlate_fixed<3, 3>(four, g.pairs[2 * h + 1 - i], pair);
        for (int j = 0; j < 2; j++) {
          correlate_fixed<2, 2>(pair, &leaf[4 * h + 2 * i + 1 - j].off, one);
          result[4 * h + 2 * i + j] = {one[0], one[1]};
        }
      }
    }
    for (int i = 0; i < kGroup; i++) leaf[i] = result[i];
    return;
  }
  const ptrdiff_t left = (groups + 1) / 2, right = groups / 2, nd = counts_of(groups, most);
  const ptrdiff_t nl = counts_of(left, most), nr = counts_of(right, most);
  const vec *l = tree + kGroup * groups + 1, *r = l + tree_size(left);
  const auto descend = [&](Leaf* own, ptrdiff_t own_groups, const vec* own_tree, ptrdiff_t n, const vec* other,
                           ptrdiff_t n_other) {
    correlate_lanes(d, nd, other, n_other, buffer, n);
    for (int t = 0; t < kLanePad; t++) buffer[n + t] = vec{};
    lane_down(own, own_groups, most, own_tree, buffer, buffer + n + kLanePad);
  };
  descend(leaf, left, l, nl, r, nr);
  descend(leaf + kGroup * left, right, r, nr, l, nl);
}

// P(y = 1) from a leaf's weights and the ratio of its downward message.
static inline vec marginal_of(const Leaf& weight, vec ratio) {
  const vec on = weight.on * ratio;
  return on / (on + weight.off);
}

// d(1) / d(0) of a leaf's downward message; `least` becomes the smaller of the two if it is larger.
static inline vec leave_one_out_ratio(const Leaf& d, vec* least) {
  *least = d.off < *least ? d.off : *least;
  *least = d.on < *least ? d.on : *least;
  return d.on / d.off;
}

}  // namespace tallytree::TT_LEVEL
