#include "base/workspace.hpp"

#include <algorithm>
#include <new>

namespace tallytree {

AlignedArray aligned_doubles(size_t n) {
  const size_t bytes = (n * sizeof(double) + 63) / 64 * 64;
  return AlignedArray(static_cast<double*>(::operator new(std::max<size_t>(bytes, 64), kAlignment)));
}

double* arena_take(Arena* arena, size_t doubles) {
  doubles = (doubles + 7) / 8 * 8;
  while (arena->block < arena->blocks.size() && arena->used + doubles > arena->blocks[arena->block].size) {
    arena->block++;
    arena->used = 0;
  }
  if (arena->block == arena->blocks.size()) {
    const size_t grown = arena->blocks.empty() ? 1 << 15 : 2 * arena->blocks.back().size;
    const size_t size = std::max(doubles, std::min<size_t>(grown, 1 << 23));
    arena->blocks.push_back({aligned_doubles(size), size});
  }
  double* p = arena->blocks[arena->block].data.get() + arena->used;
  arena->used += doubles;
  return p;
}

// A linear pass lays out up to three messages side by side in one scratch part, padded; a transform is at most
// 4/3 as long as the message it holds, or 128. All parts together hold the vectors of a group of blocks, three times, and one padded.
Worker WorkerMemory::worker(size_t longest) {
  const size_t need = std::max<size_t>((3 * longest + 512 + 7) / 8 * 8, 2048);
  if (need > stride) {
    stride = need;
    scratch = aligned_doubles(stride * kScratchParts);
  }
  return {&arena, scratch.get(), stride};
}

}  // namespace tallytree
