// A long row in chunks of fixed size, over threads: sums do not depend on the number of threads.
#pragma once
#include <algorithm>

#include "flat/flat.hpp"
#include "base/parallel.hpp"

namespace tallytree {

constexpr ptrdiff_t kChunk = 1 << 15;         // variables
constexpr ptrdiff_t kWorthThreads = 1 << 16;  // variables

inline ptrdiff_t chunk_count(const Logits& logits) { return (logits.n + kChunk - 1) / kChunk; }

// Calls pass(from, length) for every chunk; number from / kChunk.
template <class Pass>
void in_chunks(const Logits& logits, const Pass& pass) {
  parallel_for(chunk_count(logits), logits.n >= kWorthThreads ? logits.threads : 1, [&](ptrdiff_t c) {
    const ptrdiff_t from = c * kChunk;
    pass(from, std::min(kChunk, logits.n - from));
  });
}

}  // namespace tallytree
