// The logits as far as tilts are concerned: a histogram that knows the mean and the spread inside each bin.
//
// It serves to choose tilts, where nothing depends on its accuracy, and to bound K(s) from above, which is rigorous:
// inside a bin, K is at most its value at the mean plus half the spread times the largest K'' of the bin.
#pragma once
#include <vector>

#include "flat/flat.hpp"

namespace tallytree {

struct Tilt {
  double s, log_norm /* K(s), from above */, mean, variance;
  double rate() const { return s * mean - log_norm; }
};

class LogitSummary {
 public:
  LogitSummary(const Source& source, const FlatTotals& untilted);
  // For a search that looks at many tilts: wider bins, where they are much fewer than what there is.
  void gather();
  Tilt at(double s) const;
  // The tilt whose mean is about `target`, 0 < target < n.
  Tilt with_mean(double target, double start) const;
  // The same to a tenth of a standard deviation, and without log_norm.
  Tilt roughly_with_mean(double target) const;

 private:
  void add(const Bin& bin, double low, double step);
  // The tilt whose mean is within `near` standard deviations of `target`; `moments` are its mean and variance.
  double solve(double target, double start, double near, double* moments) const;
  const FlatKernels* kernels_;
  std::vector<double> value_, weight_, spread_;
  double count_, growth_ = 1, smallest_, largest_;
};

}  // namespace tallytree
