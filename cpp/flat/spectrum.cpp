// The characteristic function of a sum of Bernoulli variables from a few sums over the variables.
//
// With x = tanh(t / 2) and tau = tan(w / 4),
//   log(q + p e^{iw}) = i w / 2 + 2 log cos(w / 4) - 2 sum_j (-i tau)^j T_j(x) / j.
// At x = +-1 the left side is i w or 0, so with A_j = sum_i sign^j (1 - T_j(|x|)):
//   log Phat(w) = i w n_on + 2 sum_j (-i tau)^j A_j / j.
// |Phat(w)| <= exp(-var (1 - cos w)) leaves a few dozen frequencies, and tau is small, when var is large. When var is
// small, w reaches pi; then all but 10 var variables have a deviation below 0.1 and power sums of it converge.
#include <array>

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

// How finely a spectrum is sampled: its roots of unity, to the last bit, and how far its series have to go.

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
