// Reduce: logits become sums that add up over chunks of them.
//
// The logits are read in blocks that fit the cache; a block is widened to doubles and freed of infinities where needed,
// and all requests are served from it. Blocks belong to groups whose boundaries depend on the number of logits alone;
// groups go to threads, and are merged in order: the same chunk gives the same bits, whatever the number of threads.

#include "base/constants.hpp"
#include "flat/flat.hpp"

namespace tallytree {

namespace {

constexpr ptrdiff_t kBlock = 8192;
constexpr ptrdiff_t kShortGroup = 4 * kBlock;
constexpr ptrdiff_t kMostGroups = 64, kMostHistograms = 16;  // of a chunk: each group has a histogram of its own
constexpr ptrdiff_t kWorthThreads = 1 << 17;
constexpr size_t kMostLarge = 1 << 14;  // large deviations: with a variance below 50 there are at most 560

// Places among the sums of deviations; the deviation sums follow.
enum { kLogNorm, kPositive, kNegative, kLikelyOn, kInfinite, kDeviations };
// Places among the sums of one rate of powers.
enum { kLogSize, kLost, kNegativeFactors, kPerRate };

void add_deviations(const FlatKernels& kernels, const Request& r, const double* nu, ptrdiff_t n, Reduced* out) {
  FlatTotals t;
  double part[kMaxChebyshev];
  kernels.chebyshev_sums(nu, n, r.tilt, r.count, &t, part);
  out->add(kLogNorm, t.log_norm);
  out->add(kPositive, t.positive);
  out->add(kNegative, t.negative);
  out->add(kLikelyOn, t.likely_on);
  out->add(kInfinite, t.infinite);
  for (int j = 0; j < r.count; j++) out->add((size_t)(kDeviations + j), part[j]);
  out->least[0] = std::fmin(out->least[0], t.smallest);
  out->most[0] = std::fmax(out->most[0], t.largest);
}

void list(const double* values, size_t count, size_t most, Reduced* out) {
  if (!out->complete) return;
  out->complete = out->listed.size() + count <= most;
  if (out->complete) out->listed.insert(out->listed.end(), values, values + count);
  else out->listed.clear();
}

void add_small_deviations(const FlatKernels& kernels, const Request& r, const double* nu, ptrdiff_t n, Reduced* out) {
  double off[kPowers], on[kPowers], likely_on, large[kBlock];
  const ptrdiff_t found = kernels.small_deviation_sums(nu, n, r.tilt, off, on, &likely_on, large);
  out->add(0, likely_on);
  for (int j = 0; j < kPowers; j++) {
    out->add((size_t)(1 + j), off[j]);
    out->add((size_t)(1 + kPowers + j), on[j]);
  }
  list(large, (size_t)found, kMostLarge, out);
}

void add_histogram(const Request& r, const double* nu, ptrdiff_t n, Reduced* out) {
  const double scale = kBins / (r.high - r.low);  // 0 if the range is beyond all doubles: then one bin holds everything
  double* sum = out->sum.data();
  for (ptrdiff_t i = 0; i < n; i++) {
    const double x = nu[i];
    if (!(x >= r.low && x <= r.high)) {
      list(&x, 1, kMostOutside, out);
      continue;
    }
    const double place = (x - r.low) * scale;
    const ptrdiff_t b = !(place > 0) ? 0 : place < kBins - 1.0 ? (ptrdiff_t)place : kBins - 1;  // 0 for NaN
    const double offset = place - (double)b;
    sum[3 * b] += 1;
    sum[3 * b + 1] += offset;
    sum[3 * b + 2] += offset * offset;
  }
}

void add_powers(const FlatKernels& kernels, const Request& r, const double* nu, ptrdiff_t n, Reduced* out) {
  PowerSums part;
  kernels.power_sums(nu, n, r.rate, r.count, &part);
  out->add(0, part.softplus);
  for (int j = 0; j < r.count; j++) {
    const PowerSum& p = part.term[j];
    const size_t at = (size_t)(1 + kPerRate * j);
    out->add(at + kLogSize, p.log_size);
    out->add(at + kLost, p.lost);
    out->add(at + kNegativeFactors, p.negative);
    out->least[(size_t)j] = std::fmin(out->least[(size_t)j], p.smallest);
    out->most[(size_t)j] = std::fmax(out->most[(size_t)j], p.largest);
  }
}

void add_block(const FlatKernels& kernels, const std::vector<Request>& requests, const double* nu, ptrdiff_t n,
               std::vector<Reduced>* out) {
  if (n == 0) return;
  for (size_t r = 0; r < requests.size(); r++) {
    const Request& request = requests[r];
    Reduced* to = &(*out)[r];
    if (request.kind == Asked::deviations) add_deviations(kernels, request, nu, n, to);
    else if (request.kind == Asked::small_deviations) add_small_deviations(kernels, request, nu, n, to);
    else if (request.kind == Asked::histogram) add_histogram(request, nu, n, to);
    else add_powers(kernels, request, nu, n, to);
  }
}

// The finite logits of a block, in `room` if there are others; `n` becomes their number.
const double* finite_part(const double* nu, ptrdiff_t* n, double* room, LeftOut* left_out) {
  if (all_finite(nu, *n)) return nu;
  ptrdiff_t kept = 0;
  for (ptrdiff_t i = 0; i < *n; i++) {
    const double x = nu[i];
    if (std::isfinite(x)) room[kept++] = x;
    else if (x > 0) left_out->forced++;
    else if (x < 0) left_out->excluded++;
    else left_out->invalid++;
  }
  *n = kept;
  return room;
}

Reduced nothing(const Request& request) {
  Reduced r;
  size_t sums = 0, extremes = 0;
  if (request.kind == Asked::deviations) sums = (size_t)(kDeviations + request.count), extremes = 1;
  if (request.kind == Asked::small_deviations) sums = 1 + 2 * kPowers;
  if (request.kind == Asked::histogram) sums = 3 * kBins;
  if (request.kind == Asked::powers) sums = (size_t)(1 + kPerRate * request.count), extremes = (size_t)request.count;
  r.sum.assign(sums, 0.0);
  if (request.kind != Asked::histogram) r.carry.assign(sums, 0.0);
  r.least.assign(extremes, kInfinity);
  r.most.assign(extremes, request.kind == Asked::powers ? 0.0 : -kInfinity);
  return r;
}

}  // namespace

int sums_at_least(int count) {
  for (const int most : kSumCounts)
    if (count <= most) return most;
  return kMaxChebyshev;
}

void Reduced::merge(const Reduced& later) {
  for (size_t j = 0; carry.empty() && j < sum.size(); j++) sum[j] += later.sum[j];
  for (size_t j = 0; j < carry.size(); j++) {
    add(j, later.sum[j]);
    carry[j] += later.carry[j];
  }
  for (size_t j = 0; j < least.size(); j++) {
    least[j] = std::fmin(least[j], later.least[j]);
    most[j] = std::fmax(most[j], later.most[j]);
  }
  complete = complete && later.complete;
  if (complete) listed.insert(listed.end(), later.listed.begin(), later.listed.end());
  else listed.clear();
}

template <class T>
std::vector<Reduced> reduce(const FlatKernels& kernels, int threads, const T* nu, ptrdiff_t n,
                            const std::vector<Request>& requests, bool known_finite, LeftOut* left_out) {
  const auto binned = [](const Request& r) { return r.kind == Asked::histogram; };
  const ptrdiff_t most = std::any_of(requests.begin(), requests.end(), binned) ? kMostHistograms : kMostGroups;
  const ptrdiff_t even = (n + most * kBlock - 1) / (most * kBlock) * kBlock;
  const ptrdiff_t length = std::max(kShortGroup, even), groups = std::max<ptrdiff_t>(1, (n + length - 1) / length);
  std::vector<std::vector<Reduced>> part((size_t)groups);
  std::vector<LeftOut> others((size_t)groups);
  parallel_for(groups, n >= kWorthThreads ? threads : 1, [&](ptrdiff_t g) {
    for (const Request& r : requests) part[(size_t)g].push_back(nothing(r));
    const ptrdiff_t end = std::min(n, (g + 1) * length);
    alignas(64) double room[kBlock];
    for (ptrdiff_t from = g * length; from < end; from += kBlock) {
      ptrdiff_t count = std::min(kBlock, end - from);
      const double* block = widened(nu + from, count, room);
      if (!known_finite) block = finite_part(block, &count, room, &others[(size_t)g]);
      add_block(kernels, requests, block, count, &part[(size_t)g]);
    }
  });
  for (size_t g = 0; g < (size_t)groups; g++) {
    left_out->excluded += others[g].excluded;
    left_out->forced += others[g].forced;
    left_out->invalid += others[g].invalid;
    for (size_t r = 0; g > 0 && r < requests.size(); r++) part[0][r].merge(part[g][r]);
  }
  return std::move(part[0]);
}

template std::vector<Reduced> reduce(const FlatKernels&, int, const double*, ptrdiff_t, const std::vector<Request>&,
                                     bool, LeftOut*);
template std::vector<Reduced> reduce(const FlatKernels&, int, const float*, ptrdiff_t, const std::vector<Request>&,
                                     bool, LeftOut*);

static Histogram histogram_of(const Request& request, const Reduced& r) {
  Histogram h = {request.low, request.high, {}, r.listed, r.complete};
  h.bins.resize((size_t)kBins);
  for (size_t b = 0; b < (size_t)kBins; b++) h.bins[b] = {r.value(3 * b), r.value(3 * b + 1), r.value(3 * b + 2)};
  return h;
}

// -- what a source is asked for ------------------------------------------------------------------------------------

Sums Source::sums(double tilt, int count) const {
  const Reduced r = reduced({.kind = Asked::deviations, .tilt = tilt, .count = sums_at_least(count)});
  Sums s;
  s.totals = {r.value(kLogNorm), r.value(kPositive), r.value(kNegative), r.value(kLikelyOn), r.value(kInfinite),
              r.least[0], r.most[0], (r.sum[kPositive] - r.value(kPositive)) + r.carry[kPositive]};
  for (size_t j = kDeviations; j < r.sum.size(); j++) s.deviation.push_back(r.value(j));
  return s;
}

SmallSums Source::small_sums(double tilt) const {
  Reduced r = reduced({.kind = Asked::small_deviations, .tilt = tilt});
  SmallSums s;
  s.likely_on = r.value(0);
  for (size_t j = 0; j < kPowers; j++) {
    s.off[j] = r.value(1 + j);
    s.on[j] = r.value(1 + kPowers + j);
  }
  s.large = std::move(r.listed);
  return s;
}

Histogram Source::histogram(double low, double high) const {
  const Request request = {.kind = Asked::histogram, .low = low, .high = high};
  return histogram_of(request, reduced(request));
}

PowerSums Source::powers(const double* rate, int count) const {
  Request request = {.kind = Asked::powers, .count = count};
  std::copy(rate, rate + count, request.rate);
  const Reduced r = reduced(request);
  PowerSums s = {};
  s.softplus = r.value(0);
  for (size_t j = 0; j < (size_t)count; j++) {
    const size_t at = 1 + kPerRate * j;
    s.term[j] = {r.sum[at + kLogSize], r.value(at + kLost) + r.carry[at + kLogSize], r.value(at + kNegativeFactors),
                 r.least[j], r.most[j]};
  }
  return s;
}

// -- logits in memory ----------------------------------------------------------------------------------------------

Reduced Logits::reduced(const Request& request) const {
  LeftOut none;
  return std::move(reduce(*kernels, threads, nu, n, {request}, true, &none)[0]);
}

Sums Logits::sums(double tilt, int count) const {
  if (n > kBlock) return Source::sums(tilt, count);
  Sums s;  // nothing to merge
  const int taken = sums_at_least(count);
  s.deviation.resize((size_t)taken);
  kernels->chebyshev_sums(nu, n, tilt, taken, &s.totals, s.deviation.data());
  return s;
}

Histogram Logits::histogram(double low, double high) const {
  if (low > high) return {low, high, {}, {nu, nu + n}, true};  // all are outside
  return Source::histogram(low, high);
}

// -- sums that somebody else has taken -------------------------------------------------------------------------------

// The histogram that is taken before anything is known: nearly all logits of most models lie in it.
constexpr double kOverviewReach = 16;
// Forecasts of a variance may be off.
constexpr double kPerhapsSplit = 2 * kSmallVariance, kSurelySplit = 0.5 * kSmallVariance;

static bool serves(const Request& known, const Request& asked) {
  if (known.kind != asked.kind) return false;
  if (asked.kind == Asked::deviations) return known.tilt == asked.tilt && known.count >= asked.count;
  if (asked.kind == Asked::small_deviations) return known.tilt == asked.tilt;
  if (asked.kind == Asked::histogram) return known.low == asked.low && known.high == asked.high;
  return known.count == asked.count && std::equal(known.rate, known.rate + known.count, asked.rate);
}

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
