// Tangents of batches of flat models.
//
// Small models, and those whose tables allow few counts, lie side by side in the lanes of a register. Others are solved
// first: the solution says under which tilts the characteristic functions are to be taken. A model that none of this
// certifies has an infinite bound.
#include <numeric>

#include "base/sigmoid.hpp"
#include "flat/batches.hpp"
#include "base/workspace.hpp"

namespace tallytree {

namespace {

// Up to this size a direct tree, models side by side, is the quickest for products.
constexpr ptrdiff_t kDirectProducts = 400;
constexpr ptrdiff_t kFewProducts = 1200;   // ... or this, if a table allows so few counts, of ones or of zeros
constexpr ptrdiff_t kFewCounts = 128;
constexpr ptrdiff_t kWorthLanes = 4;       // and there are models enough for the lanes
constexpr double kSafe = 1e-250;           // smallest Z, as a share of the largest table entry, of a direct tree
constexpr double kAccepted = 1e-10;        // error as a share of the direction
constexpr double kAcceptedShares = 1e-9;   // of the solution: an error of shares of the posterior moves an answer by as much of it
constexpr double kWaits = -1;              // instead of a bound: a direct tree is needed, which others may share

TangentModel model_of(const TangentBatch& in, ptrdiff_t b) {
  const ptrdiff_t n = in.n;
  const auto row = [&](auto* all, ptrdiff_t length) { return all ? all + b * length : nullptr; };
  const auto along = [&](auto* all, ptrdiff_t length) { return in.directions ? row(all, length) : nullptr; };
  return {in.nu + b * n, in.log_f + b * in.table_stride, (int)in.directions, in.batch * n, in.batch * (n + 1),
          along(in.v, n), along(in.h, n + 1), along(in.change, n), row(in.counts, n + 1), along(in.count_change, n + 1),
          in.bound + b};
}

// Up to one register of models with at most one direction each by the direct tree; true where Z is safe.
void solve_direct(const Kernels& kernels, ptrdiff_t n, const TangentModel* models, const double* tilt,
                  const FlatTotals*, int count, bool* done) {
  const AlignedArray scratch = aligned_doubles((size_t)kernels.flat->tangent_direct_scratch(n));
  const std::vector<double> nothing(models[0].v ? 0 : (size_t)n, 0.0);
  DirectRows rows;
  rows.models = count;
  for (int l = 0; l < count; l++) {
    const TangentModel& m = models[l];
    rows.nu[l] = m.nu;
    rows.log_f[l] = m.log_f;
    rows.v[l] = m.v ? m.v : nothing.data();
    rows.h[l] = m.h;
    rows.tilt[l] = tilt[l];
    rows.change[l] = m.change;
    rows.counts[l] = m.counts;
    rows.count_change[l] = m.count_change;
  }
  DirectTotals totals[8];
  kernels.flat->tangent_direct(rows, n, scratch.get(), totals);
  for (int l = 0; l < count; l++) done[l] = totals[l].smallest > kSafe;
}

// The directions of one model side by side.
bool solve_directions(const Kernels& kernels, ptrdiff_t n, const TangentModel& model, double tilt) {
  bool all = true;
  for (int from = 0; all && (from == 0 || from < model.directions); from += kernels.lanes) {
    TangentModel part[8];
    double tilts[8];
    bool done[8];
    const int count = std::clamp(model.directions - from, 1, kernels.lanes);
    for (int l = 0; l < count; l++) part[l] = model.along(from + l, 1), tilts[l] = tilt;
    solve_direct(kernels, n, part, tilts, nullptr, count, done);
    for (int l = 0; l < count; l++) all = all && done[l];
  }
  return all;
}

// "All off or all on" is one choice for all variables.
void solve_ends(const FlatSolution& s, ptrdiff_t n, const TangentModel& m) {
  const double odds = s.tilt + s.sum_logits, on = sigmoid(odds), off = sigmoid(-odds);
  if (m.counts) {
    std::fill_n(m.counts, n + 1, 0.0);
    m.counts[0] = off;
    m.counts[n] = on;
  }
  for (int r = 0; r < m.directions; r++) {
    long double level = 0;
    for (ptrdiff_t i = 0; i < n; i++) level += m.v_row(r)[i];
    const double moved = on * off > 0 ? on * off * ((double)level + m.table(r, n) - m.table(r, 0)) : 0.0;
    if (m.change) std::fill_n(m.change + r * m.stride, n, moved);
    if (!m.count_change) continue;
    double* to = m.count_change + r * m.count_stride;
    std::fill_n(to, n + 1, 0.0);
    to[n] = moved;
    to[0] = -moved;
  }
}

// Finite logits, by series; where these certify nothing, and n permits, by a tree under a tilt, unless that `may_wait`.
double solve_by_series(const Kernels& kernels, int threads, ptrdiff_t n, const TangentModel& m, bool may_wait = false) {
  FlatRows rows = {&kernels, threads, 1, n, m.nu, m.log_f};
  rows.cavities = false;
  solve_rows(&rows);
  const FlatSolution& s = rows.row[0];
  if (s.kind == FlatKind::impossible) return kInfinity;
  if (s.kind == FlatKind::ends) {
    solve_ends(s, n, m);
    return s.bound;
  }
  // Spectra that are split treat many variables one by one: several times the cost of trees that share the lanes.
  const bool split = std::any_of(s.pieces.begin(), s.pieces.end(), [](const Piece& piece) { return piece.split; });
  if (may_wait && split && n <= kFewProducts) return kWaits;
  double bound = kInfinity;
  if (s.kind == FlatKind::series && s.bound <= kAcceptedShares) {
    bound = 0;
    for (int from = 0; from == 0 || from < m.directions; from += kMaxDirections) {
      TangentModel part = m.along(from, kMaxDirections);
      double found = series_tangent(kernels, threads, s, n, part);
      if (found > kAccepted && part.directions) {
        part.shifted = false;
        found = series_tangent(kernels, threads, s, n, part);
      }
      bound = std::fmax(bound, found);
    }
  }
  if (bound <= kAccepted) return bound;
  if (n > kDirectAtMost) return kInfinity;
  if (may_wait) return kWaits;
  double tilt = s.kind == FlatKind::direct ? s.tilt : 0.0;
  if (solve_directions(kernels, n, m, tilt)) return 0;
  FlatTotals untilted;
  return posterior_tilt(kernels, m.nu, n, m.log_f, &tilt, &untilted) && solve_directions(kernels, n, m, tilt) ? 0 : kInfinity;
}

double solve_finite(const Kernels& kernels, int threads, ptrdiff_t n, const TangentModel& m, bool may_wait = false) {
  if (n == 0) {
    if (m.counts) m.counts[0] = 1;
    for (int r = 0; r < m.directions && m.count_change; r++) m.count_change[r * m.count_stride] = 0;
    return m.log_f[0] > -kInfinity ? 0 : kInfinity;
  }
  if (n <= kDirectProducts && solve_directions(kernels, n, m, 0.0)) return 0;
  return solve_by_series(kernels, threads, n, m, may_wait);
}

// Excluded and forced variables do not move: the others, with the table shifted by the number of the forced.
double solve_with_infinities(const Kernels& kernels, int threads, ptrdiff_t n, const TangentModel& m) {
  const Split split = split_infinite(m.nu, n);
  const ptrdiff_t kept = (ptrdiff_t)split.finite.size(), last = split.forced + kept;
  const size_t count = (size_t)m.directions;
  std::vector<double> v(count * (size_t)kept), change(v.size());
  for (size_t r = 0; r < count; r++) {
    double* to = v.data() + r * (size_t)kept;
    for (ptrdiff_t i = 0; i < n; i++)
      if (std::isfinite(m.nu[i])) *to++ = m.v_row((int)r)[i];
  }
  TangentModel part = m;
  part.nu = split.finite.data();
  part.log_f += split.forced;
  part.stride = kept;
  if (count) part.v = v.data();
  if (m.change) part.change = change.data();
  if (part.h) part.h += split.forced;
  if (part.counts) part.counts += split.forced;
  if (part.count_change) part.count_change += split.forced;
  const double bound = solve_finite(kernels, threads, kept, part);
  const auto clear = [&](double* row) {
    std::fill(row, row + split.forced, 0.0);
    std::fill(row + last + 1, row + n + 1, 0.0);
  };
  if (m.counts) clear(m.counts);
  for (size_t r = 0; r < count; r++) {
    if (m.count_change) clear(m.count_change + (ptrdiff_t)r * m.count_stride);
    if (!m.change) continue;
    const double* from = change.data() + r * (size_t)kept;
    double* to = m.change + (ptrdiff_t)r * m.stride;
    for (ptrdiff_t i = 0; i < n; i++) to[i] = std::isfinite(m.nu[i]) ? *from++ : 0.0;
  }
  return bound;
}

double solve_one(const Kernels& kernels, int threads, ptrdiff_t n, const TangentModel& m, bool may_wait = false) {
  if (!all_finite(m.nu, n)) return solve_with_infinities(kernels, threads, n, m);
  return solve_finite(kernels, threads, n, m, may_wait);
}

// Every model of the rows with every direction takes a lane.
void rows_in_lanes(const TangentBatch& in, const std::vector<ptrdiff_t>& rows) {
  const ptrdiff_t lanes = in.kernels->lanes, models_in_all = (ptrdiff_t)rows.size();
  const ptrdiff_t pairs = models_in_all * std::max<ptrdiff_t>(in.directions, 1);
  std::vector<double> bound((size_t)pairs, 0.0);
  const ptrdiff_t tasks = (pairs + lanes - 1) / lanes;
  over_rows(tasks, tasks * in.n, in.threads, [&](ptrdiff_t t, int) {
    const ptrdiff_t first = t * lanes, count = std::min(lanes, pairs - first);
    TangentModel models[8];
    for (ptrdiff_t l = 0; l < count; l++) {
      const TangentModel model = model_of(in, rows[(size_t)((first + l) % models_in_all)]);
      models[l] = model.along((int)((first + l) / models_in_all), 1);
      models[l].bound = &bound[(size_t)(first + l)];
    }
    solve_register(*in.kernels, in.n, models, (int)count, true, solve_direct, [&](const TangentModel& m) {
      *m.bound = all_finite(m.nu, in.n) ? solve_by_series(*in.kernels, 1, in.n, m)
                                        : solve_with_infinities(*in.kernels, 1, in.n, m);
    });
  });
  for (ptrdiff_t p = 0; p < pairs; p++) {
    double* of_row = in.bound + rows[(size_t)(p % models_in_all)];
    *of_row = std::fmax(*of_row, bound[(size_t)p]);
  }
}

// The rows that are quickest in lanes, and the others.
struct Plan {
  std::vector<ptrdiff_t> in_lanes, others;
};

Plan plan_of(const TangentBatch& in) {
  Plan plan;
  const bool small = in.n > 0 && in.n <= kDirectProducts, perhaps = in.n > kFewCounts && in.n <= kFewProducts;
  for (ptrdiff_t b = 0; b < in.batch; b++) {
    const Range support = perhaps && !small ? support_of(*in.kernels->flat, in.log_f + b * in.table_stride, in.n) : Range{};
    const bool lanes = small || (perhaps && counts_carried(support, in.n) <= kFewCounts);
    (lanes ? plan.in_lanes : plan.others).push_back(b);
  }
  const ptrdiff_t pairs = (ptrdiff_t)plan.in_lanes.size() * std::max<ptrdiff_t>(in.directions, 1);
  if (!small && pairs < kWorthLanes) {
    plan.others.insert(plan.others.end(), plan.in_lanes.begin(), plan.in_lanes.end());
    plan.in_lanes.clear();
  }
  return plan;
}

}  // namespace

void tangent_batch(const TangentBatch& in) {
  std::fill_n(in.bound, in.batch, 0.0);
  Plan plan = plan_of(in);
  const auto one_by_one = [&](const std::vector<ptrdiff_t>& which, bool may_wait) {
    const ptrdiff_t count = (ptrdiff_t)which.size();
    over_rows(count, count * in.n, in.threads, [&](ptrdiff_t t, int threads) {
      const ptrdiff_t b = which[(size_t)t];
      in.bound[b] = solve_one(*in.kernels, threads, in.n, model_of(in, b), may_wait);
    });
  };
  one_by_one(plan.others, true);
  std::vector<ptrdiff_t> waiting;
  for (const ptrdiff_t b : plan.others)
    if (in.bound[b] == kWaits) waiting.push_back(b), in.bound[b] = 0;
  if ((ptrdiff_t)waiting.size() * std::max<ptrdiff_t>(in.directions, 1) < kWorthLanes) one_by_one(waiting, false);
  else plan.in_lanes.insert(plan.in_lanes.end(), waiting.begin(), waiting.end());
  rows_in_lanes(in, plan.in_lanes);
}

// P(count) of models that are solved already: their tilts are known, and one spectrum for each gives the probabilities.
bool row_counts(const FlatRows& rows, double* counts, double* bound) {
  const auto serves = [](const FlatSolution& s) {
    return s.kind == FlatKind::series && !s.any_infinite && s.bound < kInfinity;
  };
  if (std::none_of(rows.row.begin(), rows.row.end(), serves)) return false;
  const ptrdiff_t n = rows.n;
  over_rows(rows.batch, rows.batch * n, rows.threads, [&](ptrdiff_t b, int threads) {
    const FlatSolution& s = rows.row[(size_t)b];
    bound[b] = kInfinity;
    if (!serves(s)) return;
    double *own = counts + b * (n + 1), *end = own + n + 1;
    const TangentModel model = {rows.nu + b * n, rows.table(b), 0, 0, 0, nullptr, nullptr, nullptr, own, nullptr, bound + b};
    const double found = series_tangent(*rows.kernels, threads, s, n, model);
    // Beyond that a factor is uncertain: of a single piece that is Z, as far as probabilities do not add up to one;
    // of several also their shares.
    const bool single = s.pieces.size() == 1 && s.log_all_off == -kInfinity && s.log_all_on == -kInfinity;
    const double factor = single ? std::fabs(1 - std::accumulate(own, end, 0.0)) : 2 * s.bound;
    if (std::max(found, s.bound) <= kAccepted) bound[b] = found + factor * *std::max_element(own, end);
  });
  return true;
}

}  // namespace tallytree
