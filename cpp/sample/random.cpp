// Random words in bulk.
#include "base/philox.hpp"
#include "sample/kernels.hpp"

namespace tallytree::TT_LEVEL {

void random_words(const SampleKey* key, uint32_t tag, uint32_t id, uint32_t group, ptrdiff_t calls, uint64_t* out) {
  philox(*key, tag, id, group, calls, out);
}

void random_bits(const SampleKey* key, uint32_t tag, uint32_t id, uint32_t first_group, ptrdiff_t samples,
                 uint64_t* out) {
  uint64_t bits[4 * kCalls];
  for (ptrdiff_t s = 0; s < samples; s += 64) {
    const ptrdiff_t count = samples - s < 64 ? samples - s : 64;
    philox(*key, tag, id, first_group + (uint32_t)(s / 64), count > 2 * kCalls ? 2 * kCalls : kCalls, bits);
    std::memcpy(out + s, bits, (size_t)count * sizeof(uint64_t));
  }
}

}  // namespace tallytree::TT_LEVEL
