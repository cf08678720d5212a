// What the passes over clusters do to one row of counts in tiles; wide_rows.hpp has the same for an exponent per count.
#pragma once
#include "base/tiled.hpp"
#include "cluster/types.hpp"

namespace tallytree::TT_LEVEL {

// A logarithm as value times a power of two; what is lost to rounding is far below that of the logarithm.
struct Split {
  double value, exponent;
};
static inline Split split(double log_weight) {
  if (log_weight == -__builtin_inf()) return {0.0, kZeroExponent};
  const double n = (log_weight / kLn2 + kRoundingMagic) - kRoundingMagic;
  const double rough = (n * 0x1p-20 + kRoundingMagic - kRoundingMagic) * 0x1p20;  // its product with kLn2High is exact
  const double rest = ((log_weight - rough * kLn2High) - (n - rough) * kLn2High) - n * kLn2Low;
  return {exp_reduced(splat(rest))[0], n};
}

static inline void make_zero(Worker& w, int width, Tiled& out) {
  out = new_tiled(w, width);
  fill(out.value, (ptrdiff_t)out.tiles() * kTile, 0.0);
  fill(out.exponent, out.tiles(), kZeroExponent);
  fill(out.floor, 2 * (ptrdiff_t)out.tiles(), kZeroExponent);
  fill(out.least, out.tiles(), 0.0);
}
static inline TileSide side(const Tiled& x, int tile, Split weight) {
  TileSide out;
  for (int r = 0; r < kTileRows; r++) out.value[r] = load(x.value + (ptrdiff_t)tile * kTile + r * kLanes) * weight.value;
  const bool nothing = weight.exponent < kNothing;
  out.exponent = nothing || x.exponent[tile] < kNothing ? kZeroExponent : x.exponent[tile] + weight.exponent;
  out.floor = nothing || x.floor[tile] < kNothing ? kZeroExponent : x.floor[tile] + weight.exponent + 2;
  return out;
}

// out += e^log_weight x, tile by tile, in place.
static inline void add_row(Tiled& out, const Tiled& x, double log_weight) {
  const Split weight = split(log_weight);
  for (int t = 0; t < out.tiles(); t++) {
    const TileSide more = side(x, t, weight);
    if (more.exponent < kNothing && more.floor < kNothing) continue;
    const TileSide own = side(out, t, {1.0, 0.0});
    combine_pieces(out, t, own, more);
  }
}

static inline void add_inner_product(ScaledSum& sum, const Tiled& x, const Tiled& y) {
  for (int t = 0; t < x.tiles(); t++) {
    const double e = x.exponent[t] + y.exponent[t];
    if (e < kNothing || e + 2 * kCentre + 8 < sum.exponent - 80) continue;  // a tile adds less than 2^(e + 2 kCentre + 6)
    for (int k = t * kTile; k < (t + 1) * kTile; k++) sum.add(x.value[k], y.value[k], e);
  }
}

// x(k) *= f(lo + k) 2^(-power (lo + k)), f given by its logarithms.
static inline void multiply_table(Tiled& x, const double* log_f, int lo, int64_t length, double power) {
  const ptrdiff_t end = length - lo < x.length ? length - lo : x.length;
  multiply_by(x, [&](int j, vec& e) {
    const vec f = exp_split_or_zero(load_up_to(log_f + lo + j, end - j, -__builtin_inf()), e);
    for (int l = 0; l < kLanes; l++) e[l] -= e[l] > kNothing ? power * (double)(lo + j + l) : 0.0;
    return f;
  });
}

static inline void put_entry(Tiled& x, int at, double value, double exponent) {
  vec tile[kTileRows] = {};
  tile[at % kTile / kLanes][at % kLanes] = value;
  settle_tile(x, at / kTile, tile, exponent, Loss());
}
static inline double exponent_at(const Tiled& x, int at) { return x.exponent[at / kTile]; }
static inline double floor_at(const Tiled& x, int at) { return x.floor[at / kTile]; }

// All counts as one.
static inline void collapse(Worker& w, Tiled& x) {
  ScaledSum sum;
  Loss loss;
  for (int t = 0; t < x.tiles(); t++) {
    if (x.floor[t] > kNothing) loss.floor = max(loss.floor, x.floor[t] + 4 + real::ceil(real::log2(x.tiles())));
    for (int k = t * kTile; k < (t + 1) * kTile; k++) sum.add(x.value[k], 1.0, x.exponent[t]);
  }
  make_zero(w, 1, x);
  vec tile[kTileRows] = {};
  tile[0][0] = sum.value;
  settle_tile(x, 0, tile, sum.value > 0 ? sum.exponent : 0.0, loss);
}
// One count as all of `width`.
static inline Tiled spread_out(Worker& w, const Tiled& g, int width) {
  Tiled out = tiled_of(w, width, [](int) { return 1.0; });
  for (int t = 0; t < out.tiles(); t++) {
    if (g.exponent[0] < kNothing) out.exponent[t] = kZeroExponent, fill(out.value + t * kTile, kTile, 0.0);
    else {
      out.exponent[t] += g.exponent[0] + kCentre;
      for (int k = 0; k < kTile; k++) out.value[t * kTile + k] *= g.value[0] * pow2(-kCentre);
    }
    out.floor[t] = g.floor[0] > kNothing ? g.floor[0] + 1 : kZeroExponent;
    out.lossy = g.lossy;
  }
  return out;
}
// log2 of what floors may add to any of the products of two rows.
static inline double floor_of_products(const Tiled& x, const Tiled& y) {
  double lost = kZeroExponent;
  for (int t = 0; t < x.tiles(); t++) {
    const double size_x = max(x.exponent[t] + kCentre + 1, x.floor[t]), size_y = max(y.exponent[t] + kCentre + 1, y.floor[t]);
    lost = max(lost, 1 + max(x.floor[t] + size_y, y.floor[t] + size_x));
  }
  return lost;
}

// Room for products of rows that have at most so many counts together.
struct TiledProducts {
  int needed;
  double *segments, *small;
  TiledProducts(Worker& w, int counts) : needed(counts) {
    const size_t tiles = (size_t)(counts / kTile + 8);
    segments = arena_take(w.arena, 34 * tiles + 256);
    small = arena_take(w.arena, 10 * tiles + 256);
  }
  // The count at which the rows of a product begin whose first one is wanted.
  int begin(int first) const { return needed <= kTile ? 0 : first / kTile * kTile; }
  Tiled product(Worker& w, const Tiled& x, const Tiled& y, int first, int last) const {
    return convolve_tiled(w, x, y, first, last, segments, small);
  }
  bool in_one_tile(int offset, int width) const { return needed <= kTile && offset == 0 && width <= kTile; }
  // g from count `offset` on, as `adjoint` wants it.
  Tiled moved(Worker& w, const Tiled& g, int offset) const {
    return in_one_tile(offset, g.length) ? g : shifted(w, g, offset, needed);
  }
  // out(k) = sum_j g(k + j) u(j) for k < n; `g` is moved.
  Tiled adjoint(Worker& w, const Tiled& g, const Tiled& u, int n, bool in_one) const {
    return in_one ? correlate_small(w, g, u, n) : correlate_tiled(w, g, u, n, segments, small);
  }
};

}  // namespace tallytree::TT_LEVEL
