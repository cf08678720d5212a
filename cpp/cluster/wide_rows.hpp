// What the passes over clusters do to one row of counts with an exponent each: nothing is lost to range, and there are no floors.
#pragma once
#include "base/wide.hpp"
#include "cluster/tiled_rows.hpp"

namespace tallytree::TT_LEVEL {

// Mantissas in [1, 2) or 0; there is room for a whole vector behind the last.
struct WideRow {
  double *value, *exponent;
  int length;
};

static inline void make_zero(Worker& w, int width, WideRow& out) {
  const size_t room = (size_t)(width + kTileOutputs);
  out = {arena_take(w.arena, room), arena_take(w.arena, room), width};
  fill(out.value, (ptrdiff_t)room, 0.0);
  fill(out.exponent, (ptrdiff_t)room, kZeroExponent);
}
// A copy of the entries from `first` on, zeros where there are none.
static inline WideRow wide_part(Worker& w, const WideRow& x, int first, int length) {
  WideRow out;
  make_zero(w, length, out);
  const int from = max(first, 0), count = min(x.length, first + length) - from;
  if (count <= 0) return out;
  std::memcpy(out.value + (from - first), x.value + from, sizeof(double) * (size_t)count);
  std::memcpy(out.exponent + (from - first), x.exponent + from, sizeof(double) * (size_t)count);
  return out;
}
static inline WideRow settled_copy(Worker& w, const WideRow& x) { return wide_part(w, x, 0, x.length); }

static inline double scale_of(const WideRow& x) {
  double top = kZeroExponent;
  for (int k = 0; k < x.length; k++) top = max(top, x.exponent[k]);
  return top;
}
static inline void take_out(WideRow& x, double shift) {
  for (int k = 0; k < x.length; k++)
    if (x.exponent[k] > kNothing) x.exponent[k] -= shift;
}

static inline void put_entry(WideRow& x, int at, double value, double exponent) {
  const double e = value > 0 ? exponent_of(value) : 0.0;
  x.value[at] = value > 0 ? value * pow2(-e) : 0.0;
  x.exponent[at] = value > 0 ? exponent + e : kZeroExponent;
}
static inline double exponent_at(const WideRow& x, int at) { return x.exponent[at]; }
static inline double floor_at(const WideRow&, int) { return kZeroExponent; }
static inline double floor_of_products(const WideRow&, const WideRow&) { return kZeroExponent; }

static inline void add_row(WideRow& out, const WideRow& x, double log_weight) {
  const Split weight = split(log_weight);
  if (weight.exponent < kNothing) return;
  for (int k = 0; k < out.length; k += kLanes) {
    const vec here = load(out.exponent + k), there = load(x.exponent + k) + weight.exponent, top = max(here, there);
    const vec sum = load(out.value + k) * pow2(here - top) + load(x.value + k) * weight.value * pow2(there - top);
    store_wide(sum, top, out.value + k, out.exponent + k);
  }
}
static inline void add_inner_product(ScaledSum& sum, const WideRow& x, const WideRow& y) {
  for (int k = 0; k < x.length; k++)
    if (x.exponent[k] + y.exponent[k] > sum.exponent - 100) sum.add(x.value[k], y.value[k], x.exponent[k] + y.exponent[k]);
}
static inline void multiply_table(WideRow& x, const double* log_f, int lo, int64_t length, double power) {
  for (int k = 0; k < x.length; k++) {
    const Split f = lo + k < length ? split(log_f[lo + k]) : Split{0.0, kZeroExponent};
    put_entry(x, k, x.value[k] * f.value, x.exponent[k] + f.exponent - power * (lo + k));
  }
}
static inline void collapse(Worker& w, WideRow& x) {
  ScaledSum sum;
  for (int k = 0; k < x.length; k++) sum.add(x.value[k], 1.0, x.exponent[k]);
  make_zero(w, 1, x);
  put_entry(x, 0, sum.value, sum.exponent);
}
static inline WideRow spread_out(Worker& w, const WideRow& g, int width) {
  WideRow out;
  make_zero(w, width, out);
  fill(out.value, width, g.value[0]);
  fill(out.exponent, width, g.exponent[0]);
  return out;
}

struct WideProducts {
  int needed;
  double* scratch;
  WideProducts(Worker& w, int counts) : needed(counts), scratch(arena_take(w.arena, wide_scratch(counts))) {}

  int begin(int first) const { return first; }
  WideRow product(Worker& w, const WideRow& x, const WideRow& y, int first, int last) const {
    WideRow out;
    make_zero(w, last - first + 1, out);
    convolve_wide({x.value, x.exponent, x.length}, {y.value, y.exponent, y.length}, first, last + 1, out.value, out.exponent, scratch);
    fill(out.value + out.length, kTileOutputs, 0.0);
    fill(out.exponent + out.length, kTileOutputs, kZeroExponent);
    return out;
  }
  bool in_one_tile(int, int) const { return false; }
  WideRow moved(Worker& w, const WideRow& g, int offset) const { return wide_part(w, g, offset, needed); }
  WideRow adjoint(Worker& w, const WideRow& g, const WideRow& u, int n, bool) const {
    WideRow back;
    make_zero(w, u.length, back);
    for (int k = 0; k < u.length; k++) {
      back.value[k] = u.value[u.length - 1 - k];
      back.exponent[k] = u.exponent[u.length - 1 - k];
    }
    return product(w, back, g, u.length - 1, u.length - 2 + n);
  }
};

}  // namespace tallytree::TT_LEVEL
