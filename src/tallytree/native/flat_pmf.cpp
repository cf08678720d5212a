// log P(z = k) for every k: many tilts of the characteristic function, each right near its own mean.
//
// Under the tilt s, P(z = k) = P_s(k) exp(K(s) - K(0) - s k). The inverse transform gives P_s with an absolute
// error, so a tilt serves the counts around its mean at which P_s is large; the next tilt starts where the last one
// ends. That takes O(sqrt n) tilts of O(n) each. The two end counts have closed forms.
#include <algorithm>
#include <cmath>

#include "flat.hpp"

namespace tallytree {

namespace {

constexpr double kInfinity = __builtin_inf();
constexpr double kRelative = 3e-11;  // of P(k), accepted from one tilt
constexpr double kStep = 4.2;        // standard deviations from the first uncovered count to the next mean

// The tilt whose mean is `target`, by Newton's method on the log-odds of the mean, over exact sums.
Sums reach_mean(const Logits& logits, double target, double* tilt, double sd_fraction) {
  const double n = (double)logits.n;
  double low = -kInfinity, high = kInfinity;
  for (int i = 0;; i++) {
    Sums sums = sum_deviations(logits, *tilt, 12);
    const double mean = sums.mean(), var = sums.variance();
    if (i == 60 || std::fabs(mean - target) <= sd_fraction * std::sqrt(var)) return sums;
    (mean < target ? low : high) = *tilt;
    double step = 0;
    if (mean > 0 && mean < n && var > 0)
      step = (std::log(target / (n - target)) - std::log(mean / (n - mean))) * mean * (n - mean) / (n * var);
    double next = *tilt + (step != 0 ? std::clamp(step, -30.0, 30.0) : (mean < target ? 30.0 : -30.0));
    if (!(next > low && next < high)) next = 0.5 * (low + high);
    if (next == *tilt || !(next > -1e6 && next < 1e6)) return sums;
    *tilt = next;
  }
}

// Counts covered by one tilt: log P_s(k) + K(s) - K(0) - s k wherever the error allows. Returns the first count
// after `from` that is not covered.
ptrdiff_t cover(const Logits& logits, const Spectrum& s, ptrdiff_t from, double* out) {
  const ptrdiff_t last = std::min(s.high, logits.n - 1), width = last - from + 1;
  if (from < s.low || width <= 0) return from;
  std::vector<double> re(s.re), im(s.im), pmf((size_t)width);
  const SpectrumError error = spectrum_error(s);
  double total = std::exp(-kBudget + 2);
  for (int m = 0; m < s.frequencies; m++) {
    const double share = (m ? 2.0 : 1.0) / (double)s.period, size = std::hypot(re[m], im[m]);
    re[m] *= share;
    im[m] *= share;
    total += share * ((error.base + 8 * kRoundOff) * (size + 0.05) + error.slope * s.w[m] * size);
  }
  logits.kernels->inverse(re.data(), im.data(), s.w.data(), s.frequencies, (double)from - s.centre, width, pmf.data());
  ptrdiff_t k = from;
  for (; k <= last && pmf[(size_t)(k - from)] * kRelative > total; k++)
    out[k] = std::log(pmf[(size_t)(k - from)]) + s.tilt_norm.minus((double)k);
  return k;
}

}  // namespace

void flat_log_pmf(const Logits& logits, double* out) {
  const ptrdiff_t n = logits.n;
  if (n == 0) {
    out[0] = 0;
    return;
  }
  const FlatTotals untilted = sum_deviations(logits, 0, 12).totals;
  out[0] = -softplus(untilted);
  out[n] = -(untilted.negative + untilted.log_norm);
  double tilt = 0;
  for (ptrdiff_t k = 1; k < n;) {
    // A mean a few standard deviations beyond the first uncovered count, the deviation taken from the last tilt.
    double ahead = kStep;
    ptrdiff_t next = k;
    Sums here = reach_mean(logits, std::fmin((double)k, (double)n - 0.5), &tilt, 0.25);
    const double sd = std::sqrt(here.variance());
    for (int attempt = 0; attempt < 8 && next == k; attempt++, ahead *= 0.6) {
      const double target = std::fmin((double)k + ahead * sd, (double)n - 0.5);
      const Sums sums = reach_mean(logits, target, &tilt, 0.1);
      next = cover(logits, spectrum(logits, untilted, tilt, &sums), k, out);
      if (next == k && attempt == 6) ahead = 0;
    }
    if (next == k) {  // no tilt certifies this count; the caller sees NaN and takes a slower method
      out[k] = __builtin_nan("");
      next = k + 1;
    }
    k = next;
  }
}

}  // namespace tallytree
