// Copies that look at the numbers as they pass: a second reading would cost as much as the first.
#include "base/kernels.hpp"
#include "base/simd.hpp"

namespace tallytree::TT_LEVEL {

void copy_and_scan(const double* from, ptrdiff_t n, double* to, double* smallest, double* largest) {
  const double inf = __builtin_inf();
  vec low = splat(inf), high = splat(-inf);
  ivec nan = {};
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    const vec x = load_up_to(from + i, n - i, from[i]);
    nan |= x != x;
    low = x < low ? x : low;
    high = x > high ? x : high;
    store_up_to(to + i, x, n - i);
  }
  *smallest = inf;
  *largest = -inf;
  for (int l = 0; l < kLanes; l++) {
    if (nan[l]) {
      *smallest = *largest = __builtin_nan("");
      return;
    }
    if (low[l] < *smallest) *smallest = low[l];
    if (high[l] > *largest) *largest = high[l];
  }
}

}  // namespace tallytree::TT_LEVEL
