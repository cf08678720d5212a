// Memory of the passes: arenas, per-thread scratch and the cache of FFT plans; and of the arrays that go to Python.
#pragma once
#include <memory>
#include <new>
#include <vector>

#include "base/worker.hpp"

namespace tallytree {

constexpr std::align_val_t kAlignment{64};  // a cache line

struct FreeAligned {
  void operator()(double* p) const { ::operator delete(p, kAlignment); }
};
using AlignedArray = std::unique_ptr<double, FreeAligned>;
AlignedArray aligned_doubles(size_t n);

struct Arena {
  struct Slab {
    AlignedArray data;
    size_t size;
  };
  std::vector<Slab> blocks;
  size_t block = 0, used = 0;

  void reset() { block = used = 0; }
};

std::shared_ptr<PlanCache> new_plan_cache();

// An array that goes to Python: large ones are in huge pages, and a few freed ones are kept for the next.
struct DoubleBlock {
  double* data;
  size_t bytes;
};
DoubleBlock* new_doubles(size_t count);
void free_doubles(DoubleBlock* block) noexcept;

// One thread's memory.
struct WorkerMemory {
  Arena arena;
  AlignedArray scratch;
  size_t stride = 0;

  Worker worker(size_t longest);
};

}  // namespace tallytree
