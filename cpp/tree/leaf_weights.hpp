// Bernoulli weights of the two states of a variable, with exponents so that no logit is too large.
#pragma once
#include "base/exponent.hpp"

namespace tallytree::TT_LEVEL {

struct LeafWeights {
  vec off, off_exponent, on, on_exponent;
};

struct Tilt {
  vec value, exponent;

  explicit Tilt(double tilt) { value = exp_split(splat(tilt), exponent); }
};

// With p = sigmoid(x): weight of y=0 is 1-p, weight of y=1 is p e^tilt. Excluded (-inf) and forced (+inf) variables
// get an exact zero.
static inline LeafWeights leaf_weights(vec x, const Tilt& tilt) {
  vec rare_exponent;
  const vec rare = exp_split_or_zero(x < 0.0 ? x : -x, rare_exponent);
  const vec likely = 1.0 / (1.0 + rare * pow2(rare_exponent)), unlikely = rare * likely;
  const auto positive = x > 0.0, excluded = x == -__builtin_inf();
  LeafWeights w;
  w.off = positive ? unlikely : likely;
  w.off_exponent = positive ? rare_exponent : vec{};
  w.on = (positive ? likely : unlikely) * tilt.value;
  w.on_exponent = excluded ? splat(kZeroExponent) : (positive ? vec{} : rare_exponent) + tilt.exponent;
  return w;
}

}  // namespace tallytree::TT_LEVEL
