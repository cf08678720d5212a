// Chebyshev series at the leaves of a vector.
#pragma once
#include "base/deviation.hpp"
#include "flat/kernels.hpp"

namespace tallytree::TT_LEVEL {

// By Clenshaw's recurrence; `width` vectors at once hide its latency.
template <int width>
inline void clenshaw(const double* series, int terms, const vec* x, vec* value) {
  vec b1[width], b2[width], two_x[width];
  for (int g = 0; g < width; g++) b1[g] = b2[g] = vec{}, two_x[g] = x[g] + x[g];
  for (int j = terms - 1; j > 0; j--)
#pragma GCC unroll 4
    for (int g = 0; g < width; g++) {
      const vec b0 = two_x[g] * b1[g] + (series[j] - b2[g]);
      b2[g] = b1[g];
      b1[g] = b0;
    }
  for (int g = 0; g < width; g++) value[g] = x[g] * b1[g] + (series[0] - b2[g]);
}

// A series of a piece: in x = tanh(t / 2), or, when split, in delta on [0, 2 kLargeDeviation], one for each likely state,
// of which those are evaluated that are needed. Larger deviations are the caller's.
inline vec series_at(const double* series, int terms, bool split, const Deviation& d) {
  vec value;
  if (!split) {
    const vec x = d.sign * (1.0 - d.delta);
    clenshaw<1>(series, terms, &x, &value);
    return value;
  }
  const vec x = d.delta * (1.0 / kLargeDeviation) - 1.0;
  vec off = vec{}, on = vec{};
  bool any_on = false, any_off = false;
  for (int l = 0; l < kLanes; l++) (d.sign[l] < 0 ? any_off : any_on) = true;
  if (any_off) clenshaw<1>(series, terms, &x, &off);
  if (any_on) clenshaw<1>(series + terms, terms, &x, &on);
  return d.sign < 0.0 ? off : on;
}

}  // namespace tallytree::TT_LEVEL
