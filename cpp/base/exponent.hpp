// Numbers as mantissa times a power of two, and the elementary functions that need the split.
//
// Exponents are integers held in doubles: exact up to 2^53, and they add and compare in the vector unit.
#pragma once
#include "base/constants.hpp"
#include "base/real.hpp"
#include "base/simd.hpp"

namespace tallytree::TT_LEVEL {

// Vectorised elementary functions.

// exp(r) for |r| <= ln 2 / 2.
static inline vec exp_reduced(vec r) {
  // Taylor coefficients 1/13! ... 1/0!: remainder below 1e-18.
  const double c[] = {1.6059043836821614599e-10, 2.0876756987868098979e-9, 2.5052108385441718775e-8,
                      2.7557319223985890653e-7,  2.7557319223985892511e-6, 2.4801587301587301566e-5,
                      1.9841269841269841253e-4,  1.3888888888888889419e-3, 8.3333333333333332177e-3,
                      4.1666666666666664354e-2,  1.6666666666666665741e-1, 0.5,
                      1.0,                       1.0};
  vec p = splat(c[0]);
#pragma GCC unroll 16
  for (int i = 1; i < 14; i++) p = p * r + c[i];
  return p;
}

// exp(x) to about 1 ulp for x in [-708, 709]; below that the result is 0, above it is +inf. NaN stays NaN.
static inline vec exp(vec x) {
  const double log2e = 1.4426950408889634, ln2_hi = 6.93147180369123816490e-01, ln2_lo = 1.90821492927058770002e-10;
  const double magic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer held in the low bits
  vec y = x < -708.0 ? splat(-708.0) : x;
  y = y > 709.0 ? splat(709.0) : y;
  vec n = y * log2e + magic;
  ivec bits = (ivec)n;
  n = n - magic;
  vec r = (y - n * ln2_hi) - n * ln2_lo;
  vec p = exp_reduced(r);
  p = p * (vec)((bits << 52) + (int64_t(1023) << 52));
  p = x < -708.0 ? vec{} : p;
  return x > 709.0 ? splat(__builtin_inf()) : p;
}

// Numbers as mantissa times a power of two, and the elementary functions that need the split.
//
// Exponents are integers held in doubles: exact up to 2^53, and they add and compare in the vector unit.

// The exponent of zero: low enough that no sum of two exponents with one of them zero's comes near a real one.
constexpr double kZeroExponent = -1e15;
constexpr double kRoundingMagic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer in the low bits

static inline vec max(vec a, vec b) { return a > b ? a : b; }
static inline vec min(vec a, vec b) { return a < b ? a : b; }
static inline double max(double a, double b) { return a > b ? a : b; }
static inline double min(double a, double b) { return a < b ? a : b; }
static inline ptrdiff_t max(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
static inline ptrdiff_t min(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline double max_lanes(vec v) {
  double m = v[0];
  for (int j = 1; j < kLanes; j++) m = max(m, (double)v[j]);
  return m;
}
static inline double min_lanes(vec v) {
  double m = v[0];
  for (int j = 1; j < kLanes; j++) m = min(m, (double)v[j]);
  return m;
}

// 2^n for integer n; 0 below -1022, and n must not exceed 1023.
static inline vec pow2(vec n) {
  const vec inside = max(n, splat(-1022.0));
  const vec p = (vec)(((ivec)(inside + kRoundingMagic) << 52) + (int64_t(1023) << 52));
  return n < -1022.0 ? vec{} : p;
}
static inline double pow2(double n) {
  if (n < -1022.0) return 0.0;
  const uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
  double p;
  std::memcpy(&p, &bits, 8);
  return p;
}

// The exponent e of a positive normal x, 2^e <= x < 2^(e+1).
static inline double exponent_of(double x) {
  int64_t bits;
  std::memcpy(&bits, &x, 8);
  return (double)(((bits >> 52) & 2047) - 1023);
}
static inline vec exponent_of(vec x) {
  const ivec biased = (((ivec)x >> 52) & 2047) + 0x4338000000000000;  // the bits of kRoundingMagic
  return (vec)biased - (kRoundingMagic + 1023.0);
}
// x with its exponent replaced by 0: in [1, 2) for positive normal x.
static inline vec mantissa_of(vec x) {
  return (vec)(((ivec)x & 0x000fffffffffffff) | 0x3ff0000000000000);
}

// e^x = mantissa * 2^exponent with mantissa in [0.70, 1.42], for any finite x: no range is lost.
static inline vec exp_split(vec x, vec& exponent) {
  const double log2e = 1.4426950408889634, ln2_hi = 6.93147180369123816490e-01, ln2_lo = 1.90821492927058770002e-10;
  const vec n = (x * log2e + kRoundingMagic) - kRoundingMagic;
  const vec r = (x - n * ln2_hi) - n * ln2_lo;
  exponent = n;
  return exp_reduced(r);
}
// The same with e^-inf = 0 * 2^kZeroExponent.
static inline vec exp_split_or_zero(vec x, vec& exponent) {
  const auto zero = x < -1e300;
  vec n;
  const vec p = exp_split(zero ? vec{} : x, n);
  exponent = zero ? splat(kZeroExponent) : n;
  return zero ? vec{} : p;
}

// log(x) to about 1 ulp for positive normal x; -inf for x = 0.
//
// x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(t), t = (m-1)/(m+1), |t| <= 0.1716.
static inline vec log(vec x) {
  vec e = exponent_of(x), m = mantissa_of(x);
  const auto high = m > 1.4142135623730951;
  m = high ? m * 0.5 : m;
  e = high ? e + 1.0 : e;
  const vec f = m - 1.0, t = f / (m + 1.0), t2 = t * t;
  vec p = splat(2.0 / 21);
  const double c[] = {2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3};
#pragma GCC unroll 16
  for (double k : c) p = p * t2 + k;
  // 2 atanh(t) = 2t + t^3 p and 2t = f - t f, so that the leading term f is exact.
  const vec tail = t * (t2 * p - f);
  const double ln2_hi = 6.93147180369123816490e-01, ln2_lo = 1.90821492927058770002e-10;
  const vec value = e * ln2_hi + (f + (tail + e * ln2_lo));
  return x > 0.0 ? value : splat(-__builtin_inf());
}

// log(a / b) for positive normal a and b of any size, without rounding their logarithms first.
static inline double log_ratio(double a, double b) {
  const double ea = exponent_of(a), eb = exponent_of(b);
  return (ea - eb) * kLn2 + real::log((a * pow2(-ea)) / (b * pow2(-eb)));
}

// A sum of powers of two given by their logarithms, at most one bit too large.
static inline double log2_sum_above(double a, double b) {
  if (a < b) return log2_sum_above(b, a);
  return b < a - 60.0 || b == -__builtin_inf() ? a : a + 1.0;
}

}  // namespace tallytree::TT_LEVEL
