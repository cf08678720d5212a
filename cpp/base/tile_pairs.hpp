// Which pairs of tiles matter for an output tile of a convolution (wide.hpp).
//
// There are as many pairs as tiles, and most are far too small. Looking at the largest exponents of whole strips of
// tiles first finds those that are not.
#pragma once
#include "base/exponent.hpp"

namespace tallytree::TT_LEVEL {

constexpr int kTile = 16;
constexpr int kTileRows = kTile / kLanes;
constexpr double kSkip = -68.0;  // tile pairs this far (log2) below the smallest output are skipped
constexpr int kStrip = 32;  // tiles
constexpr int kWorthStrips = 4 * kStrip;

// The exponents of the tile pairs (I, K-I), I0 <= I <= I1, in pair[I]; returns their largest.
static inline double pair_exponents(const double* a, const double* partner, int I0, int I1, double* pair) {
  vec tops = splat(2 * kZeroExponent);
  int I = I0;
  for (; I + kLanes <= I1 + 1; I += kLanes) {
    const vec e = load(a + I) + load(partner + I);
    store(pair + I, e);
    tops = max(tops, e);
  }
  double top = max_lanes(tops);
  for (; I <= I1; I++) {
    pair[I] = a[I] + partner[I];
    top = max(top, pair[I]);
  }
  return top;
}

// sum_i a[i] * q[t - i] for the 16 outputs t; q points at the segment's entry 0.
static inline void tile_product(const double* a, const double* q, vec* sum) {
  vec even[kTileRows] = {}, odd[kTileRows] = {};
#pragma GCC unroll 8
  for (int i = 0; i < kTile; i += 2) {
    const vec w = splat(a[i]), x = splat(a[i + 1]);
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; r++) {
      even[r] += load(q - i + r * kLanes) * w;
      odd[r] += load(q - i - 1 + r * kLanes) * x;
    }
  }
  for (int r = 0; r < kTileRows; r++) sum[r] = even[r] + odd[r];
}

// Largest exponents of strips of tiles, with zeros before the first and after the last; and the smallest above zero.
struct Strips {
  int width;  // tiles of a strip
  double* largest;
  double smallest;
};
static inline Strips make_strips(const double* exponent, int tiles, int width, double* room) {
  const int strips = (tiles + width - 1) / width;
  Strips s = {width, room + 1, __builtin_inf()};
  s.largest[-1] = s.largest[strips] = s.largest[strips + 1] = kZeroExponent;
  for (int S = 0; S < strips; S++) {
    double top = kZeroExponent;
    for (int t = S * width; t < min(tiles, (S + 1) * width); t++) {
      top = max(top, exponent[t]);
      if (exponent[t] > kZeroExponent / 2) s.smallest = min(s.smallest, exponent[t]);
    }
    s.largest[S] = top;
  }
  return s;
}

// The pairs of one output tile, strip by strip: most strips are known to be too small before any pair is looked at.
struct Pairs {
  const double *a, *partner;
  int width, I0, I1;
  double *exponent, *ceiling, *looked_at;  // by tile of a; by strip of a: upper bound, then the largest; 0 or 1

  int first_strip() const { return I0 / width; }
  int last_strip() const { return I1 / width; }
  int begin(int S) const { return max(I0, S * width); }
  int end(int S) const { return min(I1 + 1, (S + 1) * width); }
  void look(int S) const {
    if (looked_at[S] != 0) return;
    looked_at[S] = 1;
    ceiling[S] = pair_exponents(a, partner, begin(S), end(S) - 1, exponent);
  }

  // The largest exponent of all pairs. `of_partner` are the strips of what `partner` is a part of, from `shift` on.
  double find_top(const Strips& of_a, const Strips& of_partner, int shift) const {
    int best = first_strip();
    for (int S = first_strip(); S <= last_strip(); S++) {
      const int at = shift + S * width, T = at >= 0 ? at / width : -1;
      ceiling[S] = of_a.largest[S] + max(of_partner.largest[T], of_partner.largest[T + 1]);
      looked_at[S] = 0;
      if (ceiling[S] > ceiling[best]) best = S;
    }
    look(best);
    double top = ceiling[best];
    for (int S = first_strip(); S <= last_strip(); S++) {
      if (ceiling[S] <= top) continue;
      look(S);
      top = max(top, ceiling[S]);
    }
    return top;
  }
};

}  // namespace tallytree::TT_LEVEL
