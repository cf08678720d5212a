// Reduce: logits become sums that add up over chunks of them.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "flat/source.hpp"

namespace tallytree {

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

}  // namespace tallytree
