// Sums of deviations, plain or weighted by a direction: what pass 1 of the flat solver and of its tangent share.
#pragma once
#include "base/deviation.hpp"
#include "flat/kernels.hpp"

namespace tallytree::TT_LEVEL {

// Running sums are flushed after this many additions: equal terms round in the same direction every time, so
// the error of a long sum is not random. Products of as many factors in (1, 2] cannot overflow before their
// logarithm is taken.
constexpr ptrdiff_t kBlock = 64;

// Entries past the end contribute nothing: their deviation is 0, and they count as likely off.
constexpr double kAbsent = -__builtin_inf();

// Calls sums<most>() with the smallest number of sums compiled for that is at least `count`.
template <class Sums>
static inline void with_sums(int count, const Sums& sums) {
  if (count <= 8) return sums.template operator()<8>();
  if (count <= 10) return sums.template operator()<10>();
  if (count <= 12) return sums.template operator()<12>();
  if (count <= 14) return sums.template operator()<14>();
  if (count <= 16) return sums.template operator()<16>();
  if (count <= 18) return sums.template operator()<18>();
  if (count <= 20) return sums.template operator()<20>();
  sums.template operator()<24>();
}

// Calls add(j - 1, b_j) for j = 1 .. count. With a_j = 1 - T_j(|x|), the Chebyshev recurrence
// T_{j+1} = 2 |x| T_j - T_{j-1} reads a_{j+1} = 2 |x| a_j + (2 delta - a_{j-1}), delta = 1 - |x|: all terms vanish with
// delta. For b_j = sign^j a_j it is b_{j+1} = 2 x b_j + (sign^{j+1} 2 delta - b_{j-1}).
template <int count, class Add>
static inline void deviation_terms(const Deviation& d, const Add& add) {
  const vec two_delta = d.delta + d.delta, signed_two_delta = d.sign * two_delta;
  const vec two_x = d.sign * (2.0 - two_delta);
  vec before = vec{}, b = d.sign * d.delta;
  add(0, b);
#pragma GCC unroll 25
  for (int j = 1; j < count; j++) {
    const vec next = two_x * b + ((j % 2 ? two_delta : signed_two_delta) - before);
    before = b;
    b = next;
    add(j, b);
  }
}

// Calls take(lane, p) for every large deviation, which then counts as none of a variable that is likely off.
template <class Take>
static inline void take_large(vec* deviation, vec* likely, const Take& take) {
  if (!any(*deviation >= kLargeDeviation)) return;
  for (int l = 0; l < kLanes; l++) {
    if (!((*deviation)[l] >= kLargeDeviation)) continue;
    take(l, (*likely)[l] > 0 ? 1 - (*deviation)[l] : (*deviation)[l]);
    (*deviation)[l] = 0;
    (*likely)[l] = -1;
  }
}

}  // namespace tallytree::TT_LEVEL
