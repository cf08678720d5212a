// Leaf messages: Bernoulli weights of the two states, with exponents so that no logit is too large.
#include "exponent.hpp"
#include "tree_kernels.hpp"

namespace tallytree::TT_LEVEL {

// With p = sigmoid(nu): weight of y=0 is 1-p, weight of y=1 is p e^tilt. Excluded (-inf) and forced (+inf)
// variables get an exact zero.
void tree_leaves(const TreeItem& item, ptrdiff_t begin, ptrdiff_t end) {
  const double inf = __builtin_inf();
  vec tilt_exponent;
  const vec tilt_value = exp_split(splat(item.tilt), tilt_exponent);
  for (ptrdiff_t d = begin; d < end; d += kLanes) {
    const ptrdiff_t count = end - d < kLanes ? end - d : kLanes;
    const vec x = count == kLanes ? load(item.nu + d) : load_part(item.nu + d, count, 0.0);
    const vec size = x < 0.0 ? -x : x;
    vec rare_exponent;
    const vec rare = exp_split_or_zero(-size, rare_exponent);
    const vec likely = 1.0 / (1.0 + rare * pow2(rare_exponent));
    const auto positive = x > 0.0;
    const vec unlikely = rare * likely;
    vec off = positive ? unlikely : likely, off_exponent = positive ? rare_exponent : vec{};
    vec on = positive ? likely : unlikely, on_exponent = positive ? vec{} : rare_exponent;
    on = x > -inf ? on * tilt_value : vec{};
    on_exponent = x > -inf ? on_exponent + tilt_exponent : splat(kZeroExponent);
    for (ptrdiff_t j = 0; j < count; j++) {
      item.leaf_value[0][d + j] = off[j];
      item.leaf_exponent[0][d + j] = off_exponent[j];
      item.leaf_value[1][d + j] = on[j];
      item.leaf_exponent[1][d + j] = on_exponent[j];
    }
  }
}

}  // namespace tallytree::TT_LEVEL
