// Memory of one thread and cached plans, as kernels see them: plain data, no inline functions (see tree/kernels.hpp).
#pragma once
#include <cstddef>
#include <cstdint>

namespace tallytree {

// Memory that grows in blocks and is released all at once.
struct Arena;
double* arena_take(Arena* arena, size_t doubles);  // 64-byte aligned

// -- the plan of a transform: stages and twiddle factors (see fft.hpp for the algorithm) ------------------------------

struct PlanCache;

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

// What one thread owns.
struct Worker {
  Arena* arena;     // messages and spectra, alive until the item is finished
  double* scratch;  // `scratch_parts` pieces of `scratch_stride` doubles, 64-byte aligned
  size_t scratch_stride;
};
constexpr int kScratchParts = 8;

// -- Ctrl-C in the midst of long work ------------------------------------------------------------------------------

// To be called between pieces of work that take long together. Now and then it has the interpreter look for signals, if
// this thread is one that gave up the interpreter's lock, and throws what a handler raises. A thread that helps with a job
// which has failed meanwhile leaves it by an exception. Not while a lock is held.
void let_signals_through();

}  // namespace tallytree
