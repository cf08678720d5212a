// Sums that somebody else has taken, chunk by chunk.
#include "flat/known_sums.hpp"

#include <algorithm>

#include "flat/flat.hpp"

namespace tallytree {

namespace {

// Forecasts of a variance may be off.
constexpr double kPerhapsSplit = 2 * kSmallVariance, kSurelySplit = 0.5 * kSmallVariance;

bool serves(const Request& known, const Request& asked) {
  if (known.kind != asked.kind) return false;
  if (asked.kind == Asked::deviations) return known.tilt == asked.tilt && known.count >= asked.count;
  if (asked.kind == Asked::small_deviations) return known.tilt == asked.tilt;
  if (asked.kind == Asked::histogram) return known.low == asked.low && known.high == asked.high;
  return known.count == asked.count && std::equal(known.rate, known.rate + known.count, asked.rate);
}

}  // namespace

const Reduced* KnownSums::find(const Request& request) const {
  for (const auto& [known, reduced] : known_)
    if (serves(known, request)) return &reduced;
  return nullptr;
}

Reduced KnownSums::reduced(const Request& request) const {
  if (const Reduced* found = find(request)) return *found;
  throw Missing{{request}};
}

Histogram KnownSums::overview(double low, double high) const {
  const Request first = {.kind = Asked::histogram, .low = -kOverviewReach, .high = kOverviewReach};
  const Reduced* known = find(first);
  return known && known->complete ? histogram_of(first, *known) : histogram(low, high);
}

void KnownSums::expect(const std::vector<Wish>& wishes) const {
  std::vector<Request> missing;
  const auto want = [&](const Request& request) {
    if (!find(request)) missing.push_back(request);
  };
  for (const Wish& wish : wishes) {
    const int more = wish.variance < kSurelySplit ? 0 : sums_expected(wish.variance);
    want({.kind = Asked::deviations, .tilt = wish.tilt, .count = sums_at_least(std::max(first_sums(n), more))});
    if (wish.variance < kPerhapsSplit) want({.kind = Asked::small_deviations, .tilt = wish.tilt});
  }
  if (!missing.empty()) throw Missing{missing};
}

}  // namespace tallytree
