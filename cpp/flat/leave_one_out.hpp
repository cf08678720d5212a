// The two sides of a leaf as sums over frequencies; lanes are leaves, or frequencies.
#pragma once
#include "base/simd.hpp"
#include "flat/kernels.hpp"

namespace tallytree::TT_LEVEL {

template <bool with_slope>
struct LeaveOneOut {
  vec off = {}, on = {}, slope_off = {}, slope_on = {};

  // The frequency e^{iw} = c + i s with the wave G = re + i im, for a leaf (q, p); returns 1 / |q + p e^{iw}|^2.
  template <class OfLeaf, class OfWave>
  vec add(OfLeaf p, OfLeaf q, OfWave c, OfWave s, OfWave re, OfWave im) {
    const vec x = q + p * c, y = p * s, inverse = 1.0 / (x * x + y * y);
    const vec gr = (re * x + im * y) * inverse, gi = (im * x - re * y) * inverse;  // G / (q + p e^{iw})
    off += gr;
    on += gr * c - gi * s;
    if constexpr (with_slope) {
      // times p q (e^{iw} - 1) / (q + p e^{iw})
      const vec kr = (p * q) * ((c - 1.0) * x + s * y) * inverse, ki = (p * q) * (s * x - (c - 1.0) * y) * inverse;
      const vec lr = gr * kr - gi * ki, li = gr * ki + gi * kr;
      slope_off += lr;
      slope_on += lr * c - li * s;
    }
    return inverse;
  }
};

}  // namespace tallytree::TT_LEVEL
