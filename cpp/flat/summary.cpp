// The logits as far as tilts are concerned.
#include "flat/flat.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tallytree {

namespace {

constexpr ptrdiff_t kOutliers = 512;  // logits at the ends that stay by themselves so that the bins are narrow
constexpr int kZoom = 16;             // and by how much narrower they have to become for that
constexpr double kNarrow = 1.0 / 128;  // bins that need not be narrower: K is smooth on the scale of 1
constexpr double kWide = 1.0 / 8;      // gathered bins are not wider than this ...
constexpr double kSlack = 0.5;         // ... and make K(s) too large by so many nats at most

// The first and last bin that are left when up to kOutliers logits are taken off the two ends.
std::pair<ptrdiff_t, ptrdiff_t> without_outliers(const std::vector<Bin>& bins) {
  ptrdiff_t first = 0, last = kBins - 1;
  double taken = 0;
  while (first < last) {
    const double from_left = bins[(size_t)first].count, from_right = bins[(size_t)last].count;
    if (taken + std::fmin(from_left, from_right) > (double)kOutliers) break;
    if (from_left <= from_right) taken += from_left, first++;
    else taken += from_right, last--;
  }
  return {first, last};
}

}  // namespace

LogitSummary::LogitSummary(const Source& source, const FlatTotals& untilted)
    : kernels_(source.kernels), count_((double)source.n), smallest_(untilted.smallest), largest_(untilted.largest) {
  if (!(largest_ > smallest_)) {
    value_ = {smallest_};
    weight_ = {count_};
    spread_ = {0.0};
    return;
  }
  const bool few = source.n <= kBins;
  Histogram h = few ? source.histogram(__builtin_inf(), -__builtin_inf()) : source.overview(smallest_, largest_);
  // A few far logits would leave all others in one bin: zoom in on the many as long as that helps.
  while (!few) {
    const auto [first, last] = without_outliers(h.bins);
    const double step = (h.high - h.low) / kBins, low = h.low + step * (double)first;
    const double high = last == kBins - 1 ? h.high : h.low + step * (double)(last + 1);
    if (step <= kNarrow || (last - first + 1) * kZoom > kBins || !(high - low > 1e-9 * std::fmax(1.0, std::fabs(low))))
      break;
    Histogram inner = source.histogram(low, high);
    if (!inner.complete) break;  // zoomed in so often that the outliers are no longer few
    h = std::move(inner);
  }
  value_ = std::move(h.outside);
  weight_.assign(value_.size(), 1.0);
  spread_.assign(value_.size(), 0.0);
  if (few) return;
  const double step = (h.high - h.low) / kBins;
  growth_ = std::exp(std::fmin(step, 50.0));
  for (ptrdiff_t b = 0; b < kBins; b++)
    if (h.bins[(size_t)b].count > 0) add(h.bins[(size_t)b], h.low + step * (double)b, step);
}

void LogitSummary::add(const Bin& bin, double low, double step) {
  const double mean = bin.sum / bin.count;
  value_.push_back(low + step * mean);
  weight_.push_back(bin.count);
  spread_.push_back(std::fmax(0.0, bin.square - bin.count * mean * mean) * step * step);
}

// Evenly filled bins of width w add n w^2 / 12 to the sum of squares, and K'' is at most 1 / 4.
void LogitSummary::gather() {
  const double step = std::fmin(kWide, std::sqrt(96 * kSlack / count_));
  const double bins = std::ceil((largest_ - smallest_) / step);
  if (!(2 * bins < (double)value_.size())) return;
  std::vector<Bin> bin((size_t)bins + 2);
  for (size_t i = 0; i < value_.size(); i++) {
    const double place = std::fmax(0.0, (value_[i] - smallest_) / step), offset = place - std::floor(place);
    Bin& own = bin[(size_t)place];
    own.count += weight_[i];
    own.sum += weight_[i] * offset;
    own.square += weight_[i] * offset * offset + spread_[i] / (step * step);
  }
  growth_ *= std::exp(step);
  value_.clear();
  weight_.clear();
  spread_.clear();
  for (size_t b = 0; b < bin.size(); b++)
    if (bin[b].count > 0) add(bin[b], smallest_ + step * (double)b, step);
}

Tilt LogitSummary::at(double s) const {
  double out[3];
  kernels_->tilted_moments(value_.data(), weight_.data(), spread_.data(), (ptrdiff_t)value_.size(), growth_, s, out);
  return {s, out[2], out[0], out[1]};
}

// Newton's method on log(mean / (n - mean)), which is nearly linear in the tails, inside a bracket.
double LogitSummary::solve(double target, double start, double near, double* moments) const {
  const double reach = 60 + std::log(count_), wanted = std::log(target / (count_ - target));
  double low = -largest_ - reach, high = -smallest_ + reach;
  double s = std::clamp(start, low, high);
  const auto look = [&] {
    kernels_->tilted_moments(value_.data(), weight_.data(), nullptr, (ptrdiff_t)value_.size(), growth_, s, moments);
  };
  look();
  for (int i = 0; i < 100 && std::fabs(moments[0] - target) > near * std::sqrt(moments[1]) + 1e-9 * target; i++) {
    const double mean = moments[0], rest = count_ - mean;
    (mean < target ? low : high) = s;
    double next = s + (wanted - std::log(mean / rest)) * mean * rest / (count_ * moments[1]);
    if (!(next > low && next < high)) next = 0.5 * (low + high);
    if (next == s) break;
    s = next;
    look();
  }
  return s;
}

Tilt LogitSummary::with_mean(double target, double start) const {
  double moments[2];
  return at(solve(target, start, 0.01, moments));
}

Tilt LogitSummary::roughly_with_mean(double target) const {
  double moments[2];
  const double s = solve(target, 0, 0.1, moments);
  return {s, 0.0, moments[0], moments[1]};
}

}  // namespace tallytree
