// Where the posterior of the count lives, and the ladder beyond tilt 0.
//
// Chernoff: P(k) <= exp(K(s) - s k) for every s, K(s) = sum log(1 + e^{nu + s}). A grid of tilts thus gives
// log f(k) - max_g (s_g k - K_g), an upper bound of the log weight of k; counts far below the best one are dropped, and
// the bound of what was dropped enters the certificate. The others are solved in segments, each under the tilt whose
// mean is the posterior mean of the segment; a segment whose certificate fails is bisected. All weights are
// positive, so the segments add up without cancellation.

#include "base/constants.hpp"
#include "flat/flat.hpp"

namespace tallytree {

namespace {

constexpr double kCut = 64;      // nats below the best count at which a count is dropped
constexpr double kNeverSeen = 50;   // nats below it at which no variable sees a count
constexpr int kCuts = 4;         // of the counts that nobody must see
constexpr int kRounds = 40;      // of grid refinement
constexpr size_t kMaxGrid = 4000;
constexpr double kMostAlive = 1 << 26;  // counts: more than so many do not fit kMaxPieces segments
constexpr double kRoundedTable = 10 * kTolerance;  // a bound that cutting hardly improves: the table's own rounding
constexpr double kLittle = 3;                      // nats of amplification

struct Candidate {
  ptrdiff_t count;
  double log_f, weight;  // estimated log of f(k) exp(-I(k))
};

struct Hull {
  std::vector<Candidate> alive;
  double dropped = -kInfinity;  // log of an upper bound of what was dropped, per count, for leaves tilted by `home`
  double home = 0;
};

struct Gap {
  double upper, lower;  // bounds of max_k log f(k) - I(k) between two neighbours of the grid
};

// std::fmax is a library call; these loops see no NaN.
inline double larger(double a, double b) { return a > b ? a : b; }

class Grid {
 public:
  Grid(const LogitSummary& summary, const CountTable& table, Range support)
      : summary_(summary), table_(table), support_(support) {
    tilts_ = {summary.with_mean((double)support.first - 0.5, 0),
              summary.with_mean((double)support.last + 0.5, 0)};
    if (tilts_[0].s < 0 && tilts_[1].s > 0) tilts_.insert(tilts_.begin() + 1, summary.at(0));
    for (size_t g = 0; g + 1 < tilts_.size(); g++) gaps_.push_back(measure(g));
  }

  // Halves every gap that may matter and is wider than about three standard deviations, from the right: what is left of a
  // new tilt keeps its place.
  void refine() {
    for (int round = 0; round < kRounds && tilts_.size() < kMaxGrid; round++) {
      const double best = lower_bound();
      const size_t before = gaps_.size();
      for (size_t g = before; g-- > 0;) {
        const Tilt l = tilts_[g], r = tilts_[g + 1];
        const double wide = r.mean - l.mean, sd = std::sqrt(0.5 * (l.variance + r.variance)) + 0.3;
        if (!(gaps_[g].upper > best - kCut && wide > 3 * sd && r.s - l.s > 1e-9)) continue;
        tilts_.insert(tilts_.begin() + (ptrdiff_t)g + 1, summary_.at(0.5 * (l.s + r.s)));
        gaps_.insert(gaps_.begin() + (ptrdiff_t)g, Gap{});
        gaps_[g] = measure(g);
        gaps_[g + 1] = measure(g + 1);
      }
      if (gaps_.size() == before) return;
    }
  }

  Hull hull() const {
    Hull h;
    const double best = lower_bound();
    const double home = h.home = best_tilt();
    double held = 0;
    std::vector<double> room;
    for (size_t g = 0; g + 1 < tilts_.size(); g++) {
      const Tilt &l = tilts_[g], &r = tilts_[g + 1];
      const Range range = counts(g);
      if (range.empty()) continue;
      // Leaving one variable out shifts a count by one, which costs at most |s - home| nats.
      const double steepest = larger(std::fabs(l.s - home), std::fabs(r.s - home));
      if (gaps_[g].upper + steepest < best - kCut) {
        h.dropped = larger(h.dropped, gaps_[g].upper + steepest);
        continue;
      }
      const ptrdiff_t length = range.last - range.first + 1;
      if ((held += (double)length) > kMostAlive) {
        h.alive.clear();
        return h;
      }
      const double* log_f = table_.window(range.first, length, &room);
      for (ptrdiff_t k = range.first; k <= range.last; k++) {
        const double f = log_f[k - range.first];
        if (f == -kInfinity) continue;
        const double kk = (double)k, left = l.s * kk - l.log_norm, right = r.s * kk - r.log_norm;
        const double upper = f - larger(left, right);
        const double slack = std::fabs((left > right ? l.s : r.s) - home);
        if (upper + slack < best - kCut) {
          h.dropped = larger(h.dropped, upper + slack);
        } else {
          const Tilt& near = kk - l.mean < r.mean - kk ? l : r;
          const double away = kk - near.mean;
          const double rate = (near.s * kk - near.log_norm) + 0.5 * away * away / (near.variance + 0.1);
          h.alive.push_back({k, f, f - larger(rate, larger(left, right))});
        }
      }
    }
    return h;
  }

 private:
  // Counts k with left.mean <= k < right.mean; the outermost gaps take all that is left.
  Range counts(size_t g) const {
    const bool at_start = g == 0, at_end = g + 2 == tilts_.size();
    Range r = {at_start ? support_.first : (ptrdiff_t)std::ceil(tilts_[g].mean),
               at_end ? support_.last : (ptrdiff_t)std::ceil(tilts_[g + 1].mean) - 1};
    r.first = std::max(r.first, support_.first);
    r.last = std::min(r.last, support_.last);
    return r;
  }

  // I(k) lies above both tangents and below the chord. The left tangent is the higher one up to where the two meet.
  Gap measure(size_t g) const {
    const Tilt &l = tilts_[g], &r = tilts_[g + 1];
    const Range range = counts(g);
    if (range.empty()) return {-kInfinity, -kInfinity};
    const double wide = r.mean - l.mean, slope = wide > 0 ? (r.rate() - l.rate()) / wide : 0;
    const double meet = r.s > l.s ? (r.log_norm - l.log_norm) / (r.s - l.s) : (double)range.last;
    const double bend = std::fmin(std::fmax(std::floor(meet), (double)range.first - 1), (double)range.last);
    const ptrdiff_t left = (ptrdiff_t)bend;
    Gap gap;
    gap.upper = larger(table_.largest({range.first, left}, l.s, 0) + l.log_norm,
                       table_.largest({left + 1, range.last}, r.s, 0) + r.log_norm);
    gap.lower = std::fmin(gap.upper, table_.largest(range, slope, l.mean) - l.rate());
    return gap;
  }

  double lower_bound() const {
    double best = -kInfinity;
    for (const Gap& gap : gaps_) best = larger(best, gap.lower);
    return best;
  }

  double best_tilt() const {
    size_t best = 0;
    for (size_t g = 0; g < gaps_.size(); g++)
      if (gaps_[g].lower > gaps_[best].lower) best = g;
    return 0.5 * (tilts_[best].s + tilts_[best + 1].s);
  }

  const LogitSummary& summary_;
  const CountTable& table_;
  Range support_;
  std::vector<Tilt> tilts_;
  std::vector<Gap> gaps_;
};

Hull find_hull(LogitSummary& summary, const CountTable& table, Range support) {
  if (support.first == support.last) return {{{support.first, table.at(support.first), 0.0}}, -kInfinity, 0};
  summary.gather();
  Grid grid(summary, table, support);
  grid.refine();
  return grid.hull();
}

// What is known about a segment of candidates before it is solved.
struct Forecast {
  Tilt tilt;
  double log_amplification;  // of the round-off of the characteristic function
};

Forecast forecast(const LogitSummary& summary, const Candidate* begin, const Candidate* end) {
  if (begin + 1 == end) return {summary.roughly_with_mean((double)begin->count), 0.0};
  double top = -kInfinity, sum = 0, first_moment = 0;
  for (const Candidate* c = begin; c != end; c++) top = std::fmax(top, c->weight);
  for (const Candidate* c = begin; c != end; c++) {
    const double w = std::exp(c->weight - top);
    sum += w;
    first_moment += w * (double)c->count;
  }
  Forecast result;
  result.tilt = summary.with_mean(first_moment / sum, 0);
  double highest = -kInfinity, table = 0;
  const double s = result.tilt.s;
  for (const Candidate* c = begin; c != end; c++) highest = std::fmax(highest, c->log_f - s * (double)c->count);
  for (const Candidate* c = begin; c != end; c++) table += std::exp(c->log_f - s * (double)c->count - highest);
  result.log_amplification = highest + std::log(table) + result.tilt.log_norm - top - std::log(sum);
  return result;
}

// Where to cut: in the widest run of dropped counts if it is a good part of the segment, else in the middle.
const Candidate* cut(const Candidate* begin, const Candidate* end) {
  const Candidate* widest = begin + 1;
  for (const Candidate* c = begin + 1; c != end; c++)
    if (c->count - c[-1].count > widest->count - widest[-1].count) widest = c;
  const ptrdiff_t range = end[-1].count - begin->count;
  if (4 * (widest->count - widest[-1].count) > range) return widest;
  const ptrdiff_t middle = begin->count + range / 2;
  return std::lower_bound(begin + 1, end - 1, middle, [](const Candidate& c, ptrdiff_t k) { return c.count < k; });
}

// Candidates that are solved under one tilt.
struct Segment {
  const Candidate *begin, *end;
  Forecast forecast;
  bool single() const { return begin + 1 == end; }
  bool worth_solving() const {
    const double expected =
        std::exp(forecast.log_amplification) * kRoundOff * (100 + 50 * std::sqrt(forecast.tilt.variance));
    return single() || expected < 10 * kTolerance;
  }
  bool served_by(const Piece& piece) const {
    return single() || piece.bound <= (forecast.log_amplification < kLittle ? kRoundedTable : kTolerance);
  }
};

Piece solve_segment(const Source& source, const FlatTotals& untilted, const Segment& segment) {
  const ptrdiff_t first = segment.begin->count, last = segment.end[-1].count;
  std::vector<double> log_f((size_t)(last - first + 1), -kInfinity);
  for (const Candidate* c = segment.begin; c != segment.end; c++) log_f[(size_t)(c->count - first)] = c->log_f;
  const ArrayTable table(source.kernels, source.threads, log_f.data(), first);
  return solve_piece(source, spectrum(source, untilted, segment.forecast.tilt.s, nullptr, segment.forecast.tilt.variance), table, {first, last});
}

// Cuts until every segment is worth solving; false if they become too many.
bool subdivide(const LogitSummary& summary, const Candidate* begin, const Candidate* end, size_t most,
               std::vector<Segment>* out) {
  std::vector<std::pair<const Candidate*, const Candidate*>> todo = {{begin, end}};
  while (!todo.empty()) {
    const auto [from, to] = todo.back();
    todo.pop_back();
    const Segment segment = {from, to, forecast(summary, from, to)};
    if (segment.worth_solving()) {
      out->push_back(segment);
      continue;
    }
    if (todo.size() + out->size() + 2 > most) return false;
    const Candidate* middle = cut(from, to);
    todo.push_back({from, middle});
    todo.push_back({middle, to});
  }
  return true;
}

// All segments in rounds: what fails in one round is cut and solved in the next, so that a source that has to fetch
// sums is asked once per round. False if some part has no answer.
bool solve_segments(const Source& source, const FlatTotals& untilted, const LogitSummary& summary, const Hull& hull,
                    std::vector<Piece>* pieces) {
  std::vector<Segment> round, failed;
  const Candidate* all = hull.alive.data();
  if (!subdivide(summary, all, all + hull.alive.size(), (size_t)kMaxPieces, &round)) return false;
  while (!round.empty()) {
    std::vector<Wish> wishes;
    for (const Segment& s : round) wishes.push_back({s.forecast.tilt.s, s.forecast.tilt.variance});
    source.expect(wishes);
    failed.clear();
    for (const Segment& s : round) {
      Piece piece = solve_segment(source, untilted, s);
      if (!s.served_by(piece)) failed.push_back(s);
      else if (piece.bound < kInfinity) pieces->push_back(std::move(piece));
      else return false;
    }
    round.clear();
    for (const Segment& s : failed) {
      const Candidate* middle = cut(s.begin, s.end);
      const size_t most = (size_t)kMaxPieces - std::min((size_t)kMaxPieces, pieces->size());
      if (!subdivide(summary, s.begin, middle, most, &round) || !subdivide(summary, middle, s.end, most, &round) ||
          round.size() > most)
        return false;
    }
  }
  return true;
}

}  // namespace

// The elementary symmetric polynomials e_c of the weights are log-concave in c: where the mean under a tilt s is at least c + 2
// the mode lies above c, and e_{c-1} / e_c <= e^s. So a variable with nu + s < -margin is on in a share of at most e^-margin
// of the weight of count c. Likewise for variables that are on; leaving one variable out shifts counts by one.
OpenLogits open_logits(const Source& source, const FlatTotals& untilted, const CountTable& table) {
  const double n = (double)source.n, margin = kCut + std::log(n);
  const Range support = table.possible({1, source.n - 1});
  if (support.empty()) return {};
  LogitSummary summary(source, untilted);
  const Hull hull = find_hull(summary, table, support);
  if (hull.alive.empty()) return {};
  double best = hull.alive[0].weight;
  for (const Candidate& c : hull.alive) best = larger(best, c.weight);
  const Range every = table.possible({0, source.n});
  if (hull.alive.size() == 1 && every.first != every.last) {  // otherwise nothing is compared
    const double only = (double)hull.alive[0].count;
    const Tilt tilt = summary.with_mean(only, 0);
    best = hull.alive[0].log_f + tilt.log_norm - tilt.s * only;
  }
  const double visible = best - 2 * kCut - 0.5 * std::log(n);
  const Candidate *from = hull.alive.data(), *to = from + hull.alive.size();
  if (from + 1 < to) {
    while (from->weight < visible) from++;
    while (to[-1].weight < visible) to--;
  }
  double first = (double)from->count, last = (double)to[-1].count;
  if (table.at(0) > visible) first = 0;
  if (table.at(source.n) + (untilted.positive - untilted.negative) > visible) last = n;
  const bool all_below = first - 3 < 0.5, all_above = last + 3 > n - 0.5;
  const Tilt below = summary.with_mean(std::fmax(first - 3, 0.5), 0), above = summary.with_mean(std::fmin(last + 3, n - 0.5), 0);
  // Other counts must not be seen by any variable either, however small its odds: with e_c <= e^{K(s) - s c}, what count c adds
  // to the rare side of a variable that is on is at most f(c) e^{K(s) - s c} times e^{tilt of the counts that matter - s}. Any s
  // will do: counts that are far off have their own. Above the counts that matter the factor is at most 1, for e_c / e_{c-1}
  // falls. Likewise for variables that are off, below them.
  const auto unseen = [&](auto&& self, Range range, int cuts) -> bool {
    range = table.possible(range);
    if (range.empty()) return true;
    const bool under = (double)range.last < first;
    const double nearest = (double)(under ? range.last : range.first);
    const Tilt own = summary.with_mean(std::fmin(std::fmax(nearest, 0.5), n - 0.5), 0);
    const double apart = under ? (all_below ? 0 : above.s - own.s) : (all_above ? 0 : own.s - below.s);
    if (table.largest(range, own.s, 0) + own.log_norm + apart <= best - kNeverSeen) return true;
    if (!cuts || range.first == range.last) return false;
    const ptrdiff_t middle = range.first + (range.last - range.first) / 2;
    return self(self, {range.first, middle}, cuts - 1) && self(self, {middle + 1, range.last}, cuts - 1);
  };
  if (!unseen(unseen, {0, (ptrdiff_t)first - 1}, kCuts) || !unseen(unseen, {(ptrdiff_t)last + 1, source.n}, kCuts)) return {};
  OpenLogits open;
  if (!all_above) open.low = -margin - above.s;
  if (!all_below) open.high = margin - below.s;
  return open;
}

bool posterior_tilt(const Source& source, const FlatTotals& untilted, const CountTable& table, double* tilt) {
  const Range support = table.possible({1, source.n - 1});
  if (support.empty()) return false;
  LogitSummary summary(source, untilted);
  const Hull hull = find_hull(summary, table, support);
  if (hull.alive.empty()) return false;
  *tilt = forecast(summary, hull.alive.data(), hull.alive.data() + hull.alive.size()).tilt.s;
  return true;
}

void solve_by_segments(const Source& source, const Sums& untilted, const CountTable& table, FlatSolution* solution) {
  LogitSummary summary(source, untilted.totals);
  const Hull hull = find_hull(summary, table, table.possible({1, source.n - 1}));
  std::vector<Piece> pieces;
  solution->bound = kInfinity;
  if (hull.alive.empty() || !solve_segments(source, untilted.totals, summary, hull, &pieces)) return;
  double bound = 0;
  for (const Piece& piece : pieces) bound = std::fmax(bound, piece.bound);
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.log_weight > b.log_weight; });
  const double dropped = hull.dropped + std::fabs(hull.home - pieces[0].tilt) - softplus(untilted.totals) +
                         std::log((double)source.n + 1) - pieces[0].log_weight - std::log(pieces[0].least_side);
  solution->bound = bound + (dropped < -20 ? 2 * std::exp(dropped) : kInfinity);
  solution->pieces = std::move(pieces);
}

}  // namespace tallytree
