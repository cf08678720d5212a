// Merging two messages by FFT, upwards and downwards, and when that pays.
#pragma once
#include "base/convolve.hpp"
#include "base/fft.hpp"

namespace tallytree::TT_LEVEL {

// Costs, in cycles, of a direct merge with its two adjoints and of the six transforms that replace them. A direct
// merge is also more accurate, so transforms must win clearly: on a 4096-leaf clustering tree this choice is as fast
// as the break-even one and its error bound four times smaller.
static inline bool fft_pays(int na, int nb, int N) {
  if (min(na, nb) < 32) return false;
  const double direct = 3 * (0.6 * na * nb / kLanes + 40), transforms = 6 * (0.55 * N * real::log2(N) / kLanes + 60);
  return 3 * transforms < direct;
}

// A negacyclic transform of length N holds N + 1 outputs: the one that wraps around is known and repaired.
static inline int merge_length(int na, int nb) { return fft_length((int64_t)na + nb - 2); }

// How far the errors of a transformed product a * b can shift its inner product with a weight vector g of length n:
// an entry is wrong by at most 1.5 log2(N) u |a|_2 |b|_2 (twice what was measured on smooth, rough, sparse and
// constant vectors), all of them together by 0.5 sqrt(N) log2(N) u |a|_2 |b|_2 in the Euclidean norm (likewise).
static inline double transform_error(int N, double norm_a, double norm_b, double sum_g, double norm_g) {
  return real::log2(N) * kUnitRoundoff * norm_a * norm_b * min(1.5 * sum_g, 0.5 * real::sqrt(N) * norm_g);
}

static inline void padded_spectrum(const double* a, int na, double* spectrum, double* scratch, const FftPlan& plan) {
  std::memcpy(scratch, a, sizeof(double) * (size_t)na);
  fill(scratch + na, plan.length - na, 0.0);
  fft_forward(scratch, spectrum, plan);
}

// out = a * b, negative values (all of them rounding errors) set to 0. The spectra of a and b are kept; out and
// product hold N + kLanes doubles.
static inline void convolve_fft(const double* a, int na, const double* b, int nb, double* out, double* a_spectrum,
                                double* b_spectrum, double* product, const FftPlan& plan) {
  const int N = plan.length, count = na + nb - 1;
  padded_spectrum(a, na, a_spectrum, out, plan);
  padded_spectrum(b, nb, b_spectrum, out, plan);
  multiply_spectra<false>(a_spectrum, b_spectrum, N, product);
  fft_backward(product, out, plan);
  if (count == N + 1) {  // entry N has come back at 0, negated
    const double last = a[na - 1] * b[nb - 1];
    out[0] += last;
    out[N] = last;
  }
  for (int k = 0; k < count; k += kLanes) store(out + k, max(load(out + k), vec{}));
}

// The spectrum of g, which has `count` <= N + 1 entries.
static inline void correlate_fft_prepare(const double* g, int count, double* g_spectrum, double* scratch,
                                         const FftPlan& plan) {
  const int N = plan.length, kept = min(count, N);
  std::memcpy(scratch, g, sizeof(double) * (size_t)kept);
  fill(scratch + kept, N - kept, 0.0);
  if (count == N + 1) scratch[0] -= g[N];
  fft_forward(scratch, g_spectrum, plan);
}

// out[k] = sum_j g[k+j] u[j] for k < n, from the spectra, where g has n + nu - 1 entries.
static inline void correlate_fft(const double* g_spectrum, const double* u_spectrum, const double* g, const double* u,
                                 int nu, int n, double* out, double* product, const FftPlan& plan) {
  const int N = plan.length;
  multiply_spectra<true>(g_spectrum, u_spectrum, N, product);
  fft_backward(product, out, plan);
  if (n + nu - 1 == N + 1) {
    out[0] += g[N] * u[0];
    out[n - 1] += g[0] * u[nu - 1];
  }
  for (int k = 0; k < n; k += kLanes) store(out + k, max(load(out + k), vec{}));
}

// Where the ends of a merged message can be cut, known before the merge.
//
// After a transform the far ends hold rounding noise, so they cannot be judged by looking. Chernoff's bound can: for
// every s > 0 the mass of a * b at counts k or more is at most e^{-s k} A(s) B(s), where A(s) = sum_i a(i) e^{s i}.

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
