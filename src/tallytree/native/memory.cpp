#include "memory.hpp"

#include <cstdlib>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tallytree {

// First touches of small pages cost more than the arithmetic on what they hold. The part of a block that fills no huge
// page stays in small ones, so that a block never takes more than was asked for, except that one of at least half
// a huge page gets a whole one.
double* new_doubles(size_t count) {
  const size_t huge = size_t(2) << 20, bytes = count * sizeof(double);
  if (bytes < huge / 2) return (double*)std::malloc(bytes ? bytes : 1);
  const size_t rounded = (bytes + huge - 1) / huge * huge;
  double* data = (double*)std::aligned_alloc(huge, rounded);
#ifdef __linux__
  if (data) madvise(data, bytes < huge ? huge : bytes / huge * huge, MADV_HUGEPAGE);
#endif
  return data;
}

}  // namespace tallytree
