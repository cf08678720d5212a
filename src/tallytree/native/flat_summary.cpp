// The logits as far as tilts are concerned.
#include "flat_summary.hpp"

#include <algorithm>
#include <cmath>

namespace tallytree {

constexpr ptrdiff_t kBins = 4096;

LogitSummary::LogitSummary(const Logits& logits, const FlatTotals& untilted)
    : kernels_(logits.kernels), count_((double)logits.n), smallest_(untilted.smallest), largest_(untilted.largest) {
  if (logits.n <= kBins || !(largest_ > smallest_)) {
    const ptrdiff_t kept = largest_ > smallest_ ? logits.n : 1;
    value_.assign(logits.nu, logits.nu + kept);
    weight_.assign((size_t)kept, kept == 1 ? count_ : 1.0);
    spread_.assign((size_t)kept, 0.0);
    return;
  }
  const double step = (largest_ - smallest_) / kBins, scale = 1 / step;
  growth_ = std::exp(std::fmin(step, 50.0));
  struct Bin {
    double count = 0, sum = 0, square = 0;
  };
  std::vector<Bin> bins(kBins);
  for (ptrdiff_t i = 0; i < logits.n; i++) {
    const double place = (logits.nu[i] - smallest_) * scale;
    const ptrdiff_t b = std::min<ptrdiff_t>(kBins - 1, (ptrdiff_t)place);
    const double offset = place - (double)b;
    bins[b].count += 1;
    bins[b].sum += offset;
    bins[b].square += offset * offset;
  }
  for (ptrdiff_t b = 0; b < kBins; b++) {
    const Bin& bin = bins[b];
    if (bin.count == 0) continue;
    const double mean = bin.sum / bin.count;
    value_.push_back(smallest_ + step * ((double)b + mean));
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
  double s = std::clamp(start, low, high);
  Tilt t = at(s);
  for (int i = 0; i < 100 && std::fabs(t.mean - target) > 0.01 * std::sqrt(t.variance) + 1e-9 * target; i++) {
    (t.mean < target ? low : high) = s;
    const double rest = count_ - t.mean;
    double next = s + (wanted - std::log(t.mean / rest)) * t.mean * rest / (count_ * t.variance);
    if (!(next > low && next < high)) next = 0.5 * (low + high);
    if (next == s) break;
    s = next;
    t = at(s);
  }
  return t;
}

}  // namespace tallytree
