// Where the posterior of the count lives, and the ladder beyond tilt 0.
//
// Chernoff: P(k) <= exp(K(s) - s k) for every s, K(s) = sum log(1 + e^{nu + s}). A grid of tilts thus gives
// log f(k) - max_g (s_g k - K_g), an upper bound of the log weight of k; counts far below the best one are dropped, and
// the bound of what was dropped enters the certificate. The others are solved in segments, each under the tilt whose
// mean is the posterior mean of the segment; a segment whose certificate fails is bisected. All weights are
// positive, so the segments add up without cancellation.
#include <algorithm>
#include <cmath>

#include "flat/flat.hpp"
#include "flat/summary.hpp"

namespace tallytree {

namespace {

constexpr double kInfinity = __builtin_inf();
constexpr double kCut = 64;      // nats below the best count at which a count is dropped
constexpr int kRounds = 40;      // of grid refinement
constexpr size_t kMaxGrid = 4000;
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

// Counts k with left.mean <= k < right.mean; the outermost gaps take all that is left.
struct Range {
  ptrdiff_t first, last;
};

// std::fmax is a library call; these loops see no NaN.
inline double larger(double a, double b) { return a > b ? a : b; }

class Grid {
 public:
  Grid(const LogitSummary& summary, const double* log_f, Range support)
      : summary_(summary), log_f_(log_f), support_(support) {
    tilts_ = {summary.with_mean((double)support.first - 0.5, 0),
              summary.with_mean((double)support.last + 0.5, 0)};
    if (tilts_[0].s < 0 && tilts_[1].s > 0) tilts_.insert(tilts_.begin() + 1, summary.at(0));
    for (size_t g = 0; g + 1 < tilts_.size(); g++) gaps_.push_back(measure(g));
  }

  // Halves every gap that may matter and is wider than about three standard deviations.
  void refine() {
    for (int round = 0; round < kRounds && tilts_.size() < kMaxGrid; round++) {
      const double best = lower_bound();
      std::vector<Tilt> tilts = {tilts_[0]};
      std::vector<Gap> gaps;
      std::vector<size_t> fresh;
      for (size_t g = 0; g + 1 < tilts_.size(); g++) {
        const Tilt &l = tilts_[g], &r = tilts_[g + 1];
        const double wide = r.mean - l.mean, sd = std::sqrt(0.5 * (l.variance + r.variance)) + 0.3;
        const bool matters = gaps_[g].upper > best - kCut && wide > 3 * sd && r.s - l.s > 1e-9;
        if (matters) {
          tilts.push_back(summary_.at(0.5 * (l.s + r.s)));
          fresh.push_back(gaps.size());
          gaps.push_back({});
          fresh.push_back(gaps.size());
        }
        tilts.push_back(r);
        gaps.push_back(gaps_[g]);
      }
      if (fresh.empty()) return;
      tilts_.swap(tilts);
      gaps_.swap(gaps);
      for (const size_t g : fresh) gaps_[g] = measure(g);
    }
  }

  Hull hull() const {
    Hull h;
    const double best = lower_bound();
    const double home = h.home = best_tilt();
    for (size_t g = 0; g + 1 < tilts_.size(); g++) {
      const Tilt &l = tilts_[g], &r = tilts_[g + 1];
      const Range range = counts(g);
      if (range.first > range.last) continue;
      // Leaving one variable out shifts a count by one, which costs at most |s - home| nats.
      const double steepest = larger(std::fabs(l.s - home), std::fabs(r.s - home));
      if (gaps_[g].upper + steepest < best - kCut) {
        h.dropped = larger(h.dropped, gaps_[g].upper + steepest);
        continue;
      }
      for (ptrdiff_t k = range.first; k <= range.last; k++) {
        if (log_f_[k] == -kInfinity) continue;
        const double kk = (double)k, left = l.s * kk - l.log_norm, right = r.s * kk - r.log_norm;
        const double upper = log_f_[k] - larger(left, right);
        const double slack = std::fabs((left > right ? l.s : r.s) - home);
        if (upper + slack < best - kCut) {
          h.dropped = larger(h.dropped, upper + slack);
        } else {
          const Tilt& near = kk - l.mean < r.mean - kk ? l : r;
          const double away = kk - near.mean;
          const double rate = (near.s * kk - near.log_norm) + 0.5 * away * away / (near.variance + 0.1);
          h.alive.push_back({k, log_f_[k], log_f_[k] - larger(rate, larger(left, right))});
        }
      }
    }
    return h;
  }

 private:
  Range counts(size_t g) const {
    const bool at_start = g == 0, at_end = g + 2 == tilts_.size();
    Range r = {at_start ? support_.first : (ptrdiff_t)std::ceil(tilts_[g].mean),
               at_end ? support_.last : (ptrdiff_t)std::ceil(tilts_[g + 1].mean) - 1};
    r.first = std::max(r.first, support_.first);
    r.last = std::min(r.last, support_.last);
    return r;
  }

  // I(k) lies above both tangents and below the chord.
  Gap measure(size_t g) const {
    const Tilt &l = tilts_[g], &r = tilts_[g + 1];
    const Range range = counts(g);
    const double wide = r.mean - l.mean, slope = wide > 0 ? (r.rate() - l.rate()) / wide : 0;
    Gap gap = {-kInfinity, -kInfinity};
    for (ptrdiff_t k = range.first; k <= range.last; k++) {
      const double kk = (double)k;
      const double tangent = larger(l.s * kk - l.log_norm, r.s * kk - r.log_norm);
      const double chord = l.rate() + slope * (kk - l.mean);
      gap.upper = larger(gap.upper, log_f_[k] - tangent);
      gap.lower = larger(gap.lower, log_f_[k] - larger(chord, tangent));
    }
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
  const double* log_f_;
  Range support_;
  std::vector<Tilt> tilts_;
  std::vector<Gap> gaps_;
};

Range interior_support(const double* log_f, ptrdiff_t n) {
  Range r = {1, n - 1};
  while (r.first <= r.last && log_f[r.first] == -kInfinity) r.first++;
  while (r.last >= r.first && log_f[r.last] == -kInfinity) r.last--;
  return r;
}

Hull find_hull(const LogitSummary& summary, const double* log_f, Range support) {
  if (support.first == support.last) return {{{support.first, log_f[support.first], 0.0}}, -kInfinity, 0};
  Grid grid(summary, log_f, support);
  grid.refine();
  return grid.hull();
}

// What is known about a segment of candidates before it is solved.
struct Forecast {
  Tilt tilt;
  double log_amplification;  // of the round-off of the characteristic function
};

Forecast forecast(const LogitSummary& summary, const Candidate* begin, const Candidate* end) {
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
  result.log_amplification =
      begin + 1 == end ? 0.0 : highest + std::log(table) + result.tilt.log_norm - top - std::log(sum);
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

Piece solve_segment(const Logits& logits, const FlatTotals& untilted, const Candidate* begin, const Candidate* end,
                    const Tilt& tilt) {
  const ptrdiff_t first = begin->count, length = end[-1].count - first + 1;
  std::vector<double> table((size_t)length, -kInfinity);
  for (const Candidate* c = begin; c != end; c++) table[(size_t)(c->count - first)] = c->log_f;
  return solve_piece(logits, spectrum(logits, untilted, tilt.s, nullptr, tilt.variance), table.data(), first, length);
}

}  // namespace

bool posterior_tilt(const Logits& logits, const FlatTotals& untilted, const double* log_f, double* tilt) {
  const Range support = interior_support(log_f, logits.n);
  if (support.first > support.last) return false;
  const LogitSummary summary(logits, untilted);
  const Hull hull = find_hull(summary, log_f, support);
  if (hull.alive.empty()) return false;
  *tilt = forecast(summary, hull.alive.data(), hull.alive.data() + hull.alive.size()).tilt.s;
  return true;
}

void solve_by_segments(const Logits& logits, const Sums& untilted, const double* log_f, FlatSolution* solution) {
  const LogitSummary summary(logits, untilted.totals);
  const Hull hull = find_hull(summary, log_f, interior_support(log_f, logits.n));
  if (hull.alive.empty()) return;
  struct Segment {
    const Candidate *begin, *end;
  };
  std::vector<Segment> todo = {{hull.alive.data(), hull.alive.data() + hull.alive.size()}};
  std::vector<Piece> pieces;
  double bound = 0;
  while (!todo.empty()) {
    const Segment segment = todo.back();
    todo.pop_back();
    const bool single = segment.begin + 1 == segment.end;
    const Forecast f = forecast(summary, segment.begin, segment.end);
    const double expected = std::exp(f.log_amplification) * kRoundOff * (100 + 50 * std::sqrt(f.tilt.variance));
    Piece piece;
    if (single || expected < 10 * kTolerance)
      piece = solve_segment(logits, untilted.totals, segment.begin, segment.end, f.tilt);
    const bool enough = piece.bound <= (f.log_amplification < kLittle ? kRoundedTable : kTolerance);
    if (!enough && !single) {
      if (todo.size() + pieces.size() + 2 > (size_t)kMaxPieces) {
        solution->bound = kInfinity;
        return;
      }
      const Candidate* middle = cut(segment.begin, segment.end);
      todo.push_back({segment.begin, middle});
      todo.push_back({middle, segment.end});
      continue;
    }
    bound = std::fmax(bound, piece.bound);
    if (!(piece.bound < kInfinity)) break;
    pieces.push_back(std::move(piece));
  }
  solution->bound = bound;
  if (!(bound < kInfinity)) return;
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.log_weight > b.log_weight; });
  const double dropped = hull.dropped + std::fabs(hull.home - pieces[0].tilt) - softplus(untilted.totals) +
                         std::log((double)logits.n + 1) - pieces[0].log_weight - std::log(pieces[0].least_side);
  solution->bound += dropped < -20 ? 2 * std::exp(dropped) : kInfinity;
  solution->pieces = std::move(pieces);
}

}  // namespace tallytree
