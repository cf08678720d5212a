// Vectorised elementary functions.
#pragma once
#include "base/simd.hpp"

namespace tallytree::TT_LEVEL {

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

}  // namespace tallytree::TT_LEVEL
