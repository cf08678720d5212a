#include "base/memory.hpp"

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "base/fork_gate.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tallytree {

namespace {

constexpr size_t kHuge = size_t(2) << 20;
constexpr size_t kKeepAtMost = size_t(128) << 20;  // bytes kept for reuse
constexpr size_t kKeepBlocks = 16;
constexpr size_t kSmall = size_t(128) << 10;  // the C library keeps blocks up to this size by itself
constexpr size_t kPage = 4096;

struct Slab {
  double* data = nullptr;
  size_t bytes = 0;

  std::align_val_t alignment() const { return std::align_val_t(bytes >= kHuge ? kHuge : kPage); }
  static Slab fresh(size_t bytes) {
    Slab block{nullptr, bytes};
    block.data = (double*)::operator new(bytes, block.alignment(), std::nothrow);
    return block;
  }
  void release() const { ::operator delete(data, alignment()); }
};

// Large blocks in use, and a few that were freed: a loop that makes one model after the other would otherwise have
// the same pages cleared again every time, which takes as long as the inference.
struct Slabs {
  std::mutex guard;
  std::unordered_map<double*, size_t> in_use;
  std::vector<Slab> idle;  // oldest first
  size_t idle_bytes = 0;

  Slabs() { idle.reserve(kKeepBlocks + 1); }

  double* reuse(size_t bytes) {
    const ForkSafeLock lock(guard);
    for (size_t i = idle.size(); i-- > 0;) {
      const Slab block = idle[i];
      if (block.bytes < bytes || block.bytes > bytes + bytes / 4) continue;
      in_use[block.data] = block.bytes;
      idle.erase(idle.begin() + (ptrdiff_t)i);
      idle_bytes -= block.bytes;
      return block.data;
    }
    return nullptr;
  }
  void note(const Slab& block) {
    const ForkSafeLock lock(guard);
    in_use[block.data] = block.bytes;
  }
  // False if the block is none of these. Allocates nothing: arrays are freed where an exception would end the process.
  bool retire(double* data) noexcept {
    Slab surplus[kKeepBlocks + 1];
    size_t count = 0;
    {
      const ForkSafeLock lock(guard);
      const auto found = in_use.find(data);
      if (found == in_use.end()) return false;
      const Slab block{data, found->second};
      in_use.erase(found);
      idle.push_back(block);
      idle_bytes += block.bytes;
      while (idle_bytes > kKeepAtMost || idle.size() > kKeepBlocks) {
        // A block larger than everything that may be kept does not push out the others.
        const auto victim = block.bytes > kKeepAtMost ? idle.end() - 1 : idle.begin();
        surplus[count++] = *victim;
        idle_bytes -= victim->bytes;
        idle.erase(victim);
      }
    }
    for (size_t i = 0; i < count; i++) surplus[i].release();
    return true;
  }
};

Slabs& blocks() {
  static Slabs* all = new Slabs;  // outlives every array that Python may still hold at exit
  return *all;
}

}  // namespace

// First touches of pages cost more than the arithmetic on what they hold, those of small ones most. The part of a
// block that fills no huge page stays in small ones, so that a block never takes more than was asked for, except that
// one of at least half a huge page gets a whole one.
double* new_doubles(size_t count) {
  if (count > SIZE_MAX / sizeof(double) - kHuge) return nullptr;
  const size_t bytes = count * sizeof(double);
  if (bytes < kSmall) return (double*)std::malloc(bytes ? bytes : 1);
  const bool huge = bytes >= kHuge / 2;
  const size_t unit = huge ? kHuge : kPage, rounded = (bytes + unit - 1) / unit * unit;
  try {
    if (double* data = blocks().reuse(rounded)) return data;
    const Slab block = Slab::fresh(rounded);
    if (!block.data) return nullptr;
#ifdef __linux__
    if (huge) madvise(block.data, bytes < kHuge ? kHuge : bytes / kHuge * kHuge, MADV_HUGEPAGE);
#endif
    try {
      blocks().note(block);
    } catch (...) {
      block.release();
      throw;
    }
    return block.data;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void free_doubles(double* data) noexcept {
  if (!blocks().retire(data)) std::free(data);
}

}  // namespace tallytree
