// Sum of log(1 + exp(x)) without one logarithm per entry.
#include "base/real.hpp"
#include "base/elementary.hpp"
#include "base/kernels.hpp"

namespace tallytree::TT_LEVEL {

constexpr double kSmall = 1.0 / 1024;  // five terms of the series are right to 1e-15

// log(1 + e^x) = max(x, 0) + log(1 + e), e = e^-|x|. The factors 1 + e lie in (1, 2], so 512 of them multiply without
// overflow before a logarithm is due. Where e is small, 1 + e would lose most of it: a few terms of the series instead.
double softplus_sum(const double* x, ptrdiff_t n) {
  const double inf = __builtin_inf();
  double total = 0;
  for (ptrdiff_t block = 0; block < n; block += 512 * kLanes) {
    const ptrdiff_t end = n < block + 512 * kLanes ? n : block + 512 * kLanes;
    vec positive = vec{}, product = splat(1.0), small = vec{};
    for (ptrdiff_t i = block; i < end; i += kLanes) {
      vec t = load_up_to(x + i, end - i, -inf);
      vec size = t < 0.0 ? -t : t;
      positive += ((t > 0.0) & (t < inf)) ? t : vec{};
      const vec e = exp(-size), s = e < kSmall ? e : vec{};
      product *= 1.0 + (e < kSmall ? vec{} : e);
      small += s * (1.0 - s * (1.0 / 2 - s * (1.0 / 3 - s * (1.0 / 4 - s * (1.0 / 5)))));
    }
    for (int j = 0; j < kLanes; j++) total += positive[j] + (real::log(product[j]) + small[j]);
  }
  return total;
}

}  // namespace tallytree::TT_LEVEL

