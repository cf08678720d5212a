// Vectors with one exponent per entry: entry j is value[j] * 2^exponent[j], value in [1, 2) or 0.
//
// Nothing is lost to range, whatever the spread inside a vector. A sum of products is formed in two sweeps: the
// first finds, per output, the largest exponent of a term (a max-plus convolution), the second adds the terms
// relative to it.
#pragma once
#include "base/convolve.hpp"

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

// Terms i0 <= i < i1 of a tile of outputs t, w[i] * p[t + step * i], where p points at the entry for t = 0, i = 0: their largest
// exponents, and their sum relative to these.
template <int rows, int step>
static inline void raise_tops(const double* we, int i0, int i1, const double* pe, vec* top) {
  for (int i = i0; i < i1; i++) {
    const vec e = splat(we[i]);
    const double* q = pe + (ptrdiff_t)step * i;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) top[r] = max(top[r], load(q + r * kLanes) + e);
  }
}
template <int rows, int step>
static inline void add_terms(const double* w, const double* we, int i0, int i1, const double* p, const double* pe, const vec* top,
                             vec* total) {
  // Adding kRoundingMagic + 1023 leaves the biased exponent in the low bits; shifted up, they are the bits of 2^x.
  const double bias = kRoundingMagic + 1023.0;
  for (int block = i0; block < i1; block += kBlock) {
    const int end = min(i1, block + kBlock);
    vec sum[rows] = {};
    for (int i = block; i < end; i++) {
      const vec e = splat(we[i]), m = splat(w[i]);
      const double *q = pe + (ptrdiff_t)step * i, *v = p + (ptrdiff_t)step * i;
#pragma GCC unroll 4
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

// One tile of outputs from all terms.
template <int rows, int step>
static inline void wide_tile(const double* w, const double* we, int i0, int i1, const double* p, const double* pe,
                             double* out, double* out_exponent) {
  vec top[rows], total[rows] = {};
  for (int r = 0; r < rows; r++) top[r] = splat(3 * kZeroExponent);
  raise_tops<rows, step>(we, i0, i1, pe, top);
  add_terms<rows, step>(w, we, i0, i1, p, pe, top, total);
  for (int r = 0; r < rows; r++) store_wide(total[r], top[r], out + r * kLanes, out_exponent + r * kLanes);
}

// The largest exponents of spans of entries: what is far below the smallest output of a tile is left out span by span.
constexpr int kSpan = 32;

static inline void largest_of_spans(const double* exponent, int n, double* largest) {
  for (int S = 0; S * kSpan < n; S++) {
    largest[S] = kZeroExponent;
    for (int i = S * kSpan; i < min(n, (S + 1) * kSpan); i++) largest[S] = max(largest[S], exponent[i]);
  }
}

struct Spans {
  const double *of_a, *of_b;
  int a_length, b_length;
  double* ceiling;  // by span of a

  // Of the terms a[i] b[k - i] of outputs k .. k + outputs - 1; returns the largest.
  double find(int k, int outputs, int first, int last) const {
    double best = 4 * kZeroExponent;
    for (int S = first; S <= last; S++) {
      const int lowest = max(0, k - (S + 1) * kSpan + 1), highest = min(b_length, k + outputs - S * kSpan) - 1;
      double partner = 2 * kZeroExponent;
      for (int T = lowest / kSpan; T * kSpan <= highest; T++) partner = max(partner, of_b[T]);
      ceiling[S] = of_a[S] + partner;
      best = max(best, ceiling[S]);
    }
    return best;
  }
};

// Outputs k .. k + rows kLanes - 1 of a * b, the first `wanted` of them, from the spans of a that matter to any.
template <int rows>
static inline void wide_tile_of_spans(const double* w, const double* we, const double* p, const double* pe, const Spans& spans, int k,
                                      int wanted, double* out, double* out_exponent) {
  const int i0 = max(0, k - spans.b_length + 1), i1 = min(spans.a_length, k + rows * kLanes);
  const int first = i0 / kSpan, last = (i1 - 1) / kSpan;
  vec top[rows], total[rows] = {};
  for (int r = 0; r < rows; r++) top[r] = splat(3 * kZeroExponent);
  double above = __builtin_inf(), band = max(spans.find(k, rows * kLanes, first, last) + kNegligible, kZeroExponent / 2);
  for (;;) {
    for (int S = first; S <= last; S++)
      if (spans.ceiling[S] >= band && spans.ceiling[S] < above)
        raise_tops<rows, -1>(we, max(i0, S * kSpan), min(i1, (S + 1) * kSpan), pe, top);
    double lowest = __builtin_inf();
    for (int t = 0; t < min(wanted, rows * kLanes); t++) lowest = min(lowest, (double)top[t / kLanes][t % kLanes]);
    const double next = max(lowest + kNegligible, kZeroExponent / 2);  // spans of zeros matter to nothing
    if (next >= band) break;
    above = band;
    band = next;
  }
  for (int S = first; S <= last; S++)
    if (spans.ceiling[S] >= band) add_terms<rows, -1>(w, we, max(i0, S * kSpan), min(i1, (S + 1) * kSpan), p, pe, top, total);
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

// Doubles of scratch for a product of vectors that have so many entries together.
static inline size_t wide_scratch(int entries) { return 2 * ((size_t)entries + 2 * kPad) + 3 * ((size_t)entries / kSpan + 2); }

// out[k - first] = sum_i a[i] b[k-i] for first <= k < last. Writes up to kTileOutputs - 1 entries beyond.
static inline void convolve_wide(Wide a, Wide b, int first, int last, double* out, double* out_exponent, double* scratch) {
  if (a.length > b.length) return convolve_wide(b, a, first, last, out, out_exponent, scratch);
  double* room = scratch + b.length + 2 * kPad;
  const double* v = padded_copy(b.value, b.length, 0.0, scratch);
  const double* e = padded_copy(b.exponent, b.length, kZeroExponent, room);
  room += b.length + 2 * kPad;
  if (a.length <= 2 * kSpan)
    return in_output_tiles(last - first, a.length, [&]<int rows>(int at) {
      const int k = first + at;
      wide_tile<rows, -1>(a.value, a.exponent, max(0, k - b.length + 1), min(a.length, k + rows * kLanes), v + k, e + k,
                          out + at, out_exponent + at);
    });
  const int spans_a = a.length / kSpan + 1, spans_b = b.length / kSpan + 1;
  largest_of_spans(a.exponent, a.length, room);
  largest_of_spans(b.exponent, b.length, room + spans_a);
  const Spans spans = {room, room + spans_a, a.length, b.length, room + spans_a + spans_b};
  in_output_tiles(last - first, a.length, [&]<int rows>(int at) {
    const int k = first + at;
    wide_tile_of_spans<rows>(a.value, a.exponent, v + k, e + k, spans, k, last - k, out + at, out_exponent + at);
  });
}

// out[k] = sum_j g[k+j] u[j] for k < count. Reads g, and writes out, up to kTileOutputs - 1 entries beyond.
static inline void correlate_wide(const double* g, const double* g_exponent, Wide u, double* out, double* out_exponent,
                                  int count) {
  in_output_tiles(count, u.length, [&]<int rows>(int k) {
    wide_tile<rows, 1>(u.value, u.exponent, 0, u.length, g + k, g_exponent + k, out + k, out_exponent + k);
  });
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
