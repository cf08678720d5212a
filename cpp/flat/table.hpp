// The logarithm of a potential as the solver sees it: on windows, and by its largest value under a slope. A potential
// over 10^9 variables need not have a table of that length.
#pragma once
#include <cstddef>
#include <vector>

#include "flat/kernels.hpp"

namespace tallytree {

// Counts first .. last; none if last < first.
struct Range {
  ptrdiff_t first, last;
  bool empty() const { return last < first; }
};

// The first and the last entry above -inf; count and -1 if there is none.
ptrdiff_t first_possible(const FlatKernels& kernels, const double* log_f, ptrdiff_t count);
ptrdiff_t last_possible(const FlatKernels& kernels, const double* log_f, ptrdiff_t count);

class CountTable {
 public:
  virtual double at(ptrdiff_t k) const = 0;
  // log f at first, first + 1, ...; valid until `room` is changed.
  virtual const double* window(ptrdiff_t first, ptrdiff_t length, std::vector<double>* room) const = 0;
  // Largest log f(k) - slope (k - origin) of the range; -inf if it is empty or impossible.
  virtual double largest(Range range, double slope, double origin) const = 0;
  // First and last possible count of the range.
  virtual Range possible(Range range) const = 0;
  virtual bool any_possible(Range range) const { return !possible(range).empty(); }

 protected:
  ~CountTable() = default;
};

// A table in memory, counts first, first + 1, ...
class ArrayTable final : public CountTable {
 public:
  ArrayTable(const FlatKernels* kernels, int threads, const double* log_f, ptrdiff_t first = 0)
      : kernels_(kernels), threads_(threads), log_f_(log_f), first_(first) {}
  double at(ptrdiff_t k) const override { return log_f_[k - first_]; }
  const double* window(ptrdiff_t first, ptrdiff_t, std::vector<double>*) const override {
    return log_f_ + (first - first_);
  }
  double largest(Range range, double slope, double origin) const override;
  Range possible(Range range) const override;
  bool any_possible(Range range) const override;

 private:
  const FlatKernels* kernels_;
  int threads_;
  const double* log_f_;
  ptrdiff_t first_;
};

}  // namespace tallytree
