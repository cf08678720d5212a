// The plan of a transform: stages and twiddle factors (see fft.hpp for the algorithm).
#pragma once
#include <cstdint>

#include "base/worker.hpp"

namespace tallytree {

// Splits `blocks` blocks of `length` complex numbers, radix `radix`; `twiddles` is where their factors begin.
struct FftStage {
  int32_t radix, length, blocks;
  ptrdiff_t twiddles;
};

struct FftPlan {
  int32_t length;  // real length N
  int32_t outer_stages, inner_stages;
  FftStage outer[2], inner[20];
  const double *outer_twiddles, *inner_twiddles;
};

// Lengths with a plan are 128 * 2^k and 384 * 2^k, the longest is kLongestTransform.
constexpr int32_t kLongestTransform = 3 << 29;
// The smallest that is at least n; n <= kLongestTransform, else std::length_error.
int32_t fft_length(int64_t n);
// Thread-safe; the plan lives as long as the cache.
const FftPlan* fft_plan(PlanCache* cache, int32_t length, int lanes);

}  // namespace tallytree
