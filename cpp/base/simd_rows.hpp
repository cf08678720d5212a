// Rows of memory, one per model, to and from registers that hold one entry of every model.
#pragma once
#include "base/simd.hpp"

namespace tallytree::TT_LEVEL {

// kLanes x kLanes transpose in registers.

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

// Rows of memory, one per model, to and from registers that hold one entry of every model.

// Calls take(i, v) for every entry i < count, v holding entry i of every model; lanes without one repeat the first.
template <class Take>
static inline void by_entry(const double* const* rows, int models, ptrdiff_t count, const Take& take) {
  ptrdiff_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    vec block[kLanes];
    for (int l = 0; l < kLanes; l++) block[l] = load(rows[l < models ? l : 0] + i);
    transpose(block);
    for (int j = 0; j < kLanes; j++) take(i + j, block[j]);
  }
  for (; i < count; i++) {
    vec v = splat(rows[0][i]);
    for (int l = 1; l < models; l++) v[l] = rows[l][i];
    take(i, v);
  }
}

// rows[l][i] = entry i of model l, as give(i) tells it for all models.
template <class Give>
static inline void to_rows(double* const* rows, int models, ptrdiff_t count, const Give& give) {
  ptrdiff_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    vec block[kLanes];
    for (int j = 0; j < kLanes; j++) block[j] = give(i + j);
    transpose(block);
    for (int l = 0; l < models; l++) store(rows[l] + i, block[l]);
  }
  for (; i < count; i++) {
    const vec v = give(i);
    for (int l = 0; l < models; l++) rows[l][i] = v[l];
  }
}

}  // namespace tallytree::TT_LEVEL
