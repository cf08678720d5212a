#include "flat/sparse_counts.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/sigmoid.hpp"

namespace tallytree {

namespace {

constexpr double kUndecided = 100;  // beyond, a variable errs with probability e^-100
constexpr double kLeast = 1e-12;    // probabilities under a tilt that are read off: far above n e^-kUndecided
constexpr double kDropped = 1e-60;  // ends of a partial sum that no such probability can feel
constexpr ptrdiff_t kFew = 32;      // variables on each side of a count

double softplus(double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

// P(sum = first + j) of independent variables, entries below kDropped at the ends cut off.
struct Partial {
  ptrdiff_t first = 0;
  std::vector<double> p = {1.0};

  void add(double on, double off) {
    p.push_back(0.0);
    for (size_t j = p.size() - 1; j > 0; j--) p[j] = p[j] * off + p[j - 1] * on;
    p[0] *= off;
    size_t start = 0, stop = p.size();
    while (start + 1 < stop && p[start] < kDropped) start++;
    while (stop > start + 1 && p[stop - 1] < kDropped) stop--;
    p.erase(p.begin() + (ptrdiff_t)stop, p.end());
    p.erase(p.begin(), p.begin() + (ptrdiff_t)start);
    first += (ptrdiff_t)start;
  }
  double at(ptrdiff_t k) const {
    return k < first || k >= first + (ptrdiff_t)p.size() ? 0.0 : p[(size_t)(k - first)];
  }
};

}  // namespace

SparseCounts::SparseCounts(const double* nu, ptrdiff_t n)
    : n_(n), nu_(nu, nu + n), on_((size_t)n + 1, 0.0), off_((size_t)n + 1, 0.0) {
  std::sort(nu_.begin(), nu_.end(), std::greater<>());
  long double total = 0;
  for (size_t i = 0; i < (size_t)n; i++) on_[i + 1] = (double)(total -= softplus(-nu_[i]));
  total = 0;
  for (size_t i = (size_t)n; i-- > 0;) off_[i] = (double)(total -= softplus(nu_[i]));
}

bool SparseCounts::few_undecided(ptrdiff_t k) const {
  const auto apart = [&](ptrdiff_t high, ptrdiff_t low) { return nu_[(size_t)high] - nu_[(size_t)low] > 0.5 * kUndecided; };
  return (k <= kFew || apart(k - kFew - 1, k - 1)) && (k + kFew >= n_ || apart(k, k + kFew));
}

SparseCounts::Window SparseCounts::under(double tilt) const {
  const auto begin = nu_.begin(), end = nu_.end();
  const auto first = std::partition_point(begin, end, [&](double x) { return x + tilt > kUndecided; });
  const auto last = std::partition_point(first, end, [&](double x) { return x + tilt >= -kUndecided; });
  return {tilt, first - begin, last - begin};
}

double SparseCounts::mean(const Window& window) const {
  double total = (double)window.first;
  for (ptrdiff_t i = window.first; i < window.last; i++) total += sigmoid(nu_[(size_t)i] + window.tilt);
  return total;
}

// At the first bound at most k - 1 variables and a part of one are on; at the second at least k + 1 less a part of one.
SparseCounts::Window SparseCounts::with_mean(ptrdiff_t k) const {
  const double margin = std::log((double)n_) + 5;
  double low = -nu_[(size_t)k - 1] - margin, high = -nu_[(size_t)k] + margin;
  Window window = under(0.5 * (low + high));
  while (low < window.tilt && window.tilt < high) {
    const double excess = mean(window) - (double)k;
    if (std::fabs(excess) < 0.1) break;
    (excess < 0 ? low : high) = window.tilt;
    window = under(0.5 * (low + high));
  }
  return window;
}

ptrdiff_t SparseCounts::cover(ptrdiff_t k, double* out) const {
  const Window window = with_mean(k);
  Partial sum;
  double best = 0;  // log-probability of the best configuration of count k under the tilt
  for (ptrdiff_t i = window.first; i < window.last; i++) {
    const double x = nu_[(size_t)i] + window.tilt;
    sum.add(sigmoid(x), sigmoid(-x));
    best -= softplus(i < k ? -x : x);
  }
  do {
    out[k] = on_[(size_t)k] + off_[(size_t)k] + (std::log(sum.at(k - window.first)) - best);
    best += nu_[(size_t)k] + window.tilt;  // of count k + 1
    k++;
  } while (k < n_ && k < window.last && sum.at(k - window.first) > kLeast);
  return k;
}

}  // namespace tallytree
