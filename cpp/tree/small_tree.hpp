// The way up a tree for up to one register of small models: one model per lane, direct convolutions, all counts. Messages
// are plain (M is vec*) or carry their derivatives (Dual).
//
// Messages are scaled by powers of two, so that their largest entry lies in [1, 2). Only positive terms are added; what
// underflow may have taken is followed as one absolute error per message and lane ("lost", as its log2). A multiple of the
// value is taken off a derivative wherever that keeps it small, which changes no expectation.
#pragma once
#include "base/simd_rows.hpp"
#include "base/simd_tree.hpp"
#include "tree/kernels.hpp"

namespace tallytree::TT_LEVEL {

constexpr double kUnderflow = -1060;  // log2 of an error that a product may make
constexpr double kFaintTable = -690;  // logs of table entries, relative to the largest, below which they count as lost
constexpr double kFaintLost = -990;   // log2 of the error that this makes

// Scales n vectors so that the largest of each lane lies in [1, 2); returns the exponents. Zero lanes stay.
static inline vec rescale(vec* x, ptrdiff_t n) {
  vec top = vec{};
  for (ptrdiff_t k = 0; k < n; k++) top = max(top, x[k]);
  const vec shift = top > 0.0 ? exponent_of(top) : vec{}, factor = pow2(-shift);
  for (ptrdiff_t k = 0; k < n; k++) x[k] *= factor;
  return shift;
}
static inline vec rescale(Dual x, ptrdiff_t n) {
  const vec shift = rescale(x.value, n), factor = pow2(-shift);
  for (ptrdiff_t k = 0; k < n; k++) x.change[k] *= factor;
  return shift;
}

// exp(log f - its largest) in lanes; returns the largest, and raises `lost` where small entries vanished.
static inline vec weigh_table(const double* const* tables, bool shared, int64_t offset, ptrdiff_t n, vec* out,
                              vec* lost) {
  const double low = -__builtin_inf();
  if (shared) {
    const double* log_f = tables[0] + offset;
    double largest = low;
    for (ptrdiff_t k = 0; k < n; k++) largest = max(largest, log_f[k]);
    const double base = largest > low ? largest : 0.0;
    for (ptrdiff_t k = 0; k < n; k += kLanes) {
      const int valid = (int)(n - k < kLanes ? n - k : kLanes);
      const vec x = load_part(log_f + k, valid, low) - base, e = exp(x);
      for (int l = 0; l < valid; l++) {
        out[k + l] = splat(e[l]);
        if (x[l] < kFaintTable && x[l] > low) *lost = splat(kFaintLost);
      }
    }
    return splat(largest);
  }
  const double* rows[8];
  for (int l = 0; l < 8; l++) rows[l] = tables[l] + offset;
  vec top = splat(low);
  by_entry(rows, kLanes, n, [&](ptrdiff_t k, vec x) {
    out[k] = x;
    top = max(top, x);
  });
  const vec base = top > low ? top : vec{};
  for (ptrdiff_t k = 0; k < n; k++) {
    const vec x = out[k] - base;
    *lost = ((x < kFaintTable) & (x > low)) ? splat(kFaintLost) : *lost;
    out[k] = exp(x);
  }
  return top;
}

// What a sum of n products of messages with these errors may have lost.
static inline vec lost_in_merge(vec a, vec b, ptrdiff_t n, double slack = 3.0) {
  return max(max(a, b), splat(kUnderflow)) + real::log2((double)n) + slack;
}

static inline ptrdiff_t longest_message(const TreeView& f) {
  ptrdiff_t longest = 2;
  for (int32_t v = 0; v < f.leaves + f.inner; v++) longest = f.size[v] + 1 > longest ? f.size[v] + 1 : longest;
  return longest;
}

template <class M>
struct SmallTree {
  const TreeView& f;
  const SmallModels& in;
  LaneRoom room;
  M *up, *down;              // of every node; `down` is for the way down
  vec** table;               // of every inner node; null without one
  vec *lost_up, *lost_down;  // of every node
  M padded;                  // room for the longest message and kLanePad on either side
  vec log_tables = vec{}, scale = vec{};  // what tables and messages were divided by: a logarithm, a power of two
  double variance;           // of the rounding errors, in squared unit round-offs

  SmallTree(const TreeView& tree, const SmallModels& models, double* scratch)
      : f(tree), in(models), room{(vec*)scratch}, variance(4.0 * tree.leaves) {
    const ptrdiff_t nodes = (ptrdiff_t)f.leaves + f.inner;
    up = room.take_other<M>(nodes);
    down = room.take_other<M>(nodes);
    table = room.take_other<vec*>(f.inner);
    lost_up = room.take(nodes);
    lost_down = room.take(nodes);
    padded = room.take_message<M>(longest_message(f) + 2 * kLanePad);
    for (int32_t d = 0; d < f.leaves; d++) {
      up[d] = room.take_message<M>(2);
      lost_up[d] = splat(kUnderflow);
    }
    by_entry(in.nu, kLanes, f.leaves, [&](ptrdiff_t d, vec x) {  // (q, p), q + p = 1
      const Leaf w = leaf_of(x, deviation(x));
      value_of(up[d])[0] = w.off;
      value_of(up[d])[1] = w.on;
    });
    if constexpr (kCarriesChange<M>) by_entry(in.v, kLanes, f.leaves, [&](ptrdiff_t d, vec v) {
      const vec spread = up[d].value[0] * up[d].value[1], moved = spread > 0.0 ? spread * v : vec{};
      up[d].change[0] = -moved;
      up[d].change[1] = moved;
    });
  }

  ptrdiff_t counts(int32_t node) const { return f.size[node] + 1; }

  // out = f . x and, of derivatives, f . (x' + h x).
  void weigh(int32_t i, ptrdiff_t n, M x, M out) const {
    const vec* t = table[i];
    for (ptrdiff_t k = 0; k < n; k++) value_of(out)[k] = value_of(x)[k] * t[k];
    if constexpr (kCarriesChange<M>) {
      for (ptrdiff_t k = 0; k < n; k++) out.change[k] = x.change[k] * t[k];
      if (!in.h[0]) return;
      const double* h[8];
      for (int l = 0; l < 8; l++) h[l] = in.h[l] + f.table_offset[i];
      by_entry(h, kLanes, n, [&](ptrdiff_t k, vec moved) {
        out.change[k] += out.value[k] > 0.0 ? moved * out.value[k] : vec{};
      });
    }
  }

  // Merges node i. Without `with_table` its own table stays out, and the message is scaled as it is.
  void merge(int32_t i, bool with_table) {
    const int32_t a = f.left[i], b = f.right[i], v = f.leaves + i;
    const ptrdiff_t na = counts(a), nb = counts(b), n = counts(v);
    const M c = up[v] = room.take_message<M>(n + kLanes);
    if (n == 3)
      convolve_fixed<2, 2>(up[a], up[b], c);
    else
      convolve_any(up[a], na, up[b], nb, c, padded);
    variance += (double)(na < nb ? na : nb) + 16;
    vec lost = lost_in_merge(lost_up[a], lost_up[b], n, kCarriesChange<M> ? 3.0 : 2.0);
    table[i] = nullptr;
    if (with_table && f.table_offset[i] >= 0) {
      vec faint = splat(kUnderflow);
      table[i] = room.take(n + kLanes);
      log_tables += weigh_table(in.tables, in.shared_tables, f.table_offset[i], n, table[i], &faint);
      weigh(i, n, c, c);
      lost = max(lost, faint) + 1.0;
    }
    const vec shift = rescale(c, n);
    scale += shift;
    lost_up[v] = lost - shift;
    if constexpr (kCarriesChange<M>) {
      vec sum = vec{}, moved = vec{};
      for (ptrdiff_t k = 0; k < n; k++) sum += c.value[k], moved += c.change[k];
      take_off(c, n, sum, moved);
    }
  }

  // Takes the multiple of the value off the derivative that makes its sum, `moved`, vanish.
  static void take_off(M x, ptrdiff_t n, vec sum, vec moved) {
    const vec mean = sum > 0.0 ? moved / sum : vec{};
    for (ptrdiff_t k = 0; k < n; k++) x.change[k] -= mean * x.value[k];
  }
};

}  // namespace tallytree::TT_LEVEL
