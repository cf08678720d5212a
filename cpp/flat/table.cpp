// A table in memory.
#include "flat/table.hpp"

#include <algorithm>

#include "base/constants.hpp"
#include "base/parallel.hpp"

namespace tallytree {

namespace {

constexpr ptrdiff_t kChunk = 1 << 16;
constexpr ptrdiff_t kWorthThreads = 1 << 18;
constexpr ptrdiff_t kAtATime = 1024;  // entries that are looked at together

bool none_possible(const FlatKernels& kernels, const double* log_f) {
  return kernels.max_table(log_f, kAtATime, 0, 0) == -kInfinity;
}

}  // namespace

ptrdiff_t first_possible(const FlatKernels& kernels, const double* log_f, ptrdiff_t count) {
  ptrdiff_t j = 0;
  while (count - j >= kAtATime && none_possible(kernels, log_f + j)) j += kAtATime;
  while (j < count && log_f[j] == -kInfinity) j++;
  return j;
}

ptrdiff_t last_possible(const FlatKernels& kernels, const double* log_f, ptrdiff_t count) {
  ptrdiff_t j = count;
  while (j >= kAtATime && none_possible(kernels, log_f + j - kAtATime)) j -= kAtATime;
  while (j > 0 && log_f[j - 1] == -kInfinity) j--;
  return j - 1;
}

double ArrayTable::largest(Range range, double slope, double origin) const {
  const ptrdiff_t length = range.last - range.first + 1;
  if (length <= 0) return -kInfinity;
  if (length < kWorthThreads)
    return kernels_->max_table(log_f_ + (range.first - first_), length, slope, (double)range.first - origin);
  std::vector<double> largest((size_t)((length + kChunk - 1) / kChunk));
  over_parts(length, kChunk, threads_, [&](ptrdiff_t at, ptrdiff_t count) {
    const ptrdiff_t from = range.first + at;
    largest[(size_t)(at / kChunk)] = kernels_->max_table(log_f_ + (from - first_), count, slope, (double)from - origin);
  });
  return *std::max_element(largest.begin(), largest.end());
}

Range ArrayTable::possible(Range r) const {
  if (r.empty()) return r;
  r.first += first_possible(*kernels_, log_f_ + (r.first - first_), r.last - r.first + 1);
  if (!r.empty()) r.last = r.first + last_possible(*kernels_, log_f_ + (r.first - first_), r.last - r.first + 1);
  return r;
}

bool ArrayTable::any_possible(Range r) const {
  const ptrdiff_t count = r.last - r.first + 1;
  return count > 0 && first_possible(*kernels_, log_f_ + (r.first - first_), count) < count;
}

}  // namespace tallytree
