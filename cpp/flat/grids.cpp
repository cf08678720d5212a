// How finely a spectrum is sampled: its roots of unity, to the last bit, and how far its series have to go.
#include <array>
#include <cmath>
#include <vector>

#include "base/once.hpp"
#include "flat/flat.hpp"

namespace tallytree {

namespace {

constexpr long double kLongPi = 3.14159265358979323846264338327950288L;
constexpr ptrdiff_t kKept = 512;  // longer periods belong to models that take longer than their roots

// e^{i m step} for m < count: each is the product of two others, about log2(m) products deep, in extended precision.
struct Powers {
  std::vector<long double> re, im;
  Powers(ptrdiff_t count, long double step) : re((size_t)count + 2), im((size_t)count + 2) {
    re[0] = 1;
    im[0] = 0;
    re[1] = cosl(step);
    im[1] = sinl(step);
    for (size_t m = 2; m < (size_t)count; m++) {
      const size_t a = m / 2, b = m - a;
      re[m] = re[a] * re[b] - im[a] * im[b];
      im[m] = re[a] * im[b] + im[a] * re[b];
    }
  }
  void copy(size_t from, size_t to, const RootsTo& out) const {
    out.cos[to] = (double)re[from];
    out.sin[to] = (double)im[from];
    if (!out.off_cos) return;
    out.off_cos[to] = (double)(out.cos[to] - re[from]);
    out.off_sin[to] = (double)(out.sin[to] - im[from]);
  }
  double tangent(size_t m) const { return (double)(im[m] / re[m]); }
};

// All roots of one period, and the tangents of a quarter of the angles below pi.
struct Roots {
  std::vector<double> cos, sin, off_cos, off_sin, tangent;
  explicit Roots(ptrdiff_t period) {
    const Powers turn(period, 2 * kLongPi / (long double)period);
    for (auto* x : {&cos, &sin, &off_cos, &off_sin}) x->resize((size_t)period);
    for (size_t m = 0; m < (size_t)period; m++)
      turn.copy(m, m, {cos.data(), sin.data(), off_cos.data(), off_sin.data()});
    const ptrdiff_t half = (period + 1) / 2;
    const Powers quarter(half, 0.5L * kLongPi / (long double)period);
    for (ptrdiff_t m = 0; m < half; m++) tangent.push_back(quarter.tangent((size_t)m));
  }
};

// Kept: the models of a batch share a few periods.
const Roots& kept_roots(ptrdiff_t period) {
  static std::atomic<const Roots*> all[kKept] = {};
  return made_once(all[period], [&] { return std::make_unique<const Roots>(period); });
}

}  // namespace

void roots_of_unity(ptrdiff_t period, ptrdiff_t step, int count, const RootsTo& out) {
  if (period >= kKept) {
    const Powers turn(count, 2 * kLongPi * (long double)step / (long double)period);
    for (int m = 0; m < count; m++) turn.copy((size_t)m, (size_t)m, out);
    return;
  }
  const Roots& roots = kept_roots(period);
  const ptrdiff_t forward = (step % period + period) % period;
  ptrdiff_t at = 0;
  for (int m = 0; m < count; m++) {
    out.cos[m] = roots.cos[(size_t)at];
    out.sin[m] = roots.sin[(size_t)at];
    if (out.off_cos) {
      out.off_cos[m] = roots.off_cos[(size_t)at];
      out.off_sin[m] = roots.off_sin[(size_t)at];
    }
    at += forward;
    at -= at >= period ? period : 0;
  }
}

void quarter_tangents(ptrdiff_t period, int count, double* out) {
  if (period < kKept) {
    const Roots& roots = kept_roots(period);
    for (int m = 0; m < count; m++) out[m] = roots.tangent[(size_t)m];
    return;
  }
  const Powers quarter(count, 0.5L * kLongPi / (long double)period);
  for (int m = 0; m < count; m++) out[m] = quarter.tangent((size_t)m);
}

// -- numbers of terms ----------------------------------------------------------------------------------------------
//
// How far the series of a spectrum have to go.
//
// In the notation of spectrum.cpp, leaving out the sums beyond A_J moves log Phat(w) by at most
//   2 sum_{j > J} tau^j |A_j| / j <= sum_{j > J} 8 var j tau^j,
// and Phat(w) by that share of itself, which is at most exp(-var (1 - cos w)): where tau is large, nothing is left of
// Phat. The Chebyshev coefficients of a leave-one-out ratio fall off in the same way: those of 1 / (q + p e^{iw}) like
// tau^j, and they come with the weight of Phat(w).

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
