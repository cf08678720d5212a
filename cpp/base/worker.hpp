// Memory of one thread and cached plans, as kernels see them: plain data, no inline functions (see tree/types.hpp).
#pragma once
#include <cstddef>

namespace tallytree {

// Memory that grows in blocks and is released all at once.
struct Arena;
double* arena_take(Arena* arena, size_t doubles);  // 64-byte aligned

// Twiddle factors for one transform length and lane count.
struct FftPlan;
struct PlanCache;

// What one thread owns.
struct Worker {
  Arena* arena;     // messages and spectra, alive until the item is finished
  double* scratch;  // `scratch_parts` pieces of `scratch_stride` doubles, 64-byte aligned
  size_t scratch_stride;
};
constexpr int kScratchParts = 8;

}  // namespace tallytree
