// Vectors with one exponent per entry: entry j is value[j] * 2^exponent[j], value in [1, 2) or 0.
//
// Nothing is lost to range, whatever the spread inside a vector. Short sums of products are formed in two sweeps: the
// first finds, per output, the largest exponent of a term (a max-plus convolution), the second adds the terms
// relative to it. Long ones are added tile pair by tile pair, in plain numbers where the entries of the two tiles are not too
// far apart; pairs too small to matter for the smallest output of a tile are skipped, which is most of them when the entries
// spread over many orders of magnitude.
#pragma once
#include "base/convolve.hpp"
#include "base/tile_pairs.hpp"

namespace tallytree::TT_LEVEL {

// Terms below 2^kNegligible of the largest cannot change a sum of fewer than 2^40 of them.
constexpr double kNegligible = -100.0;

// By builtins, because the header of the intrinsics takes longer to read than this file takes to compile.
static inline bool any_at_least(vec x, vec bound) {
#if TT_LANES == 8 && __has_builtin(__builtin_ia32_cmppd512_mask)
  constexpr int kGreaterOrEqual = 0x1d, kRoundAsUsual = 4;
  return __builtin_ia32_cmppd512_mask(x, bound, kGreaterOrEqual, -1, kRoundAsUsual) != 0;
#elif TT_LANES == 4 && __has_builtin(__builtin_ia32_movmskpd256)
  return __builtin_ia32_movmskpd256((vec)(x >= bound)) != 0;
#elif TT_LANES == 2 && __has_builtin(__builtin_ia32_movmskpd)
  return __builtin_ia32_movmskpd((vec)(x >= bound)) != 0;
#else
  for (int j = 0; j < kLanes; j++)
    if (x[j] >= bound[j]) return true;
  return false;
#endif
}

// Brings sums s * 2^e to the normal form; zero gets kZeroExponent.
static inline void store_wide(vec sum, vec exponent, double* value, double* out_exponent) {
  const auto zero = (sum <= 0.0) | (exponent < kZeroExponent / 2);
  store(value, zero ? vec{} : mantissa_of(sum));
  store(out_exponent, zero ? splat(kZeroExponent) : exponent + exponent_of(sum));
}

// Sums of outputs t over i of w[i] * p[t + step * i], where p points at the entry for t = 0, i = 0, as total[r] * 2^top[r].
template <int rows, int step>
static inline void wide_sums(const double* w, const double* we, int i0, int i1, const double* p, const double* pe, vec* total,
                             vec* top) {
  for (int r = 0; r < rows; r++) top[r] = splat(3 * kZeroExponent), total[r] = vec{};
  for (int i = i0; i < i1; i++) {
    const vec e = splat(we[i]);
    const double* q = pe + (ptrdiff_t)step * i;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) top[r] = max(top[r], load(q + r * kLanes) + e);
  }
  // Adding kRoundingMagic + 1023 leaves the biased exponent in the low bits; shifted up, they are the bits of 2^x.
  const double bias = kRoundingMagic + 1023.0;
  for (int block = i0; block < i1; block += kBlock) {
    const int end = min(i1, block + kBlock);
    vec sum[rows] = {};
    for (int i = block; i < end; i++) {
      const vec e = splat(we[i]), m = splat(w[i]);
      const double *q = pe + (ptrdiff_t)step * i, *v = p + (ptrdiff_t)step * i;
#pragma GCC unroll 8
      for (int r = 0; r < rows; r++) {
        const vec x = load(q + r * kLanes) + e - top[r];
        if (!any_at_least(x, splat(kNegligible))) continue;
        const vec power = (vec)((ivec)(max(x, splat(-1022.0)) + bias) << 52);
        sum[r] += (load(v + r * kLanes) * m) * power;
      }
    }
    for (int r = 0; r < rows; r++) total[r] += sum[r];
  }
}
template <int rows, int step>
static inline void wide_tile(const double* w, const double* we, int i0, int i1, const double* p, const double* pe,
                             double* out, double* out_exponent) {
  vec total[rows], top[rows];
  wide_sums<rows, step>(w, we, i0, i1, p, pe, total, top);
  for (int r = 0; r < rows; r++) store_wide(total[r], top[r], out + r * kLanes, out_exponent + r * kLanes);
}

// Copies with kPad zeros on either side; returns where the entries begin.
static inline double* padded_copy(const double* from, int n, double pad, double* to) {
  fill(to, kPad, pad);
  std::memcpy(to + kPad, from, sizeof(double) * (size_t)n);
  fill(to + kPad + n, kPad, pad);
  return to + kPad;
}

struct Wide {
  const double *value, *exponent;
  int length;
};
// A copy with kPad zeros on either side; takes its memory from `room`.
static inline Wide padded(Wide x, double*& room) {
  double *value = room, *exponent = value + x.length + 2 * kPad;
  room = exponent + x.length + 2 * kPad;
  return {padded_copy(x.value, x.length, 0.0, value), padded_copy(x.exponent, x.length, kZeroExponent, exponent), x.length};
}

// Tile t has the entries 16 t + first, ... of a padded vector, so many of them, under one exponent.
struct WideTiles {
  double *value, *exponent, *least;  // least: the exponent of the smallest positive entry as it is stored; 0 without one
  int count;
};
// With `turned` the exponents of the last tile come first, so that the partners of ascending tiles lie in ascending order.
template <int entries>
static inline WideTiles tiles_of(Wide x, int first, int count, bool turned, double*& room) {
  const WideTiles tiles = {room, room + entries * count, room + (entries + 1) * count, count};
  room += (entries + 2) * count;
  for (int t = 0; t < count; t++) {
    const double *value = x.value + (t * kTile + first), *exponent = x.exponent + (t * kTile + first);
    vec top = splat(kZeroExponent), least = vec{};
    for (int k = 0; k < entries; k += kLanes) top = max(top, load(exponent + k));
    const double largest = max_lanes(top);
    for (int k = 0; k < entries; k += kLanes) {
      const vec v = load(value + k), below = load(exponent + k) - largest;
      store(tiles.value + t * entries + k, v * pow2(below));
      least = v > 0.0 ? min(least, below) : least;
    }
    tiles.exponent[turned ? count - 1 - t : t] = largest;
    tiles.least[turned ? count - 1 - t : t] = min_lanes(least);
  }
  return tiles;
}

// Sixteen sums value[r] * 2^exponent[r], exponent at least that of each.
struct TileSums {
  vec value[kTileRows], exponent[kTileRows];

  TileSums() {
    for (int r = 0; r < kTileRows; r++) value[r] = vec{}, exponent[r] = splat(2 * kZeroExponent);
  }
  // Zeros and numbers of at least 1, times powers of two.
  void add(const vec* x, const vec* power) {
    for (int r = 0; r < kTileRows; r++) {
      const vec both = max(exponent[r], power[r]);
      value[r] = value[r] * pow2(exponent[r] - both) + x[r] * pow2(power[r] - both);
      exponent[r] = both;
    }
  }
  // Numbers down to 2^-1000 times one power of two.
  void add_plain(const vec* x, double power) {
    vec mantissa[kTileRows], top[kTileRows];
    for (int r = 0; r < kTileRows; r++) {
      mantissa[r] = x[r] > 0.0 ? mantissa_of(x[r]) : vec{};
      top[r] = x[r] > 0.0 ? exponent_of(x[r]) + power : splat(2 * kZeroExponent);
    }
    add(mantissa, top);
  }
  // The exponent of the smallest of the sums from .. to - 1.
  double smallest(int from, int to) const {
    double each[kTile], least = __builtin_inf();
    for (int r = 0; r < kTileRows; r++)
      store(each + r * kLanes, value[r] > 0.0 ? exponent[r] + exponent_of(value[r]) : splat(2 * kZeroExponent));
    for (int k = from; k < to; k++) least = min(least, each[k]);
    return least;
  }
};

// A convolution of two padded vectors in tiles of sixteen outputs.
struct TiledProduct {
  Wide a, b;
  WideTiles x, y;  // tiles of a, and what each of them meets in b: entries 16 J - 15 .. 16 J + 15
  Strips of_x, of_y;
  double* room;

  TiledProduct(Wide shorter, Wide longer, double* memory) : a(padded(shorter, memory)), b(padded(longer, memory)) {
    const int tiles = (a.length + kTile - 1) / kTile, segments = (b.length + kTile - 1) / kTile + 1;
    x = tiles_of<kTile>(a, 0, tiles, false, memory);
    y = tiles_of<2 * kTile>(b, -15, segments, true, memory);
    const int width = tiles > kWorthStrips ? kStrip : segments;  // of a few tiles one strip is made
    of_x = make_strips(x.exponent, tiles, width, memory);
    of_y = make_strips(y.exponent, segments, width, memory += tiles / kStrip + 4);
    room = memory + segments / kStrip + 4;
  }

  // Tile K, of which the entries from .. to - 1 are wanted.
  TileSums tile(int K, int from, int to) const {
    const int I0 = max(0, K - y.count + 1), I1 = min(x.count - 1, K), shift = y.count - 1 - K, strips = x.count / kStrip + 1;
    const Pairs pairs = {x.exponent, y.exponent + shift, of_x.width, I0, I1, room + 2 * strips, room, room + strips};
    const double *pair = pairs.exponent, top = pairs.find_top(of_x, of_y, shift), low = of_x.smallest + of_y.smallest;
    TileSums sums;
    if (top < kZeroExponent / 2) return sums;
    // Pairs in falling bands of exponents, until the smallest output cannot be changed by what is left.
    for (double above = __builtin_inf(), band = top + kSkip;;) {
      vec plain[kTileRows] = {};
      for (int S = pairs.first_strip(); S <= pairs.last_strip(); S++) {
        if (pairs.ceiling[S] < band) continue;
        pairs.look(S);
        for (int I = pairs.begin(S); I < pairs.end(S); I++) {
          if (pair[I] < band || pair[I] >= above) continue;
          const double ceiling = min(above, top);
          vec terms[kTileRows], power[kTileRows];
          if (x.least[I] + y.least[shift + I] + pair[I] - ceiling > -1000) {
            tile_product(x.value + (ptrdiff_t)I * kTile, y.value + (ptrdiff_t)(K - I) * 2 * kTile + 15, terms);
            for (int r = 0; r < kTileRows; r++) plain[r] += terms[r] * pow2(pair[I] - ceiling);
          } else {
            wide_sums<kTileRows, -1>(a.value, a.exponent, I * kTile, min(a.length, (I + 1) * kTile), b.value + K * kTile,
                                     b.exponent + K * kTile, terms, power);
            sums.add(terms, power);
          }
        }
      }
      sums.add_plain(plain, min(above, top));
      if (band <= low) return sums;
      // A pair contributes at most 2^(its exponent + 6) to an output.
      const double least = sums.smallest(from, to), next = least > kZeroExponent / 2 ? least - 6 + kSkip : low;
      if (next >= band) return sums;
      above = band;
      band = max(next, low);
    }
  }
};

constexpr int kWorthTiles = 48;  // entries of the shorter vector

// Doubles of memory that a product of vectors of these lengths needs.
static inline ptrdiff_t wide_room(ptrdiff_t na, ptrdiff_t nb) { return 6 * (na + nb) + 8 * kPad + 512; }

// out[k - first] = sum_i a[i] b[k-i] for first <= k < last. Writes up to kTileOutputs - 1 entries beyond.
static inline void convolve_wide(Wide a, Wide b, int first, int last, double* out, double* out_exponent, double* room) {
  if (a.length > b.length) return convolve_wide(b, a, first, last, out, out_exponent, room);
  if (a.length < kWorthTiles) {
    const Wide p = padded(b, room);
    return in_output_tiles(last - first, a.length, [&]<int rows>(int at) {
      const int k = first + at;
      wide_tile<rows, -1>(a.value, a.exponent, max(0, k - b.length + 1), min(a.length, k + rows * kLanes), p.value + k,
                          p.exponent + k, out + at, out_exponent + at);
    });
  }
  const TiledProduct product(a, b, room);
  for (int K = first / kTile; K * kTile < last; K++) {
    const int from = max(0, first - K * kTile), to = min(kTile, last - K * kTile), at = K * kTile + from - first;
    const TileSums sums = product.tile(K, from, to);
    double value[kTile], exponent[kTile];
    for (int r = 0; r < kTileRows; r++)
      store_wide(sums.value[r], sums.exponent[r], value + r * kLanes, exponent + r * kLanes);
    std::memcpy(out + at, value + from, sizeof(double) * (size_t)(to - from));
    std::memcpy(out_exponent + at, exponent + from, sizeof(double) * (size_t)(to - from));
    let_signals_through_after(a.length);
  }
}

// out[k] = sum_j g[k+j] u[j] for k < count. Reads g, and writes out, up to kTileOutputs - 1 entries beyond.
static inline void correlate_wide(const double* g, const double* g_exponent, Wide u, double* out, double* out_exponent,
                                  int count, double* room) {
  if (min(u.length, count) < kWorthTiles)
    return in_output_tiles(count, u.length, [&]<int rows>(int k) {
      wide_tile<rows, 1>(u.value, u.exponent, 0, u.length, g + k, g_exponent + k, out + k, out_exponent + k);
    });
  double *value = room, *exponent = room + u.length;
  for (int j = 0; j < u.length; j++) {
    value[j] = u.value[u.length - 1 - j];
    exponent[j] = u.exponent[u.length - 1 - j];
  }
  convolve_wide({value, exponent, u.length}, {g, g_exponent, u.length + count - 1}, u.length - 1, u.length - 1 + count, out,
                out_exponent, exponent + u.length);
}

// Subtracts the largest exponent from all; returns it, or 0 for the zero vector. Padding up to whole vectors is
// set to zero.
static inline double take_out_scale(double* value, double* exponent, int n) {
  fill(value + n, kLanes, 0.0);
  fill(exponent + n, kLanes, kZeroExponent);
  vec top = splat(kZeroExponent);
  for (int j = 0; j < n; j += kLanes) top = max(top, load(exponent + j));
  const double largest = max_lanes(top);
  if (largest == kZeroExponent) return 0.0;
  for (int j = 0; j < n; j += kLanes) {
    const vec e = load(exponent + j);
    store(exponent + j, e == kZeroExponent ? e : e - largest);
  }
  return largest;
}

}  // namespace tallytree::TT_LEVEL
