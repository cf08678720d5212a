// A table in memory.
#include "flat/table.hpp"

#include <algorithm>

#include "base/constants.hpp"
#include "base/parallel.hpp"

namespace tallytree {

namespace {

constexpr ptrdiff_t kChunk = 1 << 16;
constexpr ptrdiff_t kWorthThreads = 1 << 18;

}  // namespace

double ArrayTable::largest(Range range, double slope, double origin) const {
  const ptrdiff_t length = range.last - range.first + 1;
  if (length <= 0) return -kInfinity;
  if (length < kWorthThreads)
    return kernels_->max_table(log_f_ + (range.first - first_), length, slope, (double)range.first - origin);
  const ptrdiff_t chunks = (length + kChunk - 1) / kChunk;
  std::vector<double> largest((size_t)chunks);
  parallel_for(chunks, threads_, [&](ptrdiff_t c) {
    const ptrdiff_t from = range.first + c * kChunk;
    largest[(size_t)c] = kernels_->max_table(log_f_ + (from - first_), std::min(kChunk, range.last + 1 - from), slope,
                                             (double)from - origin);
  });
  return *std::max_element(largest.begin(), largest.end());
}

Range ArrayTable::possible(Range r) const {
  while (!r.empty() && at(r.first) == -kInfinity) r.first++;
  while (!r.empty() && at(r.last) == -kInfinity) r.last--;
  return r;
}

bool ArrayTable::any_possible(Range r) const {
  while (!r.empty() && at(r.first) == -kInfinity) r.first++;
  return !r.empty();
}

}  // namespace tallytree
