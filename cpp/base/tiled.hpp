// Vectors in tiles of 16 entries with one exponent per tile: entry j is value[j] * 2^exponent[j / 16].
//
// Direct sums of positive terms, tile pair by tile pair. Pairs too small to matter for the smallest output of a tile
// are skipped, which is most of them when the entries spread over many orders of magnitude.
//
// The largest value of a tile is near 2^500, so that products of two stay below 2^1023 and entries 2^1500 apart fit
// into one tile; smaller ones become 0. Two records say what that may have done, each the
// log2 of a bound on the absolute error of the tile's entries (kZeroExponent: none). `floor` travels with the messages
// from node to node and bounds all losses so far; `fresh` has only those of the current operation, from which
// tiled_pass.cpp computes their weight in the final answer.
#pragma once
#include "base/convolve.hpp"
#include "base/tile_pairs.hpp"

namespace tallytree::TT_LEVEL {

constexpr int kTile = 16;
constexpr int kTileRows = kTile / kLanes;
constexpr double kCentre = 500.0;       // log2 of the largest value of a tile, rounded down
constexpr double kLeast = -1000.0;      // log2 of the smallest value kept
constexpr double kUnderflow = -1022.0;
constexpr double kNothing = kZeroExponent / 2;  // exponents and losses below are those of zero
constexpr double kSkip = -68.0;         // tile pairs this far (log2) below the smallest output are skipped

struct Tiled {
  double* value;     // tiles * 16
  double* exponent;  // per tile; kZeroExponent: all entries are 0
  double *floor, *fresh;
  double* least;     // per tile: log2 of its smallest positive value, rounded down; 0 if there is none
  int length;
  bool lossy;        // some floor is above kZeroExponent
  bool has_fresh;    // likewise; false for messages of earlier nodes

  int tiles() const { return (length + kTile - 1) / kTile; }
};

static inline Tiled new_tiled(Worker& worker, int length) {
  const size_t tiles = (size_t)(length + kTile - 1) / kTile;
  double* p = arena_take(worker.arena, tiles * (kTile + 4));
  return {p, p + tiles * kTile, p + tiles * (kTile + 1), p + tiles * (kTile + 2), p + tiles * (kTile + 3),
          length, false, false};
}

// x * 2^n for |n| <= 2000: one factor 2^n would not be a number.
static inline vec scale_by(vec x, double n) {
  const double half = n < 0 ? max(n, -1000.0) : min(n, 1000.0);
  return x * pow2(half) * pow2(max(n - half, -1022.0));
}

// The same for n <= 0, 0 where it is far too small.
static inline vec scale_down(vec x, double n) {
  return n > -1000.0 ? x * pow2(n) : n > -2000.0 ? scale_by(x, n) : vec{};
}

struct Loss {
  double floor = kZeroExponent, fresh = kZeroExponent;

  void add(double error) {
    floor = max(floor, error);
    fresh = max(fresh, error);
  }
  // Losses in tile i of x and tile j of y, times whatever they meet in the other.
  template <class X, class Y>
  void inherit(const X& x, int i, const Y& y, int j) {
    const double size_x = max(x.exponent[i] + kCentre, x.floor[i]), size_y = max(y.exponent[j] + kCentre, y.floor[j]);
    if (x.lossy || y.lossy) floor = max(floor, 6 + max(x.floor[i] + size_y, size_x + y.floor[j]));
    if (x.has_fresh) fresh = max(fresh, 6 + x.fresh[i] + size_y);
    if (y.has_fresh) fresh = max(fresh, 6 + size_x + y.fresh[j]);
  }
  // Errors this far below every entry of a tile change none of them.
  void drop_negligible(double smallest_exponent) {
    if (floor < smallest_exponent + kSkip) floor = kZeroExponent;
    if (fresh < smallest_exponent + kSkip) fresh = kZeroExponent;
  }
};

// Scales a tile so that its largest value is near 2^kCentre; drops what is too small for it.
static inline void settle_tile(Tiled& x, int tile, vec* v, double exponent, Loss loss) {
  vec top = {};
  for (int r = 0; r < kTileRows; r++) top = max(top, v[r]);
  const double largest = max_lanes(top);
  double* out = x.value + (ptrdiff_t)tile * kTile;
  if (!(largest > 0)) {
    for (int r = 0; r < kTileRows; r++) store(out + r * kLanes, vec{});
    x.exponent[tile] = kZeroExponent;
    x.least[tile] = 0;
  } else {
    const double shift = exponent_of(largest) - kCentre, tiny = pow2(kLeast);
    vec least = splat(pow2(kCentre));
    ivec dropped = {};
    for (int r = 0; r < kTileRows; r++) {
      const vec scaled = scale_by(v[r], -shift);
      const auto small = scaled < tiny;
      dropped |= small & (v[r] > 0.0);
      least = small ? least : min(least, scaled);
      store(out + r * kLanes, small ? vec{} : scaled);
    }
    x.exponent[tile] = exponent + shift;
    x.least[tile] = exponent_of(min_lanes(least));
    for (int j = 0; j < kLanes; j++)
      if (dropped[j]) loss.add(x.exponent[tile] + kLeast);
  }
  x.floor[tile] = loss.floor;
  x.fresh[tile] = loss.fresh;
  x.lossy |= loss.floor > kNothing;
  x.has_fresh |= loss.fresh > kNothing;
}

// A vector of entry(0), ..., entry(length - 1).
template <class Entry>
static inline Tiled tiled_of(Worker& worker, int length, const Entry& entry) {
  Tiled out = new_tiled(worker, length);
  for (int t = 0; t < out.tiles(); t++) {
    vec v[kTileRows] = {};
    for (int k = 0; k < kTile && t * kTile + k < length; k++) v[k / kLanes][k % kLanes] = entry(t * kTile + k);
    settle_tile(out, t, v, 0.0, Loss());
  }
  return out;
}

// A copy in which nothing has been lost in the current operation.
static inline Tiled settled_copy(Worker& worker, const Tiled& x) {
  Tiled out = new_tiled(worker, x.length);
  std::memcpy(out.value, x.value, sizeof(double) * (size_t)x.tiles() * kTile);
  std::memcpy(out.exponent, x.exponent, sizeof(double) * (size_t)x.tiles());
  std::memcpy(out.floor, x.floor, sizeof(double) * (size_t)x.tiles());
  std::memcpy(out.least, x.least, sizeof(double) * (size_t)x.tiles());
  fill(out.fresh, x.tiles(), kZeroExponent);
  out.lossy = x.lossy;
  return out;
}

// The power of two that makes the largest entry about 1; kNothing or less: there is none.
static inline double scale_of(const Tiled& x) {
  double top = kZeroExponent;
  for (int t = 0; t < x.tiles(); t++) top = max(top, x.exponent[t]);
  return top + kCentre;
}
// x times 2^-shift.
static inline void take_out(Tiled& x, double shift) {
  double* const parts[] = {x.exponent, x.floor, x.fresh};
  for (double* part : parts)
    for (int t = 0; t < x.tiles(); t++)
      if (part[t] > kNothing) part[t] -= shift;
}

// x(j) *= f(j), tile by tile; factor(j, exponent) gives f(j), f(j + 1), ... of one vector, zero beyond the end of x.
template <class Factor>
static inline void multiply_by(Tiled& x, const Factor& factor) {
  for (int t = 0; t < x.tiles(); t++) {
    if (x.exponent[t] < kNothing && x.floor[t] < kNothing) continue;
    double* p = x.value + (ptrdiff_t)t * kTile;
    vec value[kTileRows], exponent[kTileRows], top = splat(2 * kZeroExponent);
    vec largest_f = splat(kZeroExponent), least = splat(-kZeroExponent);
    ivec hidden = {};  // zeros that f does not explain
    for (int r = 0; r < kTileRows; r++) {
      vec fe;
      const vec f = factor(t * kTile + r * kLanes, fe);
      value[r] = load(p + r * kLanes) * f;
      const auto zero = value[r] <= 0.0;
      exponent[r] = zero ? splat(2 * kZeroExponent) : fe;
      top = max(top, zero ? exponent[r] : fe + exponent_of(value[r]));
      largest_f = max(largest_f, fe);
      least = zero ? least : min(least, fe + exponent_of(value[r]));
      hidden |= zero & (f > 0.0);
    }
    // Scaled so that the largest product is near 2^kCentre: a large f on a small entry cannot overflow.
    const double e = max_lanes(top) - kCentre, tile_exponent = x.exponent[t] + e;
    Loss loss;
    if (x.floor[t] > kNothing) loss.floor = x.floor[t] + max_lanes(largest_f) + 1;
    if (x.fresh[t] > kNothing) loss.fresh = x.fresh[t] + max_lanes(largest_f) + 1;
    if (!any(hidden)) loss.drop_negligible(x.exponent[t] + min_lanes(least));
    bool vanished = false;
    for (int r = 0; r < kTileRows; r++) {
      const vec shift = exponent[r] - e;
      vanished |= any((exponent_of(value[r]) + shift < kLeast) & (value[r] > 0.0));
      const vec half = max(min(shift, splat(1000.0)), splat(-1000.0));
      value[r] = value[r] * pow2(half) * pow2(max(shift - half, splat(-1022.0)));
    }
    if (vanished) loss.add(tile_exponent + kLeast + 1);
    settle_tile(x, t, value, tile_exponent, loss);
  }
}

// A sum of positive terms x y 2^e of any size.
struct ScaledSum {
  double value = 0, exponent = kZeroExponent;

  void add(double x, double y, double e) {
    if (!(x > 0 && y > 0)) return;
    const double ex = exponent_of(x), ey = exponent_of(y);
    e += ex + ey;
    if (e > exponent) {
      value *= pow2(max(exponent - e, -1023.0));
      exponent = e;
    }
    value += (x * pow2(-ex)) * (y * pow2(-ey)) * pow2(max(e - exponent, -1023.0));
  }
  double log2() const { return value > 0 ? exponent + real::log2(value) : kZeroExponent; }
  double log() const { return value > 0 ? exponent * kLn2High + (exponent * kLn2Low + real::log(value)) : -__builtin_inf(); }
};

// Two neighbouring pieces of one tile, brought to a common exponent keeping what one tile can hold.
struct TileSide {
  vec value[kTileRows];
  double exponent, floor;
};
static inline void combine_pieces(Tiled& out, int tile, const TileSide& a, const TileSide& b) {
  vec top_a = {}, top_b = {};
  for (int r = 0; r < kTileRows; r++) {
    top_a = max(top_a, a.value[r]);
    top_b = max(top_b, b.value[r]);
  }
  const double ma = max_lanes(top_a), mb = max_lanes(top_b);
  const double ea = ma > 0 ? a.exponent + exponent_of(ma) : kZeroExponent;
  const double eb = mb > 0 ? b.exponent + exponent_of(mb) : kZeroExponent;
  const double e = max(ea, eb);
  const double to = e - kCentre, gone = e + kLeast - kCentre;  // pieces below `gone` vanish whole
  Loss loss;
  loss.floor = max(a.floor, b.floor);
  vec v[kTileRows] = {};
  const auto add = [&](const TileSide& x, double largest) {
    if (largest < gone) return loss.add(largest + 1);
    ivec vanished = {};
    for (int r = 0; r < kTileRows; r++) {
      const vec moved = scale_by(x.value[r], x.exponent - to);
      vanished |= (moved <= 0.0) & (x.value[r] > 0.0);
      v[r] += moved;
    }
    if (any(vanished)) loss.add(to + kUnderflow);
  };
  if (ma > 0) add(a, ea);
  if (mb > 0) add(b, eb);
  settle_tile(out, tile, v, to, loss);
}

// Entries from[first .. first+15] as two pieces; entries outside 0..length-1 are 0. With `step` -1 they are read
// backwards: from[first], from[first-1], ...
static inline void cut_pieces(const Tiled& from, int first, int step, TileSide& a, TileSide& b) {
  double buffer_a[kTile] = {}, buffer_b[kTile] = {};
  a.exponent = b.exponent = a.floor = b.floor = kZeroExponent;
  const int tile_a = first >= 0 ? first / kTile : -1;
  for (int t = 0; t < kTile; t++) {
    const int j = first + step * t;
    if (j < 0 || j >= from.length) continue;
    (j / kTile == tile_a ? buffer_a : buffer_b)[t] = from.value[j];
  }
  const int tile_b = tile_a + step;
  if (tile_a >= 0 && tile_a < from.tiles()) a.exponent = from.exponent[tile_a], a.floor = from.floor[tile_a];
  if (tile_b >= 0 && tile_b < from.tiles()) b.exponent = from.exponent[tile_b], b.floor = from.floor[tile_b];
  for (int r = 0; r < kTileRows; r++) {
    a.value[r] = load(buffer_a + r * kLanes);
    b.value[r] = load(buffer_b + r * kLanes);
  }
}

// Entry k of the result is from[first + step * k], k < length; `first` may be any integer.
static inline Tiled retile(Worker& worker, const Tiled& from, int first, int step, int length) {
  Tiled out = new_tiled(worker, length);
  for (int t = 0; t < out.tiles(); t++) {
    TileSide a, b;
    cut_pieces(from, first + step * t * kTile, step, a, b);
    combine_pieces(out, t, a, b);
  }
  return out;
}

// What a tile of a meets in b: entries 16J-15 .. 16J+15 under one exponent, for J = 0 .. tiles of b. Exponents and
// floors are stored last J first, so that the partners of ascending tiles of a lie in ascending order.
struct Segments {
  double *value, *exponent, *least, *floor, *fresh;
  int last;
  bool lossy, has_fresh;
};

// `value` holds 32 (tiles + 1) doubles, `small` four times tiles + 1.
static inline Segments make_segments(const Tiled& b, double* value, double* small) {
  const int tiles = b.tiles(), n = tiles + 1;
  const Segments s = {value, small, small + n, small + 2 * n, small + 3 * n, tiles, b.lossy, b.has_fresh};
  for (int J = 0; J <= tiles; J++) {
    const double e0 = J < tiles ? b.exponent[J] : kZeroExponent, e1 = J > 0 ? b.exponent[J - 1] : kZeroExponent;
    const double e = max(e0, e1);
    double* q = value + (ptrdiff_t)J * 2 * kTile;  // q[15 + d] = b[16 J + d]
    for (int r = 0; r < kTileRows; r++) {
      vec below = {}, here = {};
      if (J > 0) below = scale_down(load(b.value + (ptrdiff_t)(J - 1) * kTile + r * kLanes), e1 - e);
      if (J < tiles) here = scale_down(load(b.value + (ptrdiff_t)J * kTile + r * kLanes), e0 - e);
      // Entry 0 of the tile below would land at q[-1]: it is not met, and the store of `here` follows at q[15].
      if (r == 0) {
        for (int j = 1; j < kLanes; j++) q[j - 1] = below[j];
      } else {
        store(q + r * kLanes - 1, below);
      }
      store(q + 15 + r * kLanes, here);
    }
    s.exponent[tiles - J] = e;
    s.least[tiles - J] = min(e0 > kNothing ? e0 - e + b.least[J] : 0.0,
                           e1 > kNothing ? e1 - e + b.least[J - 1] : 0.0);
    s.floor[tiles - J] = max(J < tiles ? b.floor[J] : kZeroExponent, J > 0 ? b.floor[J - 1] : kZeroExponent);
    s.fresh[tiles - J] = max(J < tiles ? b.fresh[J] : kZeroExponent, J > 0 ? b.fresh[J - 1] : kZeroExponent);
  }
  return s;
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

static inline double smallest_entry(const vec* sum, int from, int to) {
  double buffer[kTile];
  for (int r = 0; r < kTileRows; r++) store(buffer + r * kLanes, sum[r]);
  double smallest = __builtin_inf();
  for (int k = from; k < to; k++) smallest = min(smallest, buffer[k]);
  return smallest;
}

// Tile K of a * b, as tile `tile` of out. Only its entries from .. to-1 are wanted, the rest become 0.
static inline void tile_of_convolution(const Tiled& a, const Segments& b, const Strips& of_a, const Strips& of_b, int K,
                                       int from, int to, double* room, Tiled& out, int tile) {
  const int I0 = max(0, K - b.last), I1 = min(a.tiles() - 1, K), shift = b.last - K;
  const int strips = a.tiles() / kStrip + 1;
  const Pairs pairs = {a.exponent, b.exponent + shift, of_a.width, I0, I1, room + 2 * strips, room, room + strips};
  const double *pair = pairs.exponent, top = pairs.find_top(of_a, of_b, shift), low = of_a.smallest + of_b.smallest;
  double smallest = 0;
  Loss loss;
  vec sum[kTileRows] = {};
  if (top > kNothing) {
    // Pairs in falling bands of exponents, until the smallest output cannot be changed by what is left.
    double above = __builtin_inf(), band = top + kSkip;
    for (;;) {
      for (int S = pairs.first_strip(); S <= pairs.last_strip(); S++) {
        if (pairs.ceiling[S] < band) continue;
        pairs.look(S);
        for (int I = pairs.begin(S); I < pairs.end(S); I++) {
          if (pair[I] < band || pair[I] >= above) continue;
          vec x[kTileRows];
          tile_product(a.value + (ptrdiff_t)I * kTile, b.value + (ptrdiff_t)(K - I) * 2 * kTile + 15, x);
          for (int r = 0; r < kTileRows; r++) sum[r] += scale_down(x[r], pair[I] - top);
          // What underflow can have done to an entry of the segment, to a product, and to a scaled product.
          const double least = a.least[I] + b.least[shift + I];
          if (b.least[shift + I] < kUnderflow) loss.add(pair[I] + kCentre + kUnderflow + 6);
          if (least < kUnderflow) loss.add(pair[I] + kUnderflow + 6);
          if (least + pair[I] - top < kUnderflow) loss.add(top + kUnderflow + 6);
        }
      }
      smallest = smallest_entry(sum, from, to);
      if (band <= low) break;
      // A pair contributes at most 2^(its exponent + 2 kCentre + 6) to an output.
      const double next = smallest > 0 ? top + exponent_of(smallest) - 2 * kCentre - 6 + kSkip : low;
      if (next >= band) break;
      above = band;
      band = max(next, low);
    }
  }
  if (a.lossy || b.lossy)  // also where every product vanished: what was lost may have been there
    for (int I = I0; I <= I1; I++) loss.inherit(a, I, b, shift + I);
  if (smallest > 0) loss.drop_negligible(top + exponent_of(smallest));
  double buffer[kTile];
  for (int r = 0; r < kTileRows; r++) store(buffer + r * kLanes, sum[r]);
  fill(buffer, from, 0.0);
  fill(buffer + to, kTile - to, 0.0);
  for (int r = 0; r < kTileRows; r++) sum[r] = load(buffer + r * kLanes);
  settle_tile(out, tile, sum, top, loss);
}

// Products that fit into one tile: entries of a and b under one exponent each.
static inline void settle_small(Tiled& out, double* value, int from, int to, const Tiled& a, const Tiled& b) {
  const double e = a.exponent[0] + b.exponent[0];
  fill(value, from, 0.0);
  fill(value + to, kTile - to, 0.0);
  vec v[kTileRows];
  for (int r = 0; r < kTileRows; r++) v[r] = load(value + r * kLanes);
  Loss loss;
  if (a.least[0] + b.least[0] < kUnderflow) loss.add(e + kUnderflow + 6);
  loss.inherit(a, 0, b, 0);
  if (loss.floor > kZeroExponent || loss.fresh > kZeroExponent) {
    const double smallest = smallest_entry(v, from, to);
    if (smallest > 0) loss.drop_negligible(e + exponent_of(smallest));
  }
  settle_tile(out, 0, v, e, loss);
}

// Entries first .. last of a * b, laid out from the multiple of 16 at or below `first`.
static inline Tiled convolve_tiled(Worker& worker, const Tiled& a_in, const Tiled& b_in, int first, int last,
                                   double* segments, double* small) {
  if (a_in.length + b_in.length - 1 <= kTile) {
    double c[kTile + kTileOutputs];
    convolve_direct(a_in.value, a_in.length, b_in.value, b_in.length, c, segments);
    Tiled out = new_tiled(worker, last + 1);
    settle_small(out, c, first, last + 1, a_in, b_in);
    return out;
  }
  const bool swap = a_in.tiles() > b_in.tiles();
  const Tiled &a = swap ? b_in : a_in, &b = swap ? a_in : b_in;
  const int K0 = first / kTile, n = b.tiles() + 1;
  const Segments s = make_segments(b, segments, small);
  double* room = small + 4 * n;  // strips take a thirty-second of what tiles do
  const int width = a.tiles() > kWorthStrips ? kStrip : n;  // of a few tiles one strip is made
  const Strips of_a = make_strips(a.exponent, a.tiles(), width, room);
  room += a.tiles() / kStrip + 4;
  const Strips of_b = make_strips(s.exponent, n, width, room);
  room += n / kStrip + 4;
  Tiled out = new_tiled(worker, last - K0 * kTile + 1);
  for (int t = 0; t < out.tiles(); t++) {
    const int start = (K0 + t) * kTile;
    tile_of_convolution(a, s, of_a, of_b, K0 + t, max(0, first - start), min(kTile, last + 1 - start), room, out, t);
    let_signals_through_after(a.length);
  }
  return out;
}

// u backwards: entry 16 tiles - 1 - j is u(j). Whole tiles turn around, so nothing is rescaled.
static inline Tiled reversed(Worker& worker, const Tiled& u) {
  const int tiles = u.tiles();
  Tiled out = new_tiled(worker, tiles * kTile);
  for (int t = 0; t < tiles; t++) {
    const int from = tiles - 1 - t;
    for (int k = 0; k < kTile; k++) out.value[t * kTile + k] = u.value[from * kTile + kTile - 1 - k];
    out.exponent[t] = u.exponent[from];
    out.floor[t] = u.floor[from];
    out.least[t] = u.least[from];
    out.fresh[t] = kZeroExponent;
  }
  out.lossy = u.lossy;
  return out;
}

// g moved by one entry, G(x) = g(x - 1), as correlate_tiled wants it; `offset` moves it back by more.
static inline Tiled shifted(Worker& worker, const Tiled& g, int offset, int length) {
  return retile(worker, g, offset - 1, 1, length + 1);
}

// out(k) = sum_j g(k + j) u(j) for k < n: the convolution of u backwards with G at 16 (tiles of u) + k.
static inline Tiled correlate_tiled(Worker& worker, const Tiled& G, const Tiled& u, int n, double* segments,
                                    double* small) {
  const int R = u.tiles() * kTile;
  return convolve_tiled(worker, reversed(worker, u), G, R, R + n - 1, segments, small);
}

// The same for a g of at most one tile; it is read in place.
static inline Tiled correlate_small(Worker& worker, const Tiled& g, const Tiled& u, int n) {
  double padded[kTile + kTileOutputs + kTile], c[kTile + kTileOutputs];
  std::memcpy(padded, g.value, sizeof(double) * kTile);
  fill(padded + kTile, kTileOutputs + kTile, 0.0);
  correlate_direct(padded, u.value, u.length, c, n);
  Tiled out = new_tiled(worker, n);
  settle_small(out, c, 0, n, g, u);
  return out;
}

}  // namespace tallytree::TT_LEVEL
