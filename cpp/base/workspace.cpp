#include "base/workspace.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/parallel.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

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

// -- arrays that go to Python --------------------------------------------------------------------------------------

namespace {

constexpr size_t kHuge = size_t(2) << 20;
constexpr size_t kKeepMegabytes = 128;  // kept for reuse, unless TALLYTREE_KEEP_MB says otherwise
constexpr size_t kKeepBlocks = 16;
constexpr size_t kSmall = size_t(128) << 10;  // the C library keeps blocks up to this size by itself
constexpr size_t kPage = 4096;

// A few large blocks that were freed: a loop that makes one model after the other would otherwise have the same pages cleared
// again every time, which takes as long as the inference.
struct IdleBlocks {
  std::vector<DoubleBlock*> blocks;  // oldest first
  size_t bytes = 0, at_most = kKeepMegabytes << 20;

  IdleBlocks() {
    blocks.reserve(kKeepBlocks + 1);
    if (const char* wanted = std::getenv("TALLYTREE_KEEP_MB")) at_most = (size_t)std::strtoull(wanted, nullptr, 10) << 20;
  }

  DoubleBlock* take(size_t i) {
    DoubleBlock* block = blocks[i];
    blocks.erase(blocks.begin() + (ptrdiff_t)i);
    bytes -= block->bytes;
    return block;
  }
};

IdleBlocks& idle() {
  static IdleBlocks* all = new IdleBlocks;  // outlives every array that Python may still hold at exit
  return *all;
}

std::align_val_t alignment(size_t bytes) { return std::align_val_t(bytes >= kHuge ? kHuge : kPage); }

void release(DoubleBlock* block) noexcept {
  if (block->bytes < kSmall) std::free(block->data);
  else ::operator delete(block->data, alignment(block->bytes));
  delete block;
}

}  // namespace

// First touches of pages cost more than the arithmetic on what they hold, those of small ones most. The part of a
// block that fills no huge page stays in small ones, so that a block never takes more than was asked for, except that
// one of at least half a huge page gets a whole one.
DoubleBlock* new_doubles(size_t count) {
  if (count > SIZE_MAX / sizeof(double) - kHuge) throw std::bad_alloc();
  const size_t wanted = count * sizeof(double);
  const bool huge = wanted >= kHuge / 2;
  const size_t unit = huge ? kHuge : kPage, bytes = wanted < kSmall ? wanted : (wanted + unit - 1) / unit * unit;
  if (bytes >= kSmall) {
    const ForkSafeLock lock;
    for (size_t i = idle().blocks.size(); i-- > 0;)
      if (idle().blocks[i]->bytes >= bytes && idle().blocks[i]->bytes <= bytes + bytes / 4) return idle().take(i);
  }
  std::unique_ptr<DoubleBlock> block(new DoubleBlock{nullptr, bytes});
  block->data = (double*)(bytes < kSmall ? std::malloc(bytes ? bytes : 1) : ::operator new(bytes, alignment(bytes)));
  if (!block->data) throw std::bad_alloc();
#ifdef __linux__
  if (huge) madvise(block->data, wanted < kHuge ? kHuge : wanted / kHuge * kHuge, MADV_HUGEPAGE);
#endif
  return block.release();
}

// Allocates nothing: arrays are freed where an exception would end the process.
void free_doubles(DoubleBlock* block) noexcept {
  if (block->bytes < kSmall) return release(block);
  DoubleBlock* surplus[kKeepBlocks + 1];
  size_t count = 0;
  {
    const ForkSafeLock lock;
    idle().blocks.push_back(block);
    idle().bytes += block->bytes;
    // A block larger than everything that may be kept does not push out the others.
    while (idle().bytes > idle().at_most || idle().blocks.size() > kKeepBlocks)
      surplus[count++] = idle().take(block->bytes > idle().at_most ? idle().blocks.size() - 1 : 0);
  }
  for (size_t i = 0; i < count; i++) release(surplus[i]);
}

}  // namespace tallytree
