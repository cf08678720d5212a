// Elementary functions of the flat kernels: logarithms, and a logit split into likely state and deviation.
#pragma once
#include "elementary.hpp"

namespace tallytree::TT_LEVEL {

// log((1 + z) / (1 - z)) for 0 <= |z| <= 0.1716 (sqrt 2 and its inverse), to about 1 ulp.
static inline vec log_of_ratio(vec z) {
  vec z2 = z * z, p = splat(1.0 / 23);
#pragma GCC unroll 12
  for (int j = 21; j >= 3; j -= 2) p = p * z2 + 1.0 / j;
  return 2.0 * z + 2.0 * z * (z2 * p);
}

// log(x) for positive normal x.
static inline vec log(vec x) {
  const double ln2_hi = 6.93147180369123816490e-01, ln2_lo = 1.90821492927058770002e-10;
  ivec bits = (ivec)x;
  ivec exponent = (bits - (ivec{} + 0x3fe6a09e667f3bcdLL)) >> 52;  // mantissa in [sqrt 1/2, sqrt 2)
  vec m = (vec)(bits - (exponent << 52));
  // int64 -> double through the magic number, exact for small integers
  vec e = (vec)(exponent + 0x4338000000000000LL) - 6755399441055744.0;
  return e * ln2_hi + (log_of_ratio((m - 1.0) / (m + 1.0)) + e * ln2_lo);
}

// log(1 + e) for 0 <= e <= 1, relatively accurate.
static inline vec log1p_unit(vec e) {
  vec z = e / (2.0 + e), z2 = z * z, p = splat(1.0 / 37);
#pragma GCC unroll 20
  for (int j = 35; j >= 3; j -= 2) p = p * z2 + 1.0 / j;
  return 2.0 * z + 2.0 * z * (z2 * p);
}

static inline vec abs(vec x) { return x < 0.0 ? -x : x; }

// A tilted logit as likely state and distance from it.
struct Deviation {
  vec sign;     // +1 likely on, -1 likely off
  vec e;        // e^-|t|
  vec inverse;  // 1 / (1 + e)
  vec delta;    // 2 e / (1 + e)
};
static inline Deviation deviation(vec t) {
  Deviation d;
  d.sign = t < 0.0 ? splat(-1.0) : splat(1.0);
  d.e = exp(-abs(t));
  d.inverse = 1.0 / (1.0 + d.e);
  d.delta = (d.e + d.e) * d.inverse;
  return d;
}

}  // namespace tallytree::TT_LEVEL
