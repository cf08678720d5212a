// Solve: the ladder of the series, from sums over the variables and a table of counts.

#include "base/constants.hpp"
#include "flat/flat.hpp"

namespace tallytree {

namespace {

constexpr double kNegligible = 44;  // nats: what is left out is below 1e-19

double log_add(double a, double b) {
  const double high = std::fmax(a, b);
  return high == -kInfinity ? high : high + std::log1p(std::exp(std::fmin(a, b) - high));
}

// Whether the untilted count gets to what the table allows: it goes further than this many standard deviations with a
// probability below the rounding of any sum, so that no certificate could hold.
bool within_reach(const Sums& untilted, const CountTable& table, ptrdiff_t n) {
  const double reach = 9 * std::sqrt(untilted.variance()) + 30, low = untilted.mean() - reach;
  const ptrdiff_t first = (ptrdiff_t)std::fmax(1.0, std::floor(low));
  const ptrdiff_t last = (ptrdiff_t)std::fmin((double)n - 1, std::ceil(low + 2 * reach));
  return table.any_possible({first, last});
}

// The counts 0 and n have closed forms, and messages of -inf and +inf; the rest is solved without them.
void take_ends(const Source& source, const FlatTotals& untilted, const CountTable& table, FlatSolution* s) {
  s->log_all_off = table.at(0) - softplus(untilted);
  s->log_all_on = table.at(source.n) - (untilted.negative + untilted.log_norm);
  s->sum_logits = untilted.positive - untilted.negative;
}

void solve_ends_only(const FlatTotals& untilted, const CountTable& table, ptrdiff_t n, FlatSolution* s) {
  const double off = table.at(0), on = table.at(n);
  s->kind = off > -kInfinity || on > -kInfinity ? FlatKind::ends : FlatKind::impossible;
  s->log_mean = log_add(s->log_all_off, s->log_all_on);
  s->log_norm = log_add(off, on + s->sum_logits);
  s->tilt = on - off;  // log-odds of "all on" before the logits; may be infinite
  const double tables = std::isfinite(s->tilt) ? std::fabs(off) + std::fabs(on) : 0;
  const double sums = std::isfinite(s->tilt) ? untilted.positive + untilted.negative : 0;
  s->bound = kRoundOff * (16 + 4 * std::sqrt((double)n) + 4 * (tables + sums));
}

// Ends that cannot be seen are dropped: "all off" carries at most W / P(y_i = 0) of d_i(0), and under the tilt
// P(y_i = 0) = q_i d(0) / Z with q_i >= 1 / (1 + e^{largest + s}); "all on" is the mirror image. Where pieces
// and ends are compared, rounding of their log weights counts, and so does that of the logits, which are subtracted
// from posterior log-odds.
void settle_ends(const Source& source, const FlatTotals& untilted, double interior, FlatSolution* s) {
  const double tilt = s->pieces[0].tilt, visible = interior - kNegligible + std::log(s->pieces[0].least_side);
  if (s->log_all_off < visible - std::fmax(0.0, untilted.largest + tilt)) s->log_all_off = -kInfinity;
  if (s->log_all_on < visible - std::fmax(0.0, -untilted.smallest - tilt)) s->log_all_on = -kInfinity;
  s->log_mean = log_add(interior, log_add(s->log_all_off, s->log_all_on));
  const bool off = s->log_all_off > -kInfinity, on = s->log_all_on > -kInfinity;
  if (s->pieces.size() == 1 && !off && !on) return;
  double error = 0;
  for (const Piece& piece : s->pieces)
    error = std::fmax(error, piece.weight_error + kRoundOff * std::fabs(piece.log_weight));
  const double norm = untilted.log_norm + 4 * std::sqrt((double)source.n);
  if (off) error = std::fmax(error, 2 * kRoundOff * (untilted.positive + norm + std::fabs(s->log_all_off)));
  if (on) error = std::fmax(error, 2 * kRoundOff * (untilted.negative + norm + std::fabs(s->log_all_on)));
  s->bound += 2 * error + 8 * kRoundOff * std::fmax(untilted.largest, -untilted.smallest);
}

}  // namespace

FlatSolution solve_series(const Source& source, const CountTable& table, const Sums& untilted) {
  const ptrdiff_t n = source.n;
  FlatSolution s;
  s.softplus = softplus(untilted.totals);
  s.largest_logit = std::fmax(untilted.totals.largest, -untilted.totals.smallest);
  take_ends(source, untilted.totals, table, &s);
  if (!table.any_possible({1, n - 1})) {
    solve_ends_only(untilted.totals, table, n, &s);
    return s;
  }
  s.kind = FlatKind::series;
  Piece plain;
  if (within_reach(untilted, table, n))
    plain = solve_piece(source, spectrum(source, untilted.totals, 0, &untilted), table, {1, n - 1});
  s.bound = plain.bound;
  if (plain.bound <= kTolerance) {
    s.pieces.push_back(std::move(plain));
  } else {
    s.bound = kInfinity;
    solve_by_segments(source, untilted, table, &s);
    if (!(s.bound <= plain.bound)) {
      s.bound = plain.bound;
      s.pieces.clear();
      if (plain.bound < kInfinity) s.pieces.push_back(std::move(plain));
    }
  }
  if (s.pieces.empty()) {
    s.bound = kInfinity;
    return s;
  }
  double interior = s.pieces[0].log_weight, rest = 1;
  for (size_t j = 1; j < s.pieces.size(); j++) rest += std::exp(s.pieces[j].log_weight - interior);
  settle_ends(source, untilted.totals, interior + std::log(rest), &s);
  s.log_norm = -kInfinity;
  for (const Piece& piece : s.pieces) s.log_norm = log_add(s.log_norm, piece.log_total);
  if (s.log_all_off > -kInfinity) s.log_norm = log_add(s.log_norm, table.at(0));
  if (s.log_all_on > -kInfinity) s.log_norm = log_add(s.log_norm, table.at(n) + s.sum_logits);
  if (!(s.bound < kMeaningful)) s.bound = kInfinity;
  return s;
}

// -- sums of powers ------------------------------------------------------------------------------------------------
//
// Potentials f(c) = sum_j a_j r_j^c with real terms, r_j >= -1: closed forms with a certificate.
//
// With W_j = prod_i g_ij, E f = sum_j a_j W_j, and the message to variable i is the log of
// sum_j a_j r_j W_j / g_ij over sum_j a_j W_j / g_ij. All terms positive: nothing cancels. Otherwise one term
// has to dominate: with x_j a bound of the share of term j in terms of the dominant one, what cancels is at most
// (1 + x) / (1 - x), x = sum_j x_j, and errors of W_j count with the weight x_j.

namespace {

constexpr double kDominated = 0.9;  // a share above this leaves too little of the dominant term
constexpr double kFaint = 650;      // logs beyond this are not held by plain numbers
constexpr double kUnseen = -60;     // logs of shares below this change nothing

struct Term {
  double rate;
  double log_size, error;  // of W_j; absolute error of the log
  double sign, smallest, largest;
};

// Every log of a factor is right to a few units of its own size, except where q + p r cancels; a rate that was rounded
// moves it by as much as a count of one does.
Term settle(const PowerSum& sum, double rate, ptrdiff_t n) {
  const double log_size = sum.log_size + sum.lost;
  double error = 2 * kRoundOff * (8 * std::fabs(log_size) + (rate == 1 ? 0 : (double)n));
  if (rate < 0) error += 8 * kRoundOff * (double)n / sum.smallest;
  return {rate, log_size, error, std::fmod(sum.negative, 2) == 0 ? 1.0 : -1.0, sum.smallest, sum.largest};
}

double largest_error(const std::vector<Term>& term) {
  double error = 0;
  for (const Term& t : term) error = std::fmax(error, 2 * t.error);
  return error;
}

// Bound of the relative error of sum_j c_j W_j / h_j for all h_j between the smallest and the largest factor of term j,
// where term `top` is positive; infinite if the others may cancel it.
double relative_error(const std::vector<Term>& term, const double* c, size_t top) {
  bool positive = true;
  double others = 0, error = 0;
  for (size_t j = 0; j < term.size(); j++) {
    positive = positive && c[j] >= 0 && term[j].rate >= 0;
    if (j == top || c[j] == 0) continue;
    const double share = std::fabs(c[j] / c[top]) * std::exp(term[j].log_size - term[top].log_size) *
                         std::fmax(1.0, term[top].largest / term[j].smallest);
    others += share;
    error += share * (term[j].error + term[top].error);
  }
  if (positive) return std::fmin(error, others > 0 ? largest_error(term) : 0.0);
  return others < kDominated ? (error + 8 * kRoundOff * (1 + others)) / (1 - others) : kInfinity;
}

}  // namespace

void solve_powers(ptrdiff_t n, const PowerSums& sums, const double* coefficient, const double* rate, int terms,
                  FlatSolution* s) {
  *s = FlatSolution();
  s->kind = FlatKind::series;  // without pieces: no answer
  s->bound = kInfinity;
  if (n == 0) return;
  s->softplus = sums.softplus;
  std::vector<Term> term;
  std::vector<double> log_weight;
  for (int j = 0; j < terms; j++) {
    const PowerSum& sum = sums.term[j];
    if (!(sum.smallest > kSmallestFactor && sum.largest < 1 / kSmallestFactor)) return;
    term.push_back(settle(sum, rate[j], n));
    log_weight.push_back(std::log(std::fabs(coefficient[j])) + term.back().log_size);
  }
  const size_t top = (size_t)(std::max_element(log_weight.begin(), log_weight.end()) - log_weight.begin());
  if (!(coefficient[top] > 0 && rate[top] > 0 && log_weight[top] > -kInfinity)) return;

  s->powers = std::make_unique<PowerForm>();
  s->powers->terms = terms;
  double total = 0, cavity[kMaxPowers] = {};
  for (size_t j = 0; j < term.size(); j++) {
    double relative = term[j].log_size - term[top].log_size;
    const double most = log_weight[j] - log_weight[top] + std::fmax(0.0, std::log(std::fabs(rate[j]) / rate[top])) +
                        std::log(term[top].largest / term[j].smallest);
    if (most < kUnseen) relative = -kInfinity;  // whatever it is, no variable can see it
    if (relative > -kInfinity && !(std::fabs(relative) < kFaint)) return;
    s->powers->rate[j] = rate[j];
    s->powers->off[j] = coefficient[j] * term[j].sign * std::exp(relative);
    s->powers->on[j] = rate[j] * s->powers->off[j];
    total += s->powers->off[j];
    cavity[j] = coefficient[j] * rate[j];
  }
  s->log_mean = std::log(total) + term[top].log_size;
  s->log_norm = s->log_mean + s->softplus;
  const double bound = relative_error(term, coefficient, top) + relative_error(term, cavity, top) + 16 * kRoundOff;
  if (!(bound < kMeaningful)) return;
  s->bound = bound;
  s->kind = FlatKind::powers;
}

// A table in memory.

constexpr ptrdiff_t kTableChunk = 1 << 16;
constexpr ptrdiff_t kLongTable = 1 << 18;
constexpr ptrdiff_t kAtATime = 1024;  // entries that are looked at together

static bool none_possible(const FlatKernels& kernels, const double* log_f) {
  return kernels.max_table(log_f, kAtATime, 0, 0) == -kInfinity;
}

ptrdiff_t first_possible(const FlatKernels& kernels, const double* log_f, ptrdiff_t count) {
  ptrdiff_t j = 0;
  while (count - j >= kAtATime && none_possible(kernels, log_f + j)) j += kAtATime;
  while (j < count && log_f[j] == -kInfinity) j++;
  return j;
}

ptrdiff_t last_possible(const FlatKernels& kernels, const double* log_f, ptrdiff_t count) {
  ptrdiff_t j = count;
  while (j >= kAtATime && none_possible(kernels, log_f + j - kAtATime)) j -= kAtATime;
  while (j > 0 && log_f[j - 1] == -kInfinity) j--;
  return j - 1;
}

double ArrayTable::largest(Range range, double slope, double origin) const {
  const ptrdiff_t length = range.last - range.first + 1;
  if (length <= 0) return -kInfinity;
  if (length < kLongTable)
    return kernels_->max_table(log_f_ + (range.first - first_), length, slope, (double)range.first - origin);
  std::vector<double> largest((size_t)((length + kTableChunk - 1) / kTableChunk));
  over_parts(length, kTableChunk, threads_, [&](ptrdiff_t at, ptrdiff_t count) {
    const ptrdiff_t from = range.first + at;
    largest[(size_t)(at / kTableChunk)] = kernels_->max_table(log_f_ + (from - first_), count, slope, (double)from - origin);
  });
  return *std::max_element(largest.begin(), largest.end());
}

Range ArrayTable::possible(Range r) const {
  if (r.empty()) return r;
  r.first += first_possible(*kernels_, log_f_ + (r.first - first_), r.last - r.first + 1);
  if (!r.empty()) r.last = r.first + last_possible(*kernels_, log_f_ + (r.first - first_), r.last - r.first + 1);
  return r;
}

bool ArrayTable::any_possible(Range r) const {
  const ptrdiff_t count = r.last - r.first + 1;
  return count > 0 && first_possible(*kernels_, log_f_ + (r.first - first_), count) < count;
}

}  // namespace tallytree
