// The characteristic function of a sum of Bernoulli variables from a few sums over the variables.
//
// With x = tanh(t / 2) and tau = tan(w / 4),
//   log(q + p e^{iw}) = i w / 2 + 2 log cos(w / 4) - 2 sum_j (-i tau)^j T_j(x) / j.
// At x = +-1 the left side is i w or 0, so with A_j = sum_i sign^j (1 - T_j(|x|)):
//   log Phat(w) = i w n_on + 2 sum_j (-i tau)^j A_j / j.
// |Phat(w)| <= exp(-var (1 - cos w)) leaves a few dozen frequencies, and tau is small, when var is large. When var is
// small, w reaches pi; then all but 10 var variables have a deviation below 0.1 and power sums of it converge.
#include <cmath>
#include <utility>

#include "base/constants.hpp"
#include "flat/flat.hpp"

namespace tallytree {

namespace {

constexpr int kPaddingCounts = 24;          // leave-one-out terms of virtual leaves decay like 9^-j into them

double widest_frequency(double variance) {
  const double c = 1 - kBudget / std::fmax(variance, 1e-300);
  return c > -1 ? std::acos(c) : kPi;
}

void fill_from_chebyshev(const std::vector<double>& a, double mean, Spectrum* s) {
  const int count = (int)a.size();
  std::vector<double> share((size_t)count + 1), sums((size_t)(3 * s->padded), 0.0);
  for (int j = 1; j <= count; j++) share[(size_t)j] = a[(size_t)j - 1] / j;
  double *taus = sums.data(), *real = taus + s->padded, *imaginary = real + s->padded;
  quarter_tangents(s->period, s->frequencies, taus);
  // sum_{j >= 2} (-i tau)^j A_j / j, real and imaginary parts from even and odd j, at all frequencies:
  // (re, im) <- -i tau ((re, im) + A_j / j).
  for (int j = count; j >= 2; j--)
    for (int m = 0; m < s->padded; m++) {
      const double r = real[m] + share[(size_t)j];
      real[m] = taus[m] * imaginary[m];
      imaginary[m] = -taus[m] * r;
    }
  for (int m = 0; m < s->frequencies; m++) {
    const double w = s->w[m], tau = taus[m];
    const double r2 = tau * imaginary[m], i2 = -tau * real[m];
    // The j = 1 term joins the phase: i w n_on - 2 i tau A_1 = i w mean - i (2 tau - w / 2) A_1.
    const double phase = w * (mean - s->centre) - (2 * tau - w / 2) * a[0] + 2 * i2;
    const double size = std::exp(2 * r2);
    s->re[m] = size * std::cos(phase);
    s->im[m] = size * std::sin(phase);
  }
}

void fill_from_powers(const Source& source, Spectrum* s) {
  SmallSums small = source.small_sums(s->tilt);
  const double *off = small.off, *on = small.on;
  s->likely_on = small.likely_on;
  s->large = std::move(small.large);
  double share_off[kPowers], share_on[kPowers];
  for (int j = 0; j < kPowers; j++) {
    const double sign = j % 2 ? -1.0 : 1.0;
    share_off[j] = sign * off[j] / (j + 1);
    share_on[j] = sign * on[j] / (j + 1);
  }
  for (int m = 0; m < s->frequencies; m++) {
    // sum_j u^j off_j + conj(u)^j on_j with u = e^{iw} - 1, by Horner's rule in both.
    const double half = std::sin(s->w[m] / 2), ur = -2 * half * half, ui = s->sin_w[m];
    double off_re = 0, off_im = 0, on_re = 0, on_im = 0;
    for (int j = kPowers - 1; j >= 0; j--) {
      const double a = off_re + share_off[j], b = on_re + share_on[j];
      off_re = ur * a - ui * off_im;
      off_im = ur * off_im + ui * a;
      on_re = ur * b + ui * on_im;
      on_im = ur * on_im - ui * b;
    }
    const double size = std::exp(off_re + on_re), phase = off_im + on_im + s->w[m] * (s->likely_on - s->centre);
    s->re[m] = size * std::cos(phase);
    s->im[m] = size * std::sin(phase);
  }
  source.kernels->multiply_factors(s->large.data(), (ptrdiff_t)s->large.size(), s->cos_w.data(), s->sin_w.data(), s->padded,
                                   s->re.data(), s->im.data());
}

}  // namespace

// `known`: sums at this very tilt, if there are any; more are taken if they do not reach far enough.
Spectrum spectrum(const Source& source, const FlatTotals& untilted, double tilt, const Sums* known,
                  double variance) {
  Sums sums;
  if (known) {
    sums = *known;
  } else {
    sums = source.sums(tilt, variance > 0 ? sums_expected(variance) : first_sums(source.n));
  }
  Spectrum s;
  s.tilt = tilt;
  s.mean = sums.mean();
  s.variance = sums.variance();
  s.tilt_norm = tilt_norm(untilted, sums.totals, tilt);
  s.split = s.variance < kSmallVariance;
  s.likely_on = sums.totals.likely_on;
  // Bernstein: P(|z - mean| > t) <= 2 exp(-t^2 / (2 (var + t / 3)))
  const double reach = kBudget / 3 + std::sqrt(kBudget * kBudget / 9 + 2 * kBudget * s.variance) + 1;
  s.low = (ptrdiff_t)std::fmax(0.0, std::floor(s.mean - reach));
  s.high = (ptrdiff_t)std::fmin((double)source.n, std::ceil(s.mean + reach));
  s.period = s.split ? s.high - s.low + 1 + kPaddingCounts : 2 * (ptrdiff_t)std::ceil(reach) + 3;
  s.period |= 1;  // odd: w = pi, where a factor with p = 1/2 vanishes, is not on the grid
  s.centre = std::round(s.mean);

  const double widest = widest_frequency(s.variance);
  const ptrdiff_t wanted = (ptrdiff_t)std::ceil((double)s.period * widest / (2 * kPi));
  s.frequencies = (int)(1 + (wanted < (s.period - 1) / 2 ? wanted : (s.period - 1) / 2));
  fill_frequencies(source.lanes, &s);
  if (s.split) {
    fill_from_powers(source, &s);
  } else {
    const int needed = sums_needed(s.variance);
    if (needed > (int)sums.deviation.size()) sums.deviation = source.sums(tilt, needed).deviation;
    sums.deviation.resize((size_t)needed);
    fill_from_chebyshev(sums.deviation, s.mean, &s);
    s.deviation = std::move(sums.deviation);
  }
  return s;
}

// The sums are right to a few units of relative round-off, and |A_j| <= 4 j^2 var; the phase w mean dominates. Each
// factor that was multiplied on its own adds about four roundings.
void fill_frequencies(int lanes, Spectrum* s) {
  s->padded = (s->frequencies + 7) / 8 * 8;
  for (auto* v : {&s->w, &s->cos_w, &s->sin_w, &s->cos_lanes, &s->sin_lanes, &s->re, &s->im, &s->lane_error_re,
                  &s->lane_error_im})
    v->assign((size_t)s->padded, 0.0);
  for (int m = 0; m < s->frequencies; m++) s->w[m] = 2 * kPi * m / (double)s->period;
  roots_of_unity(s->period, 1, s->frequencies, {s->cos_w.data(), s->sin_w.data(), nullptr, nullptr});
  double *off_re = s->lane_error_re.data(), *off_im = s->lane_error_im.data();
  roots_of_unity(s->period, lanes, s->frequencies, {s->cos_lanes.data(), s->sin_lanes.data(), off_re, off_im});
  for (int m = 0; m < s->frequencies; m++) {
    const double re = s->cos_lanes[m], im = s->sin_lanes[m], x = off_re[m], y = off_im[m];
    off_re[m] = x * re + y * im;
    off_im[m] = y * re - x * im;
  }
}

TurnsFrom::TurnsFrom(const Spectrum& s, ptrdiff_t first)
    : cos_first((size_t)s.frequencies), sin_first((size_t)s.frequencies) {
  const double offset = (double)first - s.centre;
  roots_of_unity(s.period, (ptrdiff_t)offset, s.frequencies, {cos_first.data(), sin_first.data(), nullptr, nullptr});
  turns = {s.frequencies, offset, s.w.data(), s.cos_w.data(), s.sin_w.data(), s.cos_lanes.data(), s.sin_lanes.data(),
           cos_first.data(), sin_first.data()};
}

// The mean under a further tilt v, from the series at w = -i v: with h = -tanh(v / 4),
//   K'(v) = n_on - (1 - h^2) / 2 sum_j h^{j-1} A_j,  |A_j| <= 2 n;
// a split spectrum has no such series, and another pass over the variables is made.
static double tilted_mean(const Source& source, const Spectrum& s, double v, double* error) {
  const double n = (double)source.n;
  *error = 1e-12 * n;
  if (s.split) return source.sums(s.tilt + v, 8).mean();
  const double h = -std::tanh(v / 4);
  double sum = 0;
  for (size_t j = s.deviation.size(); j-- > 0;) sum = h * sum + s.deviation[j];
  *error += n * std::pow(std::fabs(h), (double)s.deviation.size()) / (1 - std::fabs(h));
  return s.mean + 0.5 * s.deviation[0] - 0.5 * (1 - h * h) * sum;
}

// A sum of Bernoulli variables is log-concave with its mode within one of its mean, so if the mean under v < 0 is at most
// low - 2 then P_v(k-1) >= P_v(k) from low on, which reads P(k-1) / P(k) >= e^v; likewise above.
static double bound_ratio(const Source& source, const Spectrum& s, double target) {
  const double first = (target - s.mean) / s.variance;
  for (double stretch = 1; stretch < 5; stretch *= 1.3) {
    double error;
    const double v = stretch * first, mean = tilted_mean(source, s, v, &error);
    if (v < 0 ? mean + error <= target : mean - error >= target) return std::exp(-std::fabs(v));
  }
  return 0;
}

void bound_ratios(const Source& source, Spectrum* s) {
  s->ratio_below = s->low > 2 ? bound_ratio(source, *s, (double)s->low - 2) : 0;
  s->ratio_above = s->high < source.n - 2 ? bound_ratio(source, *s, (double)s->high + 2) : 0;
}

static double pmf_error_with(const Spectrum& s, const SpectrumError& error) {
  double total = std::exp(-kBudget + 2);
  for (int m = 0; m < s.frequencies; m++) {
    const double share = (m ? 2.0 : 1.0) / (double)s.period, size = std::sqrt(s.re[m] * s.re[m] + s.im[m] * s.im[m]);
    total += share * ((error.base + 8 * kRoundOff) * (size + 0.05) + error.slope * s.w[m] * size);
  }
  return total;
}

double pmf_error(const Spectrum& s) { return pmf_error_with(s, spectrum_error(s)); }

double pmf_noise(const Spectrum& s) { return pmf_error_with(s, {spectrum_error(s).base, 0}); }

SpectrumError spectrum_error(const Spectrum& s) {
  return {kRoundOff * (24 + 4 * (double)s.large.size()), kRoundOff * 40 * s.variance};
}

// A factor q + p e^{iw} near 0 has a large relative error, but |Phat| is small there; this share of |F_m| covers it.
static constexpr double kFloor = 0.05;
void times_spectrum(const Spectrum& s, double table_error, double mass, double* re, double* im, double* error) {
  SpectrumError e = spectrum_error(s);
  e.base += table_error;
  for (int m = 0; m < s.frequencies; m++) {
    const double share = (m ? 2.0 : 1.0) / (double)s.period, fr = re[m], fi = im[m];
    re[m] = share * (fr * s.re[m] - fi * s.im[m]);
    im[m] = share * (fr * s.im[m] + fi * s.re[m]);
    const double size = std::sqrt(s.re[m] * s.re[m] + s.im[m] * s.im[m]);
    const double table = std::sqrt(fr * fr + fi * fi) + kRoundOff * 8 * mass;
    error[m] += share * table * (e.base * (size + kFloor) + e.slope * s.w[m] * size);
  }
}

}  // namespace tallytree
