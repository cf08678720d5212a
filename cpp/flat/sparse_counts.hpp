// Counts near which few variables are undecided: log-odds far apart, where transforms certify nothing.
//
// With the log-odds sorted downwards the best configuration of count k has the first k variables on, and
//
//   log P(k) = sum_{i < k} log p_i + sum_{i >= k} log q_i + log R(k),
//
// where R(k) >= 1 compares all configurations of count k with the best one. Under a tilt s with mean k, R(k) is P_s(k)
// over the probability of that configuration; only variables with |nu + s| <= kUndecided matter, and for them P_s is
// a direct sum of positive terms. No large numbers are subtracted, so every count keeps its relative accuracy.
#pragma once
#include <cstddef>
#include <vector>

namespace tallytree {

class SparseCounts {
 public:
  SparseCounts(const double* nu, ptrdiff_t n);  // finite log-odds
  // Whether so few variables are undecided near count k, 0 < k < n, that this is the quickest way.
  bool few_undecided(ptrdiff_t k) const;
  // Writes log P at k, 0 < k < n, and at what else the same tilt serves; returns the first count after those.
  ptrdiff_t cover(ptrdiff_t k, double* out) const;

 private:
  // Variables with |nu + tilt| <= kUndecided are first .. last - 1.
  struct Window {
    double tilt;
    ptrdiff_t first, last;
  };
  Window under(double tilt) const;
  double mean(const Window& window) const;
  Window with_mean(ptrdiff_t k) const;

  ptrdiff_t n_;
  std::vector<double> nu_;        // sorted downwards
  std::vector<double> on_, off_;  // logs of the probability that the first k are on, that all but the first k are off
};

}  // namespace tallytree
