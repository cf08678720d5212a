// One configuration of many independent variables given how many are on. Never included by kernel files.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/kernels.hpp"
#include "sample/kernels.hpp"

namespace tallytree {

// Fills out[0 .. n-1] for finite logits nu, given that `count` of the variables are on; false if that was not to be had
// in a reasonable time, which happens to models and not to random numbers.
bool draw_given_count(const Kernels& kernels, int threads, const double* nu, ptrdiff_t n, ptrdiff_t count,
                      const SampleKey& key, uint8_t* out);

}  // namespace tallytree
