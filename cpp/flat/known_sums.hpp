// Sums that somebody else has taken, chunk by chunk. What solve needs and does not find is thrown as `Missing`: the caller
// fetches it and calls solve again, which repeats its small steps and goes further.
#pragma once
#include <utility>
#include <vector>

#include "flat/reduce.hpp"

namespace tallytree {

struct Missing {
  std::vector<Request> requests;
};

// The histogram that is taken before anything is known: nearly all logits of most models lie in it.
constexpr double kOverviewReach = 16;

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
