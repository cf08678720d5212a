// The logits as far as tilts are concerned.
#include "flat/summary.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tallytree {

namespace {

constexpr ptrdiff_t kBins = 4096;
constexpr ptrdiff_t kOutliers = 512;  // logits at the ends that stay by themselves so that the bins are narrow
constexpr int kZoom = 16;             // and by how much narrower they have to become for that

struct Bin {
  double count = 0, sum = 0, square = 0;  // of the offsets from the bin's lower end, in bins
};

// Bins of equal width over [low, high]; what lies outside is not counted.
std::vector<Bin> histogram(const Logits& logits, double low, double high) {
  const double scale = kBins / (high - low);  // 0 if the range is beyond all doubles: then one bin holds everything
  std::vector<Bin> bins((size_t)kBins);
  for (ptrdiff_t i = 0; i < logits.n; i++) {
    const double x = logits.nu[i];
    if (x < low || x > high) continue;
    const double place = (x - low) * scale;
    const ptrdiff_t b = place > 0 ? (ptrdiff_t)std::fmin(kBins - 1.0, place) : 0;  // 0 for NaN
    const double offset = place - (double)b;
    bins[(size_t)b].count += 1;
    bins[(size_t)b].sum += offset;
    bins[(size_t)b].square += offset * offset;
  }
  return bins;
}

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

LogitSummary::LogitSummary(const Logits& logits, const FlatTotals& untilted)
    : kernels_(logits.kernels), count_((double)logits.n), smallest_(untilted.smallest), largest_(untilted.largest) {
  if (logits.n <= kBins || !(largest_ > smallest_)) {
    const ptrdiff_t kept = largest_ > smallest_ ? logits.n : 1;
    value_.assign(logits.nu, logits.nu + kept);
    weight_.assign((size_t)kept, kept == 1 ? count_ : 1.0);
    spread_.assign((size_t)kept, 0.0);
    return;
  }
  double low = smallest_, high = largest_;
  std::vector<Bin> bins = histogram(logits, low, high);
  // A few far logits would leave all others in one bin: zoom in on the many as long as that helps.
  for (;;) {
    const auto [first, last] = without_outliers(bins);
    const double step = (high - low) / kBins, inner_low = low + step * (double)first;
    const double inner_high = last == kBins - 1 ? high : low + step * (double)(last + 1);
    if ((last - first + 1) * kZoom > kBins || !(inner_high - inner_low > 1e-9 * std::fmax(1.0, std::fabs(low)))) break;
    for (ptrdiff_t i = 0; i < logits.n; i++) {
      const double x = logits.nu[i];
      if (x < low || x > high || (x >= inner_low && x <= inner_high)) continue;
      value_.push_back(x);
      weight_.push_back(1.0);
      spread_.push_back(0.0);
    }
    low = inner_low;
    high = inner_high;
    bins = histogram(logits, low, high);
  }
  const double step = (high - low) / kBins;
  growth_ = std::exp(std::fmin(step, 50.0));
  for (ptrdiff_t b = 0; b < kBins; b++) {
    const Bin& bin = bins[(size_t)b];
    if (bin.count == 0) continue;
    const double mean = bin.sum / bin.count;
    value_.push_back(low + step * ((double)b + mean));
    weight_.push_back(bin.count);
    spread_.push_back(std::fmax(0.0, bin.square - bin.count * mean * mean) * step * step);
  }
}

Tilt LogitSummary::at(double s) const {
  double out[4];
  kernels_->tilted_moments(value_.data(), weight_.data(), spread_.data(), (ptrdiff_t)value_.size(), growth_, s, out);
  return {s, out[1], out[2], out[3]};
}

// Newton's method on log(mean / (n - mean)), which is nearly linear in the tails, inside a bracket.
Tilt LogitSummary::with_mean(double target, double start) const {
  const double reach = 60 + std::log(count_), wanted = std::log(target / (count_ - target));
  double low = -largest_ - reach, high = -smallest_ + reach;
  double s = std::clamp(start, low, high), moments[2];
  const auto look = [&] {
    kernels_->tilted_mean(value_.data(), weight_.data(), (ptrdiff_t)value_.size(), s, moments);
  };
  look();
  for (int i = 0; i < 100 && std::fabs(moments[0] - target) > 0.01 * std::sqrt(moments[1]) + 1e-9 * target; i++) {
    const double mean = moments[0], rest = count_ - mean;
    (mean < target ? low : high) = s;
    double next = s + (wanted - std::log(mean / rest)) * mean * rest / (count_ * moments[1]);
    if (!(next > low && next < high)) next = 0.5 * (low + high);
    if (next == s) break;
    s = next;
    look();
  }
  return at(s);
}

}  // namespace tallytree
