// Independent variables: each leaves its likely state where a random number falls below the probability of that.
#include "base/deviation.hpp"
#include "base/philox.hpp"
#include "sample/kernels.hpp"

namespace tallytree::TT_LEVEL {

// 63 random bits as a number in [0, 1): small ones keep all their digits.
static inline vec fine_unit(const uint64_t* words) {
  uvec bits;
  std::memcpy(&bits, words, sizeof bits);
  return __builtin_convertvector((ivec)(bits >> 1), vec) * 0x1p-63;
}

ptrdiff_t draw_bernoulli(const double* nu, ptrdiff_t n, double tilt, const SampleKey* key, uint32_t tag, uint32_t id,
                         uint32_t group, uint64_t* words, uint8_t* out) {
  philox(*key, tag, id, group, (n + 2 * kCalls - 1) / (2 * kCalls) * kCalls, words);
  vec total = vec{};
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    const vec t = load_up_to(nu + i, n - i, -__builtin_inf()) + tilt;
    const vec rare = 0.5 * deviation(t).delta;
    const vec likely = t < 0.0 ? vec{} : splat(1.0);
    const vec on = fine_unit(words + i) < rare ? 1.0 - likely : likely;
    total += on;
    for (ptrdiff_t l = 0; l < kLanes && i + l < n; l++) out[i + l] = (uint8_t)on[l];
  }
  return (ptrdiff_t)sum_lanes(total);
}

}  // namespace tallytree::TT_LEVEL
