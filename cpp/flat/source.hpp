// What the solver is told about the variables, and never more: sums over all of them that a pass can take.
//
// The flat solver has three verbs. A *reduce* turns logits into sums, *solve* turns sums and a table of counts into a
// certified solution, and *map* turns the solution and logits into answers. Solve meets the variables through a Source
// alone, so it does not matter who reduces them: threads over an array (`Logits`), or anybody who hands in sums of
// chunks (`KnownSums`).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
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

struct Request;
struct Reduced;

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

 protected:
  Reduced reduced(const Request& request) const override;
};

// A long row in chunks of fixed size, over threads: sums do not depend on the number of threads.
constexpr ptrdiff_t kRowChunk = 1 << 15;         // variables
constexpr ptrdiff_t kRowWorthThreads = 1 << 16;  // variables

// Calls pass(from, length) for every chunk; number from / kRowChunk.
template <class Pass>
void in_chunks(const Logits& logits, const Pass& pass) {
  parallel_for((logits.n + kRowChunk - 1) / kRowChunk, logits.n >= kRowWorthThreads ? logits.threads : 1, [&](ptrdiff_t c) {
    const ptrdiff_t from = c * kRowChunk;
    pass(from, std::min(kRowChunk, logits.n - from));
  });
}

}  // namespace tallytree
