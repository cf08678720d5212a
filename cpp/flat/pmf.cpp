// log P(z = k) for every k: many tilts of the characteristic function, each right near its own mean.
//
// Under the tilt s, P(z = k) = P_s(k) exp(K(s) - K(0) - s k). The inverse transform gives P_s with an absolute
// error, so a tilt serves the counts around its mean at which P_s is large; the next tilt starts where the last one
// ends. That takes O(sqrt n) tilts of O(n) each. The two end counts have closed forms. Where log-odds are far apart
// few variables are undecided near a count and no transform is certified: such counts are summed directly.
//
// Of a small model a direct tree, which adds positive terms only, has all counts within hundreds of nats of its mean: a
// few tilts cover all of them.
#include <functional>
#include <optional>

#include "base/sigmoid.hpp"
#include "base/workspace.hpp"
#include "flat/flat.hpp"

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
constexpr double kLargestNorm = 5e5;  // nats whose rounding, some fifteen units, stays below 1e-9

// All counts of a small model by direct trees under a few tilts; false if these do not reach them.
bool log_pmf_by_trees(const Logits& logits, const FlatTotals& untilted, const LogitSummary& summary, double* out) {
  const ptrdiff_t n = logits.n;
  const AlignedArray scratch = aligned_doubles((size_t)logits.kernels->single_scratch(n));
  std::vector<double> found((size_t)n + 1);
  ptrdiff_t left = n, right = 0;  // the run of counts that are done
  for (int tree = 0; tree < kMostTrees && (left > 1 || right < n - 1); tree++) {
    const bool below = left > 1;
    const double middle = 0.5 * (double)(below ? left : right + n), tilt = tree ? summary.with_mean(middle, 0).s : 0;
    if (std::fmax(std::fabs(softplus(untilted)), std::fabs(tilt) * (double)n) > kLargestNorm) return false;
    const double norm = logits.kernels->single_pmf(logits.nu, tilt, n, scratch.get(), found.data()) - softplus(untilted);
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

// Counts near which few variables are undecided: log-odds far apart, where transforms certify one count each or none.
//
// With the log-odds sorted downwards the best configuration of count k has the first k variables on, and
//
//   log P(k) = sum_{i < k} log p_i + sum_{i >= k} log q_i + log R(k),
//
// where R(k) >= 1 compares all configurations of count k with the best one. Under a tilt s with mean k, R(k) is P_s(k)
// over the probability of that configuration; only variables with |nu + s| <= undecided_ matter, and for them P_s is
// a direct sum of positive terms. No large numbers are subtracted, so every count keeps its relative accuracy.
constexpr double kUndecided = 56;   // nats beyond which n variables err with probability e^-56 in all, plus log n
constexpr double kMeanReach = 5;         // the same for the mean under a tilt, which need not be accurate
constexpr double kLeast = 1e-12;    // probabilities under a tilt that are read off: far above e^-kUndecided
constexpr double kDropped = 1e-40;  // ends of a partial sum that no such probability can feel
constexpr int kFewServed = 16;         // tilts that serve fewer counts than this, and how many of them are enough

double log1p_exp(double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

// P(sum = first + j) of independent variables, entries below kDropped at the ends cut off.
class Partial {
 public:
  void add(double on, double off) {
    p_.push_back(0.0);
    double* p = p_.data();
    size_t stop = p_.size();
    for (size_t j = stop - 1; j > start_; j--) p[j] = p[j] * off + p[j - 1] * on;
    p[start_] *= off;
    while (start_ + 1 < stop && p[start_] < kDropped) start_++;
    while (stop > start_ + 1 && p[stop - 1] < kDropped) stop--;
    p_.resize(stop);
  }
  double at(ptrdiff_t k) const { return k < (ptrdiff_t)start_ || k >= (ptrdiff_t)p_.size() ? 0.0 : p_[(size_t)k]; }

 private:
  size_t start_ = 0;
  std::vector<double> p_ = {1.0};
};

class SparseCounts {
 public:
  // Finite log-odds.
  SparseCounts(const double* nu, ptrdiff_t n)
      : n_(n), undecided_(kUndecided + std::log((double)n)), near_(kMeanReach + std::log((double)n)), nu_(nu, nu + n),
        on_((size_t)n + 1, 0.0), off_((size_t)n + 1, 0.0) {
    std::sort(nu_.begin(), nu_.end(), std::greater<>());
    long double total = 0;
    for (size_t i = 0; i < (size_t)n; i++) on_[i + 1] = (double)(total -= log1p_exp(-nu_[i]));
    total = 0;
    for (size_t i = (size_t)n; i-- > 0;) off_[i] = (double)(total -= log1p_exp(nu_[i]));
  }
  // Whether so few variables are undecided near count k, 0 < k < n, that this is the quickest way: a tilt of the whole
  // model takes some nanoseconds for each variable.
  bool few_undecided(ptrdiff_t k) const {
    const Window window = under(halfway(k), undecided_);
    const double some = (double)(window.last - window.first);
    return some * (9 + std::sqrt(some)) < 5 * (double)n_ + 5000;
  }
  // Writes log P at k, 0 < k < n, and at what else the same tilt serves; returns the first count after those.
  ptrdiff_t cover(ptrdiff_t k, double* out) const {
    const Window window = under(tilt_with_mean(k), undecided_);
    Partial sum;
    double best = 0;  // log-probability of the best configuration of count k under the tilt
    for (ptrdiff_t i = window.first; i < window.last; i++) {
      const double x = nu_[(size_t)i] + window.tilt, rest = std::exp(-std::fabs(x)), larger = 1 / (1 + rest);
      sum.add(x > 0 ? larger : rest * larger, x > 0 ? rest * larger : larger);
      best += std::log(larger) - ((x > 0) == (i < k) ? 0 : std::fabs(x));
    }
    do {
      out[k] = on_[(size_t)k] + off_[(size_t)k] + (std::log(sum.at(k - window.first)) - best);
      best += nu_[(size_t)k] + window.tilt;  // of count k + 1
      k++;
    } while (k < n_ && k < window.last && sum.at(k - window.first) > kLeast);
    return k;
  }

 private:
  // Variables with |nu + tilt| <= reach are first .. last - 1.
  struct Window {
    double tilt;
    ptrdiff_t first, last;
  };
  Window under(double tilt, double reach) const {
    const auto begin = nu_.begin(), end = nu_.end();
    const auto first = std::partition_point(begin, end, [&](double x) { return x + tilt > reach; });
    const auto last = std::partition_point(first, end, [&](double x) { return x + tilt >= -reach; });
    return {tilt, first - begin, last - begin};
  }
  double halfway(ptrdiff_t k) const { return -0.5 * (nu_[(size_t)k - 1] + nu_[(size_t)k]); }
  // At the first bound at most k - 1 variables and a part of one are on; at the second at least k + 1 less a part of one.
  double tilt_with_mean(ptrdiff_t k) const {
    double low = -nu_[(size_t)k - 1] - near_, high = -nu_[(size_t)k] + near_, tilt = halfway(k);
    while (low < tilt && tilt < high) {
      const Window window = under(tilt, near_);
      double excess = (double)(window.first - k), variance = 0;
      for (ptrdiff_t i = window.first; i < window.last; i++) {
        const double p = sigmoid(nu_[(size_t)i] + tilt);
        excess += p;
        variance += p * (1 - p);
      }
      if (std::fabs(excess) < 0.1) break;
      (excess < 0 ? low : high) = tilt;
      const double newton = tilt - excess / variance;
      tilt = low < newton && newton < high ? newton : 0.5 * (low + high);
    }
    return tilt;
  }

  ptrdiff_t n_;
  double undecided_, near_;
  std::vector<double> nu_;        // sorted downwards
  std::vector<double> on_, off_;  // logs of the probability that the first k are on, that all but the first k are off
};

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
  int narrow = 0;
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
    narrow += next - k < kFewServed;
    if (!sparse && (next == k || narrow > kFewServed)) sparse.emplace(logits.nu, n);
    if (next == k) next = sparse->cover(k, out);  // no tilt certifies this count
    k = next;
  }
}

}  // namespace tallytree
