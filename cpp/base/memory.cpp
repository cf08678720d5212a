#include "base/memory.hpp"

#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

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

struct Block {
  double* data;
  size_t bytes;
};

// Large blocks in use, and a few that were freed: a loop that makes one model after the other would otherwise have
// the same pages cleared again every time, which takes as long as the inference.
struct Blocks {
  std::mutex guard;
  std::unordered_map<double*, size_t> in_use;
  std::vector<Block> idle;  // oldest first
  size_t idle_bytes = 0;

  double* reuse(size_t bytes) {
    const std::lock_guard<std::mutex> lock(guard);
    for (size_t i = idle.size(); i-- > 0;) {
      const Block block = idle[i];
      if (block.bytes < bytes || block.bytes > bytes + bytes / 4) continue;
      idle.erase(idle.begin() + (ptrdiff_t)i);
      idle_bytes -= block.bytes;
      in_use[block.data] = block.bytes;
      return block.data;
    }
    return nullptr;
  }
  void note(double* data, size_t bytes) {
    const std::lock_guard<std::mutex> lock(guard);
    in_use[data] = bytes;
  }
  // What has to be given back to the system.
  std::vector<double*> retire(double* data) {
    const std::lock_guard<std::mutex> lock(guard);
    const auto found = in_use.find(data);
    if (found == in_use.end()) return {data};
    const size_t bytes = found->second;
    in_use.erase(found);
    if (bytes > kKeepAtMost) return {data};
    idle.push_back({data, bytes});
    idle_bytes += bytes;
    std::vector<double*> surplus;
    while (idle_bytes > kKeepAtMost || idle.size() > kKeepBlocks) {
      surplus.push_back(idle.front().data);
      idle_bytes -= idle.front().bytes;
      idle.erase(idle.begin());
    }
    return surplus;
  }
};

Blocks& blocks() {
  static Blocks* all = new Blocks;  // outlives every array that Python may still hold at exit
  return *all;
}

}  // namespace

// First touches of pages cost more than the arithmetic on what they hold, those of small ones most. The part of a
// block that fills no huge page stays in small ones, so that a block never takes more than was asked for, except that
// one of at least half a huge page gets a whole one.
double* new_doubles(size_t count) {
  const size_t bytes = count * sizeof(double);
  if (bytes < kSmall) return (double*)std::malloc(bytes ? bytes : 1);
  const bool huge = bytes >= kHuge / 2;
  const size_t unit = huge ? kHuge : kPage, rounded = (bytes + unit - 1) / unit * unit;
  if (double* data = blocks().reuse(rounded)) return data;
  double* data = (double*)std::aligned_alloc(unit, rounded);
  if (!data) return nullptr;
#ifdef __linux__
  if (huge) madvise(data, bytes < kHuge ? kHuge : bytes / kHuge * kHuge, MADV_HUGEPAGE);
#endif
  blocks().note(data, rounded);
  return data;
}

void free_doubles(double* data) {
  for (double* block : blocks().retire(data)) std::free(block);
}

}  // namespace tallytree
