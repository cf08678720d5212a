// kLanes x kLanes transpose in registers.
#pragma once
#include "base/simd.hpp"

namespace tallytree::TT_LEVEL {

#if TT_LANES == 2
static inline void transpose(vec* x) {
  const vec a = x[0], b = x[1];
  x[0] = __builtin_shufflevector(a, b, 0, 2);
  x[1] = __builtin_shufflevector(a, b, 1, 3);
}
#elif TT_LANES == 4
static inline void transpose(vec* x) {
  vec y[4];
  for (int j = 0; j < 4; j += 2) {
    y[j] = __builtin_shufflevector(x[j], x[j + 1], 0, 4, 2, 6);
    y[j + 1] = __builtin_shufflevector(x[j], x[j + 1], 1, 5, 3, 7);
  }
  for (int j = 0; j < 2; j++) {
    x[j] = __builtin_shufflevector(y[j], y[j + 2], 0, 1, 4, 5);
    x[j + 2] = __builtin_shufflevector(y[j], y[j + 2], 2, 3, 6, 7);
  }
}
#else
static inline void transpose(vec* x) {
  vec y[8], z[8];
  for (int j = 0; j < 8; j += 2) {
    y[j] = __builtin_shufflevector(x[j], x[j + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    y[j + 1] = __builtin_shufflevector(x[j], x[j + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int half = 0; half < 8; half += 4)
    for (int j = half; j < half + 2; j++) {
      z[j] = __builtin_shufflevector(y[j], y[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      z[j + 2] = __builtin_shufflevector(y[j], y[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int j = 0; j < 4; j++) {
    x[j] = __builtin_shufflevector(z[j], z[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    x[j + 4] = __builtin_shufflevector(z[j], z[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
#endif

}  // namespace tallytree::TT_LEVEL
