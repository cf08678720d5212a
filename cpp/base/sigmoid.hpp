// P(y = 1) of a variable with log-odds x, without overflow, and P(y = 1) P(y = 0). For files outside the kernels.
#pragma once
#include <cmath>

namespace tallytree {

inline double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

// 0 for infinite x, and for NaN.
inline double spread(double x) {
  const double e = std::exp(-std::fabs(x));
  return e > 0 ? e / ((1 + e) * (1 + e)) : 0;
}

}  // namespace tallytree
