// How a direction moves the characteristic function of a sum of Bernoulli variables.
//
//   S(w) = d log Phat(w) = sum_i v_i p_i q_i (e^{iw} - 1) / (q_i + p_i e^{iw}).
// In the notation of spectrum.cpp, d T_j / dt = j (T_{j-1} - T_{j+1}) / 4, so with the weighted deviation sums
// V_j = sum_i v_i sign_i^j (1 - T_j(|x_i|)), V_0 = 0,
//   S(w) = -1/2 sum_j (-i tau)^j (V_{j+1} - V_{j-1}).
// A direction that moves all variables alike acts like the table direction h(k) = k. That part, `shift`, is taken out
// of v, so that S has no term of first order in w and stays small. When the variance is small, with u = e^{iw} - 1,
//   S(w) = sum_j (-1)^{j-1} (u^j (P_j - P_{j+1}) - conj(u)^j (Q_j - Q_{j+1})) + the large deviations one by one,
// P_j and Q_j being the weighted power sums of p over the likely off and of q over the likely on.
#include <algorithm>
#include <cmath>
#include <complex>

#include "flat/tangent.hpp"
#include "base/parallel.hpp"

namespace tallytree {

namespace {

using complex = std::complex<double>;
constexpr ptrdiff_t kChunk = 8192;  // fixed, so that sums do not depend on the number of threads
constexpr ptrdiff_t kWorthThreads = 1 << 17;

// Sums over chunks in extended precision.
WeightedSums sum_weighted(const Kernels& kernels, const Logits& logits, const double* v, double tilt, int count) {
  const ptrdiff_t chunks = (logits.n + kChunk - 1) / kChunk;
  std::vector<WeightedSums> parts((size_t)chunks);
  parallel_for(chunks, logits.n >= kWorthThreads ? logits.threads : 1, [&](ptrdiff_t c) {
    const ptrdiff_t from = c * kChunk, length = std::min(kChunk, logits.n - from);
    kernels.flat->weighted_sums(logits.nu + from, v + from, length, tilt, count, &parts[(size_t)c]);
  });
  if (chunks == 1) return parts[0];
  WeightedSums total{};
  const auto add = [&](auto entry) {
    long double sum = 0;
    for (const WeightedSums& part : parts) sum += entry(part);
    return (double)sum;
  };
  total.on = add([](const WeightedSums& p) { return p.on; });
  total.likely_on = add([](const WeightedSums& p) { return p.likely_on; });
  for (int j = 0; j < count; j++) {
    total.plain[j] = add([j](const WeightedSums& p) { return p.plain[j]; });
    total.weighted[j] = add([j](const WeightedSums& p) { return p.weighted[j]; });
  }
  return total;
}

// S on the frequencies of the spectrum from sums V_1 .. V_{terms + 1}.
void rate_from_chebyshev(const Spectrum& s, const double* v, int terms, double* re, double* im, double* error) {
  std::vector<double> taus((size_t)s.frequencies);
  quarter_tangents(s.period, s.frequencies, taus.data());
  for (int m = 0; m < s.frequencies; m++) {
    const double tau = taus[(size_t)m];
    double a = 0, b = 0, size = 0;
    for (int j = terms; j >= 1; j--) {
      // (a, b) <- -i tau ((a, b) + V_{j+1} - V_{j-1})
      const double before = j > 1 ? v[j - 2] : 0.0, r = a + (v[j] - before);
      a = tau * b;
      b = -tau * r;
      size = tau * (size + std::fabs(v[j]) + std::fabs(before));
    }
    re[m] = -0.5 * a;
    im[m] = -0.5 * b;
    error[m] = kRoundOff * 16 * size;
  }
}

struct LargeDeviations {
  std::vector<double> p, v;
};

void rate_from_powers(const Spectrum& s, const WeightedPowers& sums, const LargeDeviations& large, double* re,
                      double* im, double* error) {
  for (int m = 0; m < s.frequencies; m++) {
    const double half = std::sin(s.w[m] / 2);
    const complex u(-2 * half * half, s.sin_w[m]), e(s.cos_w[m], s.sin_w[m]);
    complex off = 0, on = 0;
    for (int j = kPowers; j >= 1; j--) {
      const double sign = j % 2 ? 1.0 : -1.0;
      off = u * (off + sign * (sums.off[j - 1] - sums.off[j]));
      on = std::conj(u) * (on + sign * (sums.on[j - 1] - sums.on[j]));
    }
    complex total = off - on;
    double size = std::abs(off) + std::abs(on);
    for (size_t i = 0; i < large.p.size(); i++) {
      const double p = large.p[i], q = 1 - p;
      const complex term = large.v[i] * p * q * u / (q + p * e);
      total += term;
      size += std::abs(term) * (1 + 1 / std::abs(q + p * e));
    }
    re[m] = total.real();
    im[m] = total.imag();
    error[m] = kRoundOff * 32 * size;
  }
}

double split_rates(const Kernels& kernels, const Logits& logits, const Spectrum& s, const double* v, double* re,
                   double* im, double* error) {
  WeightedPowers sums;
  LargeDeviations large;
  large.p.resize((size_t)logits.n);
  large.v.resize((size_t)logits.n);
  const ptrdiff_t found =
      kernels.flat->weighted_powers(logits.nu, v, logits.n, s.tilt, &sums, large.p.data(), large.v.data());
  large.p.resize((size_t)found);
  large.v.resize((size_t)found);
  rate_from_powers(s, sums, large, re, im, error);
  double mean = sums.off[0] + sums.weight_on - sums.on[0];
  for (size_t i = 0; i < large.p.size(); i++) mean += large.p[i] * large.v[i];
  return mean;
}

}  // namespace

DirectedSpectrum directed_spectrum(const Kernels& kernels, const Logits& logits, const Directions& directions,
                                   const Piece& piece) {
  DirectedSpectrum d;
  const FlatTotals unused{};  // only the norm of the tilt would need it
  std::vector<WeightedSums> sums((size_t)directions.count);
  int count = piece.split ? 0 : std::min(piece.sums + 1, kMaxChebyshev + 1);
  if (count && directions.count) {
    for (int r = 0; r < directions.count; r++)
      sums[(size_t)r] = sum_weighted(kernels, logits, directions.v_row(r), piece.tilt, count);
    Sums known;
    known.totals = unused;
    known.totals.likely_on = sums[0].likely_on;
    known.deviation.assign(sums[0].plain, sums[0].plain + count);
    d.spectrum = spectrum(logits, unused, piece.tilt, &known);
  } else {
    d.spectrum = spectrum(logits, unused, piece.tilt, nullptr);
  }
  const Spectrum& s = d.spectrum;
  const size_t cells = (size_t)(directions.count * s.padded);
  d.shift.assign((size_t)directions.count, 0.0);
  d.mean.assign((size_t)directions.count, 0.0);
  for (auto* x : {&d.rate_re, &d.rate_im, &d.rate_error}) x->assign(cells, 0.0);
  const int terms = (int)s.deviation.size();
  for (int r = 0; r < directions.count; r++) {
    double *re = &d.rate_re[(size_t)(r * s.padded)], *im = &d.rate_im[(size_t)(r * s.padded)];
    double* error = &d.rate_error[(size_t)(r * s.padded)];
    if (s.split) {
      d.mean[(size_t)r] = split_rates(kernels, logits, s, directions.v_row(r), re, im, error);
      continue;
    }
    WeightedSums& w = sums[(size_t)r];
    if (terms + 1 > count) w = sum_weighted(kernels, logits, directions.v_row(r), piece.tilt, terms + 1);
    const double shift = w.weighted[1] / w.plain[1];
    for (int j = 0; j <= terms; j++) w.weighted[j] -= shift * w.plain[j];
    rate_from_chebyshev(s, w.weighted, terms, re, im, error);
    d.shift[(size_t)r] = shift;
    d.mean[(size_t)r] = (w.on - shift * w.likely_on) - 0.5 * w.weighted[0];
  }
  return d;
}

}  // namespace tallytree
