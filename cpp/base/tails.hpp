// Where the ends of a merged message can be cut, known before the merge.
//
// After a transform the far ends hold rounding noise, so they cannot be judged by looking. Chernoff's bound can: for
// every s > 0 the mass of a * b at counts k or more is at most e^{-s k} A(s) B(s), where A(s) = sum_i a(i) e^{s i}.
#pragma once
#include "base/exponent.hpp"

namespace tallytree::TT_LEVEL {

// Ends of a message are cut off while their mass stays below this share of the whole.
constexpr double kTrim = 1e-27;
constexpr int kTrimFrom = 48;  // shorter messages are left whole
constexpr double kTrimDeviations = 10.9;  // a normal tail of mass kTrim / 2 starts here
constexpr double kTrimNats = 62.87;       // -log(kTrim / 2)

struct Moments {
  double mean, variance;
};
static inline Moments moments(const double* a, int n, double sum) {
  vec first = {}, second = {}, k;
  for (int j = 0; j < kLanes; j++) k[j] = j;
  int i = 0;
  for (; i + kLanes <= n; i += kLanes, k += (double)kLanes) {
    const vec x = load(a + i) * k;
    first += x;
    second += x * k;
  }
  double m1 = sum_lanes(first), m2 = sum_lanes(second);
  for (; i < n; i++) m1 += a[i] * i, m2 += a[i] * i * (double)i;
  const double mean = m1 / sum;
  return {mean, max(m2 / sum - mean * mean, 0.0)};
}

// log( sum_i a(i) e^{s (i - centre)} / sum_i a(i) ), centre an integer.
static inline double log_mgf(const double* a, int n, double sum, double s, int centre) {
  vec weight, total = {};
  for (int j = 0; j < kLanes; j++) weight[j] = real::exp(s * (j - centre));
  const double step = real::exp(s * kLanes);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes, weight *= step) total += load(a + i) * weight;
  double rest = sum_lanes(total);
  for (int j = 0; i + j < n; j++) rest += a[i + j] * weight[j];
  return real::log(rest / sum) + 1e-12 * n;
}

// How many of n entries can be cut, walking inwards from an end, without exceeding the budget of their masses.
template <class Mass>
static inline int entries_to_cut(int n, double budget, const Mass& mass) {
  double cut = 0;
  int k = 0;
  for (; k < n - 1; k++) {
    cut += mass(k);
    if (cut > budget) break;
  }
  return k;
}

// Entries of a * b to keep, counted from the first: beyond them lies at most kTrim of the mass in all.
static inline Interval kept_by_chernoff(const double* a, int na, double sum_a, const double* b, int nb, double sum_b) {
  const Moments ma = moments(a, na, sum_a), mb = moments(b, nb, sum_b);
  const int count = na + nb - 1, ca = (int)ma.mean, cb = (int)mb.mean;
  const double deviation = real::sqrt(ma.variance + mb.variance) + 1e-3;
  const double s = min(kTrimDeviations / deviation, 600.0 / count);
  const double right = log_mgf(a, na, sum_a, s, ca) + log_mgf(b, nb, sum_b, s, cb);
  const double left = log_mgf(a, na, sum_a, -s, ca) + log_mgf(b, nb, sum_b, -s, cb);
  const double above = real::ceil(ca + cb + (right + kTrimNats) / s);
  const double below = real::floor(ca + cb - (left + kTrimNats) / s);
  // Comparisons are false for NaN and infinities out of range: then everything is kept.
  return {below > 0 && below < count ? (int)below + 1 : 0, above >= 0 && above < count ? (int)above - 1 : count - 1};
}

}  // namespace tallytree::TT_LEVEL
