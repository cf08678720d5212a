// What the two ways to solve a flat model in a batch cost, in nanoseconds per variable: fits to a grid of sizes, windows
// and batches, with eight lanes. They choose the quicker way; neighbours cost about the same, so nothing hangs on a digit.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/constants.hpp"
#include "flat/flat.hpp"

namespace tallytree {

// The counts that a table of n + 1 entries allows.
inline Range support_of(const FlatKernels& kernels, const double* log_f, ptrdiff_t n) {
  return {first_possible(kernels, log_f, n + 1), last_possible(kernels, log_f, n + 1)};
}

// Largest count in the messages of a direct tree, which counts zeros where these are fewer.
inline ptrdiff_t counts_carried(Range support, ptrdiff_t n) { return std::min(support.last, n - support.first); }

// A direct tree that shares its register with others; `filled` is the share of the lanes that are in use.
inline double direct_cost(ptrdiff_t n, Range support, double filled) {
  const double half = 0.5 * (double)n, m = (double)counts_carried(support, n);
  return (6 + 0.1 * std::fmin(m, half) + 0.025 * std::fmax(m - half, 0.0)) / filled;
}

// A series under tilt 0 that is not split.
inline double least_series_cost(ptrdiff_t n) { return 9 + 4500 / (double)n; }

// The count's mean and variance under tilt 0, and what the spread of the log-odds leaves of the variance of equal ones.
struct Untilted {
  double n, mean, variance, share;
  Untilted(ptrdiff_t variables, const Sums& sums)
      : n((double)variables), mean(sums.mean()), variance(sums.variance()) {
    const double equal = mean * (1 - mean / n);
    share = equal > 0 ? std::fmin(1.0, variance / equal) : 1.0;
  }
  double nearest(Range support) const { return std::clamp(mean, (double)support.first, (double)support.last); }
  // Nats by which the allowed counts are less likely than 1: n KL(k / n, mean / n) for equal log-odds.
  double nats_away(Range support) const {
    const double k = nearest(support);
    const auto part = [](double a, double b) { return a > 0 ? a * std::log(a / b) : 0.0; };
    return std::fmax(0.0, part(k, mean) + part(n - k, n - mean)) / share;
  }
  // A direct tree has to be tilted: plain numbers are about to end.
  bool hopeless(Range support) const { return nats_away(support) > 600; }
};

// Whether tilt 0 is unlikely to have a certificate: the table is by far larger than its mean, as the normal law sees it.
inline bool needs_tilt(const double* log_f, Range support, double mean, double variance) {
  constexpr double kAmplified = 6;  // nats
  const double reach = 9 * std::sqrt(variance) + 30, bend = 0.5 / (variance + 0.1);
  double top = -kInfinity, best = -kInfinity;
  const ptrdiff_t first = std::max(support.first, (ptrdiff_t)(mean - reach));
  const ptrdiff_t last = std::min(support.last, (ptrdiff_t)(mean + reach));
  for (ptrdiff_t k = first; k <= last; k++) {
    const double away = (double)k - mean, weight = log_f[k] - bend * away * away;
    top = log_f[k] > top ? log_f[k] : top;
    best = weight > best ? weight : best;
  }
  return !(top - best < kAmplified);  // without a count in reach both are -inf
}

// What the search for a tilt adds.
inline double tilt_cost(Range support) { return support.first == support.last ? 10 : 16; }

// A series. Split ones cost most where the variance is nearly large enough.
inline double series_cost(const Untilted& model, const double* log_f, Range support) {
  const double n = model.n, k = model.nearest(support);
  if (!needs_tilt(log_f, support, model.mean, model.variance))
    return least_series_cost((ptrdiff_t)n) + (model.variance < kSmallVariance ? 14000 / n : 0.0);
  if (k == model.mean) return 35 + 15000 / n;  // nothing but slopes of the table keeps counts away: several pieces
  const bool split = model.share * k * (1 - k / n) < 1.4 * kSmallVariance;  // a guess, rather too often than too rarely
  return 10 + (support.first == support.last ? 7500 : 13000) / n + (split ? 28000 / n : 0.0);
}

}  // namespace tallytree
