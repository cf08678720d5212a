// P(y = 1) of a variable with log-odds x, without overflow. For files outside the kernels.
#pragma once
#include <cmath>

namespace tallytree {

inline double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

}  // namespace tallytree
