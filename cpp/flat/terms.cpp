// How far the series of a spectrum have to go.
//
// In the notation of spectrum.cpp, leaving out the sums beyond A_J moves log Phat(w) by at most
//   2 sum_{j > J} tau^j |A_j| / j <= sum_{j > J} 8 var j tau^j,
// and Phat(w) by that share of itself, which is at most exp(-var (1 - cos w)): where tau is large, nothing is left of
// Phat. The Chebyshev coefficients of a leave-one-out ratio fall off in the same way: those of 1 / (q + p e^{iw}) like
// tau^j, and they come with the weight of Phat(w).
#include <array>
#include <cmath>

#include "flat/flat.hpp"

namespace tallytree {

namespace {

constexpr double kLeftOut = 2e-17;   // of a spectrum, whose rounding is a few units of 1e-16
constexpr double kSampled = 1e-18;   // of a ratio; where a table makes it rougher, more nodes follow
constexpr double kLogHighest = 46;   // of a variance that 4 sums serve

// tau^j exp(-var (1 - cos w)) at its largest: with s = sin(w / 2)^2, where s sqrt(1 - s) = j / (4 var).
double largest_term(int j, double variance) {
  const double target = j / (4 * variance);
  double s = target;
  for (int step = 0; step < 20; step++) s = std::fmin(target / std::sqrt(1 - s), 2.0 / 3);
  const double tau = std::sqrt(s) / (1 + std::sqrt(1 - s));
  return std::exp(j * std::log(tau) - 2 * variance * s);
}

double of_spectrum(int j, double variance) { return 8 * (variance + 1) * j * largest_term(j, variance) / kLeftOut; }
double of_ratio(int j, double variance) { return largest_term(j, variance) / kSampled; }

// The variances from which on j terms are enough, that is, `size` is below 1.
using LeastVariances = std::array<double, kMaxChebyshev + 1>;

template <class Size>
LeastVariances least_variances(const Size& size) {
  LeastVariances least{};
  for (int j = 1; j <= kMaxChebyshev; j++) {
    double low = std::log(0.5 * kSmallVariance), high = kLogHighest;
    for (int step = 0; step < 40; step++) {
      const double middle = 0.5 * (low + high);
      (size(j, std::exp(middle)) > 1 ? low : high) = middle;
    }
    least[(size_t)j] = std::exp(high);
  }
  return least;
}

int terms_for(double variance, const LeastVariances& least, int fewest) {
  int j = fewest;
  while (j < kMaxChebyshev && variance < least[(size_t)j]) j++;
  return j;
}

}  // namespace

int sums_needed(double variance) {
  static const LeastVariances least = least_variances(of_spectrum);
  return terms_for(variance, least, 4);
}

int sums_expected(double variance) { return sums_needed(0.95 * variance); }

int first_sums(ptrdiff_t n) { return sums_needed(0.15 * (double)n); }

int nodes_to_begin(double variance) {
  static const LeastVariances least = least_variances(of_ratio);
  return terms_for(variance, least, 8);
}

}  // namespace tallytree
