// What the solver is told about the variables, and never more: sums over all of them that a pass can take.
//
// The flat solver has three verbs. A *reduce* turns logits into sums, *solve* turns sums and a table of counts into a
// certified solution, and *map* turns the solution and logits into answers. Solve meets the variables through a Source
// alone, so it does not matter who reduces them: threads over an array (`Logits`), or anybody who hands in sums of
// chunks (`KnownSums`).
#pragma once
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "flat/kernels.hpp"

namespace tallytree {

// Sums of one pass over the logits under a tilt s.
struct Sums {
  FlatTotals totals;
  std::vector<double> deviation;  // A_1 .. A_J
  double mean() const { return totals.likely_on - 0.5 * deviation[0]; }
  double variance() const { return deviation[1] / 8; }
};

// Power sums of the deviations below kLargeDeviation, by likely state, and p of all other variables.
struct SmallSums {
  double off[kPowers], on[kPowers], likely_on;
  std::vector<double> large;
};

// Logits in bins of equal width over [low, high], and those outside one by one. An empty range: all are outside.
constexpr ptrdiff_t kBins = 4096;
constexpr size_t kMostOutside = 4096;
struct Bin {
  double count = 0, sum = 0, square = 0;  // of the offsets from the bin's lower end, in bins
};
struct Histogram {
  double low, high;
  std::vector<Bin> bins;
  std::vector<double> outside;
  bool complete = true;  // `outside` lists all of them
};

// A spectrum that will be asked for: its tilt and about its variance.
struct Wish {
  double tilt, variance;
};

enum class Asked { deviations, small_deviations, histogram, powers };

struct Request {
  Asked kind;
  double tilt = 0;                // of deviations and small deviations
  int count = 0;                  // deviations: how many sums, one of kSumCounts; powers: how many rates
  double low = 0, high = 0;       // of a histogram
  double rate[kMaxPowers] = {};   // of powers
};

// Numbers of sums that kernels are compiled for; the smallest that is enough, at most kMaxChebyshev.
int sums_at_least(int count);

// What a request comes to for some of the variables: numbers that add, least and greatest ones, and a list. A list that
// would be too long to be of use is not kept, and a histogram, which chooses tilts, carries no rounding errors along.
struct Reduced {
  std::vector<double> sum, carry, least, most, listed;
  bool complete = true;
  // Carries the rounding errors along.
  void add(size_t j, double x) {
    const double next = sum[j] + x;
    carry[j] += (sum[j] < 0 ? -sum[j] : sum[j]) >= (x < 0 ? -x : x) ? (sum[j] - next) + x : (x - next) + sum[j];
    sum[j] = next;
  }
  double value(size_t j) const { return carry.empty() ? sum[j] : sum[j] + carry[j]; }
  void merge(const Reduced& later);
};

// Variables that are not among the sums: logits of -inf and +inf, and those that are no numbers.
struct LeftOut {
  ptrdiff_t excluded = 0, forced = 0, invalid = 0;
};

// All requests in one pass over the logits. `known_finite`: nobody has to look for others.
template <class T>
std::vector<Reduced> reduce(const FlatKernels& kernels, int threads, const T* nu, ptrdiff_t n,
                            const std::vector<Request>& requests, bool known_finite, LeftOut* left_out);

class Source {
 public:
  const FlatKernels* kernels = nullptr;
  int lanes = 1, threads = 1;
  ptrdiff_t n = 0;  // logits, all finite

  virtual Sums sums(double tilt, int count) const;
  SmallSums small_sums(double tilt) const;
  virtual Histogram histogram(double low, double high) const;
  PowerSums powers(const double* rate, int count) const;
  // A histogram of this range, or of one that leaves few outside and is as good.
  virtual Histogram overview(double low, double high) const { return histogram(low, high); }
  // Whether a histogram of an empty range lists all logits, however many they are.
  virtual bool lists_logits() const { return false; }
  // All that the next steps need: a source that has to fetch its sums fetches them at once.
  virtual void expect(const std::vector<Wish>&) const {}

 protected:
  virtual Reduced reduced(const Request& request) const = 0;
  Source() = default;
  Source(const FlatKernels* k, int l, int t, ptrdiff_t count) : kernels(k), lanes(l), threads(t), n(count) {}
  ~Source() = default;
};

// Finite logits in memory.
class Logits final : public Source {
 public:
  const double* nu = nullptr;

  Logits() = default;
  Logits(const FlatKernels* k, int l, int t, const double* values, ptrdiff_t count)
      : Source(k, l, t, count), nu(values) {}
  Sums sums(double tilt, int count) const override;
  Histogram histogram(double low, double high) const override;
  bool lists_logits() const override { return true; }

 protected:
  Reduced reduced(const Request& request) const override;
};

// A long row in chunks of fixed size, over threads: sums do not depend on the number of threads.
constexpr ptrdiff_t kRowChunk = 1 << 15;         // variables
constexpr ptrdiff_t kRowWorthThreads = 1 << 16;  // variables

// Calls pass(from, length) for every chunk; number from / kRowChunk.
template <class Pass>
void in_chunks(const Logits& logits, const Pass& pass) {
  over_parts(logits.n, kRowChunk, logits.n >= kRowWorthThreads ? logits.threads : 1, pass);
}

// Sums that somebody else has taken, chunk by chunk. What solve needs and does not find is thrown as `Missing`: the caller
// fetches it and calls solve again, which repeats its small steps and goes further.
struct Missing {
  std::vector<Request> requests;
};

class KnownSums final : public Source {
 public:
  KnownSums(const FlatKernels* kernels, int lanes, ptrdiff_t n) : Source(kernels, lanes, 1, n) {}
  void add(const Request& request, Reduced reduced) { known_.emplace_back(request, std::move(reduced)); }
  Histogram overview(double low, double high) const override;
  void expect(const std::vector<Wish>& wishes) const override;

 private:
  const Reduced* find(const Request& request) const;
  Reduced reduced(const Request& request) const override;
  std::vector<std::pair<Request, Reduced>> known_;
};

// -- variables with infinite logits, which are excluded (-inf) or forced (+inf), among many without ------------------

// Whether there is neither an infinity nor a NaN among n numbers; several sums at once hide the latency of one.
template <class T>
bool all_finite(const T* x, ptrdiff_t n) {
  constexpr int kAtOnce = 8;
  T sum[kAtOnce] = {};  // NaN where x is infinite
  ptrdiff_t i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce)
    for (int l = 0; l < kAtOnce; l++) sum[l] += x[i + l] - x[i + l];
  for (; i < n; i++) sum[0] += x[i] - x[i];
  for (int l = 1; l < kAtOnce; l++) sum[0] += sum[l];
  return sum[0] == 0;
}

// Logits as doubles, in `room` where they have to be made.
inline const double* widened(const double* nu, ptrdiff_t, double*) { return nu; }
inline const double* widened(const float* nu, ptrdiff_t n, double* room) {
  for (ptrdiff_t i = 0; i < n; i++) room[i] = nu[i];
  return room;
}

// Calls each(i) for every infinite logit and, before it and at the end, run(from, to) for the finite ones since the last.
template <class Each, class Run>
void around_infinities(const double* nu, ptrdiff_t n, const Each& each, const Run& run) {
  constexpr ptrdiff_t kBlock = 64;
  ptrdiff_t from = 0;
  for (ptrdiff_t block = 0; block < n; block += kBlock) {
    const ptrdiff_t end = std::min(n, block + kBlock);
    if (all_finite(nu + block, end - block)) continue;
    for (ptrdiff_t i = block; i < end; i++) {
      if (std::isfinite(nu[i])) continue;
      run(from, i);
      each(i);
      from = i + 1;
    }
  }
  run(from, n);
}

struct Split {
  std::vector<double> finite;
  ptrdiff_t excluded = 0, forced = 0;
};

inline Split split_infinite(const double* nu, ptrdiff_t n) {
  Split split;
  split.finite.reserve((size_t)n);
  around_infinities(
      nu, n, [&](ptrdiff_t i) { ++(nu[i] > 0 ? split.forced : split.excluded); },
      [&](ptrdiff_t from, ptrdiff_t to) { split.finite.insert(split.finite.end(), nu + from, nu + to); });
  return split;
}

}  // namespace tallytree
