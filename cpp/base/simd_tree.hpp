// A small binary tree of direct convolutions in every lane of a register, of messages alone or with their derivatives.
//
// Only positive terms are added, so every number is relatively accurate as long as it stays in range. Leaves are pairs
// (q, p) with q + p = 1, so every upward message is at most 1.
#pragma once
#include "base/deviation.hpp"

namespace tallytree::TT_LEVEL {

constexpr int kGroup = 8;  // leaves of a bottom group; missing leaves are (1, 0)
constexpr int kTile = 8;   // outputs kept in registers
constexpr int kLanePad = kTile + 1;

// A message and its derivative along a direction, (a b)' = a' b + a b'. Templates take one or a plain message, vec*, as M.
struct Dual {
  vec *value, *change;
};
static inline Dual operator+(Dual m, ptrdiff_t k) { return {m.value + k, m.change + k}; }
static inline vec* value_of(vec* m) { return m; }
static inline vec* value_of(Dual m) { return m.value; }
template <class M>
constexpr bool kCarriesChange = false;
template <>
constexpr bool kCarriesChange<Dual> = true;

// Memory given out from the front of one piece; begun at null it only measures.
struct LaneRoom {
  vec* next;
  ptrdiff_t doubles_from(const double* start) const { return (const double*)next - start; }
  vec* take(ptrdiff_t count) {
    vec* taken = next;
    next += count;
    return taken;
  }
  template <class M>
  M take_message(ptrdiff_t count) {
    vec* value = take(count);
    if constexpr (kCarriesChange<M>) return {value, take(count)};
    else return value;
  }
  template <class T>
  T* take_other(ptrdiff_t count) {
    return (T*)take((count * (ptrdiff_t)sizeof(T) + (ptrdiff_t)sizeof(vec) - 1) / (ptrdiff_t)sizeof(vec));
  }
};

static inline void copy(const vec* from, ptrdiff_t n, vec* to) {
  for (ptrdiff_t k = 0; k < n; k++) to[k] = from[k];
}
static inline void copy(Dual from, ptrdiff_t n, Dual to) {
  copy(from.value, n, to.value);
  copy(from.change, n, to.change);
}
static inline void clear(vec* x, ptrdiff_t n) {
  for (ptrdiff_t k = 0; k < n; k++) x[k] = vec{};
}
static inline void clear(Dual x, ptrdiff_t n) {
  clear(x.value, n);
  clear(x.change, n);
}

// Room for a message of n entries.
template <class M, int n>
struct Held {
  vec x[n];
  operator vec*() { return x; }
};
template <int n>
struct Held<Dual, n> {
  vec value[n], change[n];
  operator Dual() { return {value, change}; }
};

// out = the n sums that add(a, b, acc) forms of products of entries of a and b, and their derivatives.
template <int n, class Add>
static inline void sum_products(const Add& add, const vec* a, const vec* b, vec* out) {
  vec acc[n];
  clear(acc, n);
  add(a, b, acc);
  copy(acc, n, out);
}
template <int n, class Add>
static inline void sum_products(const Add& add, Dual a, Dual b, Dual out) {
  sum_products<n>(add, a.value, b.value, out.value);
  vec acc[n];
  clear(acc, n);
  add(a.change, b.value, acc);
  add(a.value, b.change, acc);
  copy(acc, n, out.change);
}

template <int na, int nb, class M>
static inline void convolve_fixed(M a, M b, M out) {
  sum_products<na + nb - 1>([](const vec* x, const vec* y, vec* acc) {
#pragma GCC unroll 16
    for (int i = 0; i < na; i++)
#pragma GCC unroll 16
      for (int j = 0; j < nb; j++) acc[i + j] += x[i] * y[j];
  }, a, b, out);
}

// out[k] = sum_j d[k + j] u[j]
template <int outputs, int terms, class M>
static inline void correlate_fixed(M d, M u, M out) {
  sum_products<outputs>([](const vec* x, const vec* y, vec* acc) {
#pragma GCC unroll 16
    for (int j = 0; j < terms; j++)
#pragma GCC unroll 16
      for (int k = 0; k < outputs; k++) acc[k] += x[k + j] * y[j];
  }, d, u, out);
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

template <int tile, class M>
static inline void convolve_tile(M a, ptrdiff_t from, ptrdiff_t to, M b, M out) {
  sum_products<tile>([=](const vec* x, const vec* y, vec* acc) { add_convolved<tile>(x, from, to, y, acc); }, a, b, out);
}

template <int tile, class M>
static inline void correlate_tile(M d, M u, ptrdiff_t terms, M out) {
  sum_products<tile>([=](const vec* x, const vec* y, vec* acc) { add_correlated<tile>(x, y, terms, acc); }, d, u, out);
}

// A copy of b between zeros; returns where it begins. `padded` has room for kLanePad of them on either side.
template <class M>
static inline M pad(M b, ptrdiff_t nb, M padded) {
  clear(padded, kLanePad);
  copy(b, nb, padded + kLanePad);
  clear(padded + (kLanePad + nb), kLanePad);
  return padded + kLanePad;
}

// Messages have 8 g + 1 entries, so outputs come in tiles of 8 and a last one of 9.
template <class M>
static inline void convolve_lanes(M a, ptrdiff_t na, M b, ptrdiff_t nb, M out, ptrdiff_t outputs, M padded) {
  const M inside = pad(b, nb, padded);
  for (ptrdiff_t k = 0; k + 1 < outputs; k += kTile) {
    const bool last = k + kTile + 1 == outputs;
    const ptrdiff_t after = k + kTile + last;
    const ptrdiff_t from = k - nb + 1 > 0 ? k - nb + 1 : 0, to = na < after ? na : after;
    if (last)
      convolve_tile<kTile + 1>(a, from, to, inside + k, out + k);
    else
      convolve_tile<kTile>(a, from, to, inside + k, out + k);
  }
}

// d has nd entries, and kLanePad zeros behind them unless nd = terms + outputs - 1.
template <class M>
static inline void correlate_lanes(M d, ptrdiff_t nd, M u, ptrdiff_t terms, M out, ptrdiff_t outputs) {
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
  for (; k + 8 <= outputs; k += 8) tile.template operator()<8>(k);
  switch (outputs - k) {
    case 1: return tile.template operator()<1>(k);
    case 2: return tile.template operator()<2>(k);
    case 3: return tile.template operator()<3>(k);
    case 4: return tile.template operator()<4>(k);
    case 5: return tile.template operator()<5>(k);
    case 6: return tile.template operator()<6>(k);
    case 7: return tile.template operator()<7>(k);
    default: return;
  }
}

template <class M>
static inline void convolve_any(M a, ptrdiff_t na, M b, ptrdiff_t nb, M out, M padded) {
  if (na > nb) return convolve_any(b, nb, a, na, out, padded);
  const M inside = pad(b, nb, padded);
  in_tiles(na + nb - 1, [&]<int tile>(ptrdiff_t k) {
    const ptrdiff_t from = k - nb + 1 > 0 ? k - nb + 1 : 0, to = na < k + tile ? na : k + tile;
    convolve_tile<tile>(a, from, to, inside + k, out + k);
  });
}

template <class M>
static inline void correlate_any(M d, M u, ptrdiff_t terms, M out, ptrdiff_t outputs) {
  in_tiles(outputs, [&]<int tile>(ptrdiff_t k) { correlate_tile<tile>(d + k, u, terms, out + k); });
}

// A subtree over `groups` bottom groups keeps its message first, then the left and the right subtree.
static inline ptrdiff_t tree_size(ptrdiff_t groups) {
  const ptrdiff_t own = kGroup * groups + 1;
  return groups == 1 ? own : own + tree_size((groups + 1) / 2) + tree_size(groups / 2);
}

template <class M>
struct Group {
  Held<M, 3> pairs[4];
  Held<M, 5> fours[2];
};

// The leaves lie one behind the other, two entries each.
template <class M>
static inline void merge_group(M leaf, Group<M>* g) {
  for (int i = 0; i < 4; i++) convolve_fixed<2, 2, M>(leaf + 4 * i, leaf + (4 * i + 2), g->pairs[i]);
  for (int i = 0; i < 2; i++) convolve_fixed<3, 3, M>(g->pairs[2 * i], g->pairs[2 * i + 1], g->fours[i]);
}

// Counts of a message over `groups` bottom groups if none above `most`, a multiple of 8, matters.
static inline ptrdiff_t counts_of(ptrdiff_t groups, ptrdiff_t most) {
  return (kGroup * groups < most ? kGroup * groups : most) + 1;
}

template <class M>
static inline void lane_up(M leaf, ptrdiff_t groups, ptrdiff_t most, M tree, M padded) {
  if (groups == 1) {
    Group<M> g;
    merge_group(leaf, &g);
    convolve_fixed<5, 5, M>(g.fours[0], g.fours[1], tree);
    return;
  }
  const ptrdiff_t left = (groups + 1) / 2, right = groups / 2;
  const M l = tree + (kGroup * groups + 1), r = l + tree_size(left);
  lane_up(leaf, left, most, l, padded);
  lane_up(leaf + 2 * kGroup * left, right, most, r, padded);
  convolve_lanes(l, counts_of(left, most), r, counts_of(right, most), tree, counts_of(groups, most), padded);
}

// Turns the leaves into their downward messages. d has kLanePad zeros behind its counts if some are above `most`.
template <class M>
static inline void lane_down(M leaf, ptrdiff_t groups, ptrdiff_t most, M tree, M d, M buffer) {
  if (groups == 1) {
    Group<M> g;
    merge_group(leaf, &g);
    Held<M, 5> four;
    Held<M, 3> pair;
    Held<M, 2 * kGroup> room;
    const M result = room;
    for (int h = 0; h < 2; h++) {
      correlate_fixed<5, 5, M>(d, g.fours[1 - h], four);
      for (int i = 0; i < 2; i++) {
        correlate_fixed<3, 3, M>(four, g.pairs[2 * h + 1 - i], pair);
        const int first = 8 * h + 4 * i;
        for (int j = 0; j < 2; j++) correlate_fixed<2, 2, M>(pair, leaf + (first + 2 - 2 * j), result + (first + 2 * j));
      }
    }
    copy(result, 2 * kGroup, leaf);
    return;
  }
  const ptrdiff_t left = (groups + 1) / 2, right = groups / 2, nd = counts_of(groups, most);
  const ptrdiff_t nl = counts_of(left, most), nr = counts_of(right, most);
  const M l = tree + (kGroup * groups + 1), r = l + tree_size(left);
  const auto descend = [&](M own_leaf, ptrdiff_t own_groups, M own_tree, ptrdiff_t n, M other, ptrdiff_t n_other) {
    correlate_lanes(d, nd, other, n_other, buffer, n);
    clear(buffer + n, kLanePad);
    lane_down(own_leaf, own_groups, most, own_tree, buffer, buffer + (n + kLanePad));
  };
  descend(leaf, left, l, nl, r, nr);
  descend(leaf + 2 * kGroup * left, right, r, nr, l, nl);
}

// Leaves in a row, two entries each.
static inline Leaf leaf_at(const vec* leaves, ptrdiff_t i) { return {leaves[2 * i], leaves[2 * i + 1]}; }

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
