// log P(z = k) for every k: many tilts of the characteristic function, each right near its own mean.
//
// Under the tilt s, P(z = k) = P_s(k) exp(K(s) - K(0) - s k). The inverse transform gives P_s with an absolute
// error, so a tilt serves the counts around its mean at which P_s is large; the next tilt starts where the last one
// ends. That takes O(sqrt n) tilts of O(n) each. The two end counts have closed forms. Where log-odds are far apart
// few variables are undecided near a count and no transform is certified: such counts are summed directly.
//
// Of a small model a direct tree, which adds positive terms only, has all counts within hundreds of nats of its mean: a
// few tilts cover all of them.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/workspace.hpp"
#include "flat/flat.hpp"
#include "flat/sparse_counts.hpp"
#include "flat/summary.hpp"

namespace tallytree {

namespace {

constexpr double kRelative = 8e-11;  // error of P(k) accepted from one tilt
constexpr double kFarthest = 4.2;    // standard deviations from the first uncovered count to the next mean

// How far from the mean a tilt can serve: P_s falls like exp(-z^2 / 2) from its peak 0.4 / sd, the error of P_s is
// about that of the characteristic function times the peak.
double useful_distance(double variance) {
  const double noise = kRoundOff * (60 + 40 * std::fmin(variance, 100.0) + 45 * std::sqrt(variance));
  return std::fmin(kFarthest, std::sqrt(2 * std::fmax(0.1, std::log(kRelative / noise))));
}

// Counts covered by one tilt: log P_s(k) + K(s) - K(0) - s k wherever the error allows. Returns the first count
// after `from` that is not covered.
ptrdiff_t cover(const Logits& logits, const Spectrum& s, ptrdiff_t from, double* out) {
  const ptrdiff_t last = std::min(s.high, logits.n - 1), width = last - from + 1;
  if (from < s.low || width <= 0) return from;
  std::vector<double> pmf((size_t)width);
  const double total = pmf_error(s);
  spectrum_pmf(*logits.kernels, s, from, width, pmf.data());
  ptrdiff_t k = from;
  for (; k <= last && pmf[(size_t)(k - from)] * kRelative > total; k++)
    out[k] = std::log(pmf[(size_t)(k - from)]) + s.tilt_norm.minus((double)k);
  return k;
}

constexpr ptrdiff_t kTreesAtMost = 1024;
constexpr int kMostTrees = 6;
constexpr double kInRange = -640;  // log of a probability that underflow cannot have reached

// All counts of a small model by direct trees under a few tilts; false if these do not reach them.
bool log_pmf_by_trees(const Logits& logits, const FlatTotals& untilted, const LogitSummary& summary, double* out) {
  const ptrdiff_t n = logits.n;
  const AlignedArray scratch = aligned_doubles((size_t)logits.kernels->alone_scratch(n));
  std::vector<double> found((size_t)n + 1);
  ptrdiff_t left = n, right = 0;  // the run of counts that are done
  for (int tree = 0; tree < kMostTrees && (left > 1 || right < n - 1); tree++) {
    const bool below = left > 1;
    const double middle = 0.5 * (double)(below ? left : right + n), tilt = tree ? summary.with_mean(middle, 0).s : 0;
    const double norm = logits.kernels->alone_pmf(logits.nu, tilt, n, scratch.get(), found.data()) - softplus(untilted);
    // P is log-concave, so what is in range is one run too.
    ptrdiff_t first = 1, last = n - 1;
    while (first <= last && !(found[(size_t)first] > kInRange)) first++;
    while (last >= first && !(found[(size_t)last] > kInRange)) last--;
    const bool some = first <= last && (tree == 0 || (below ? first < left : last > right));
    const bool joins = tree == 0 || (below ? last >= left - 1 : first <= right + 1);
    if (!some || !joins) return false;
    const ptrdiff_t from = tree == 0 || below ? first : right + 1, to = tree && below ? left - 1 : last;
    for (ptrdiff_t k = from; k <= to; k++) out[k] = found[(size_t)k] + (norm - tilt * (double)k);
    left = std::min(left, from);
    right = std::max(right, to);
  }
  return left <= 1 && right >= n - 1;
}

}  // namespace

InverseTerms::InverseTerms(const Spectrum& s, double norm) : re(s.re), im(s.im) {
  for (int m = 0; m < s.frequencies; m++) {
    const double share = (m ? 2.0 : 1.0) / (double)s.period * norm;
    re[m] *= share;
    im[m] *= share;
  }
}

void spectrum_pmf(const FlatKernels& kernels, const Spectrum& s, ptrdiff_t first, ptrdiff_t length, double* out) {
  const InverseTerms terms(s);
  kernels.inverse(TurnsFrom(s, first).turns, terms.re.data(), terms.im.data(), length, out);
}

void flat_log_pmf(const Logits& logits, double* out) {
  const ptrdiff_t n = logits.n;
  if (n == 0) {
    out[0] = 0;
    return;
  }
  const FlatTotals untilted = logits.sums(0, 12).totals;
  out[0] = -softplus(untilted);
  out[n] = -(untilted.negative + untilted.log_norm);
  const LogitSummary summary(logits, untilted);
  if (n <= kTreesAtMost && log_pmf_by_trees(logits, untilted, summary, out)) return;
  std::optional<SparseCounts> sparse;
  double tilt = 0;
  for (ptrdiff_t k = 1; k < n;) {
    if (sparse && sparse->few_undecided(k)) {
      k = sparse->cover(k, out);
      continue;
    }
    const Tilt here = summary.with_mean((double)k, tilt);
    const double sd = std::sqrt(here.variance);
    ptrdiff_t next = k;
    for (double ahead = useful_distance(here.variance); next == k && ahead > 1e-3; ahead *= 0.5) {
      const double target = std::fmin((double)k + (ahead > 0.1 ? ahead : 0.0) * sd, (double)n - 0.5);
      tilt = summary.with_mean(target, here.s).s;
      next = cover(logits, spectrum(logits, untilted, tilt, nullptr), k, out);
      if (ahead <= 0.1) break;
    }
    if (next == k) {  // no tilt certifies this count
      if (!sparse) sparse.emplace(logits.nu, n);
      next = sparse->cover(k, out);
    }
    k = next;
  }
}

}  // namespace tallytree
