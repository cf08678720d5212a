// The logits as far as tilts are concerned.
#include "flat/flat.hpp"

namespace tallytree {

constexpr ptrdiff_t kOutliers = 512;  // logits at the ends that stay by themselves so that the bins are narrow
constexpr int kZoom = 16;             // and by how much narrower they have to become for that
constexpr double kNarrow = 1.0 / 128;  // bins that need not be narrower: K is smooth on the scale of 1
constexpr double kWide = 1.0 / 8;      // gathered bins are not wider than this ...
constexpr double kSlack = 0.5;         // ... and make K(s) too large by so many nats at most
constexpr double kDecided = 60;        // nats beyond which the state of a variable is as good as certain
constexpr ptrdiff_t kSortAtMost = 32;  // so few logits are sorted, more are divided into bins

// The first and last bin that are left when up to kOutliers logits are taken off the two ends.
static std::pair<ptrdiff_t, ptrdiff_t> without_outliers(const std::vector<Bin>& bins) {
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

LogitSummary::LogitSummary(const Source& source, const FlatTotals& untilted)
    : kernels_(source.kernels), count_((double)source.n), smallest_(untilted.smallest), largest_(untilted.largest) {
  if (!(largest_ > smallest_)) {
    value_ = {smallest_};
    weight_ = {count_};
    spread_ = {0.0};
    return;
  }
  if (source.n <= kBins) {
    take_all(source.histogram(__builtin_inf(), -__builtin_inf()).outside);
    return;
  }
  Histogram h = source.overview(smallest_, largest_);
  // A few far logits would leave all others in one bin: zoom in on the many as long as that helps.
  while (true) {
    const auto [first, last] = without_outliers(h.bins);
    const double step = (h.high - h.low) / kBins, low = h.low + step * (double)first;
    const double high = last == kBins - 1 ? h.high : h.low + step * (double)(last + 1);
    if (step <= kNarrow || (last - first + 1) * kZoom > kBins || !(high - low > 1e-9 * std::fmax(1.0, std::fabs(low))))
      break;
    Histogram inner = source.histogram(low, high);
    if (!inner.complete) break;  // zoomed in so often that the outliers are no longer few
    h = std::move(inner);
  }
  const double step = (h.high - h.low) / kBins;
  if (step > kWide && source.lists_logits()) {  // many are far from one another: bins of equal width tell nothing
    take_all(source.histogram(__builtin_inf(), -__builtin_inf()).outside);
    return;
  }
  value_ = std::move(h.outside);
  weight_.assign(value_.size(), 1.0);
  spread_.assign(value_.size(), 0.0);
  growth_ = std::exp(std::fmin(step, 50.0));
  for (ptrdiff_t b = 0; b < kBins; b++)
    if (h.bins[(size_t)b].count > 0) add(h.bins[(size_t)b], h.low + step * (double)b, step);
}

// Logits in increasing order, those within kNarrow of one another in one bin. Numbers of any size: halves do not overflow.
void LogitSummary::divide(double* x, ptrdiff_t n, double* room) {
  const auto [least, most] = std::minmax_element(x, x + n);
  const double low = *least, half = 0.5 * *most - 0.5 * low;
  const auto gather_up = [&](const double* from, const double* to) {
    Bin bin;
    for (const double* v = from; v != to; v++) {
      const double offset = (*v - *from) / kNarrow;
      bin.count++;
      bin.sum += offset;
      bin.square += offset * offset;
    }
    add(bin, *from, kNarrow);
  };
  if (2 * half <= kNarrow) {
    std::swap(*x, *least);  // offsets are those from the smallest
    return gather_up(x, x + n);
  }
  if (n <= kSortAtMost) {
    std::sort(x, x + n);
    for (const double *from = x, *end = x + n; from != end;) {
      const double* to = std::upper_bound(from, end, *from + kNarrow);
      gather_up(from, to);
      from = to;
    }
    return;
  }
  const ptrdiff_t parts = (ptrdiff_t)std::fmin((double)std::min(n, kBins), 2 * half / kNarrow + 1);
  const double scale = (double)parts / half;
  const auto part_of = [&](double v) { return std::min(parts - 1, (ptrdiff_t)((0.5 * v - 0.5 * low) * scale)); };
  std::vector<ptrdiff_t> start((size_t)parts + 1, 0);
  for (ptrdiff_t i = 0; i < n; i++) start[(size_t)part_of(x[i]) + 1]++;
  for (size_t j = 0; j < (size_t)parts; j++) start[j + 1] += start[j];
  std::vector<ptrdiff_t> next(start.begin(), start.end() - 1);
  for (ptrdiff_t i = 0; i < n; i++) room[next[(size_t)part_of(x[i])]++] = x[i];
  for (size_t j = 0; j < (size_t)parts; j++)
    if (start[j + 1] > start[j]) divide(room + start[j], start[j + 1] - start[j], x + start[j]);
}

void LogitSummary::take_all(std::vector<double> logits) {
  std::vector<double> room(logits.size());
  growth_ = std::exp(kNarrow);
  divide(logits.data(), (ptrdiff_t)logits.size(), room.data());
  weight_above_.assign(value_.size() + 1, 0.0);
  sum_above_.assign(value_.size() + 1, 0.0);
  for (size_t i = value_.size(); i-- > 0;) {
    weight_above_[i] = weight_above_[i + 1] + weight_[i];
    sum_above_[i] = sum_above_[i + 1] + weight_[i] * value_[i];
  }
}

// K'(s), K''(s) and, with a norm, K(s) from above. Where the bins are in order only those that a tilt leaves open are
// looked at: the others are off, or on and add s + nu.
void LogitSummary::moments(double s, bool with_norm, double* out) const {
  size_t first = 0, last = value_.size();
  if (!weight_above_.empty()) {
    first = (size_t)(std::lower_bound(value_.begin(), value_.end(), -s - kDecided) - value_.begin());
    last = (size_t)(std::upper_bound(value_.begin(), value_.end(), -s + kDecided) - value_.begin());
    last = std::max(first, last);
  }
  kernels_->tilted_moments(value_.data() + first, weight_.data() + first, with_norm ? spread_.data() + first : nullptr, (ptrdiff_t)(last - first),
                           growth_, s, out);
  if (weight_above_.empty()) return;
  out[0] += weight_above_[last];
  if (with_norm) out[2] += sum_above_[last] + s * weight_above_[last] + count_ * std::exp(-kDecided);
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
  if (!weight_above_.empty() || !(2 * bins < (double)value_.size())) return;
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
  moments(s, true, out);
  return {s, out[2], out[0], out[1]};
}

// Newton's method on log(mean / (n - mean)), which is nearly linear in the tails, inside a bracket.
double LogitSummary::solve(double target, double start, double near, double* found) const {
  const double reach = 60 + std::log(count_), wanted = std::log(target / (count_ - target));
  double low = -largest_ - reach, high = -smallest_ + reach;
  double s = std::clamp(start, low, high);
  const auto look = [&] { moments(s, false, found); };
  look();
  for (int i = 0; i < 100 && std::fabs(found[0] - target) > near * std::sqrt(found[1]) + 1e-9 * target; i++) {
    const double mean = found[0], rest = count_ - mean;
    (mean < target ? low : high) = s;
    double next = s + (wanted - std::log(mean / rest)) * mean * rest / (count_ * found[1]);
    if (!(next > low && next < high)) next = 0.5 * (low + high);
    if (next == s) break;
    s = next;
    look();
  }
  return s;
}

Tilt LogitSummary::with_mean(double target, double start) const {
  double found[2];
  return at(solve(target, start, 0.01, found));
}

Tilt LogitSummary::roughly_with_mean(double target) const {
  double found[2];
  const double s = solve(target, 0, 0.1, found);
  return {s, 0.0, found[0], found[1]};
}

}  // namespace tallytree
