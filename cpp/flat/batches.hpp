// Batches of flat models: infinite logits, small models side by side, threads over rows.
#pragma once

#include "base/constants.hpp"
#include "flat/flat.hpp"

namespace tallytree {

// What the two ways to solve a flat model in a batch cost, in nanoseconds per variable: fits to a grid of sizes, windows
// and batches, with eight lanes. They choose the quicker way; neighbours cost about the same, so nothing hangs on a digit.

// The counts that a table of n + 1 entries allows.
inline Range support_of(const FlatKernels& kernels, const double* log_f, ptrdiff_t n) {
  return {first_possible(kernels, log_f, n + 1), last_possible(kernels, log_f, n + 1)};
}

// Largest count in the messages of a direct tree, which counts zeros where these are fewer.
inline ptrdiff_t counts_carried(Range support, ptrdiff_t n) { return std::min(support.last, n - support.first); }

// A direct tree that shares its register with others; `filled` is the share of the lanes that are in use.
inline double direct_cost(ptrdiff_t n, Range support, double filled) {
  const double half = 0.5 * (double)n, m = (double)counts_carried(support, n);
  return (6 + 0.1 * std::fmin(m, half) + 0.025 * std::fmax(m - half, 0.0)) / filled;
}

// A series under tilt 0 that is not split.
inline double least_series_cost(ptrdiff_t n) { return 9 + 4500 / (double)n; }

// The count's mean and variance under tilt 0, and what the spread of the log-odds leaves of the variance of equal ones.
struct Untilted {
  double n, mean, variance, share;
  Untilted(ptrdiff_t variables, const Sums& sums)
      : n((double)variables), mean(sums.mean()), variance(sums.variance()) {
    const double equal = mean * (1 - mean / n);
    share = equal > 0 ? std::fmin(1.0, variance / equal) : 1.0;
  }
  double nearest(Range support) const { return std::clamp(mean, (double)support.first, (double)support.last); }
  // Nats by which the allowed counts are less likely than 1: n KL(k / n, mean / n) for equal log-odds.
  double nats_away(Range support) const {
    const double k = nearest(support);
    const auto part = [](double a, double b) { return a > 0 ? a * std::log(a / b) : 0.0; };
    return std::fmax(0.0, part(k, mean) + part(n - k, n - mean)) / share;
  }
  // A direct tree has to be tilted: plain numbers are about to end.
  bool hopeless(Range support) const { return nats_away(support) > 600; }
};

// Whether tilt 0 is unlikely to have a certificate: the table is by far larger than its mean, as the normal law sees it.
inline bool needs_tilt(const double* log_f, Range support, double mean, double variance) {
  constexpr double kAmplified = 6;  // nats
  const double reach = 9 * std::sqrt(variance) + 30, bend = 0.5 / (variance + 0.1);
  double top = -kInfinity, best = -kInfinity;
  const ptrdiff_t first = std::max(support.first, (ptrdiff_t)(mean - reach));
  const ptrdiff_t last = std::min(support.last, (ptrdiff_t)(mean + reach));
  for (ptrdiff_t k = first; k <= last; k++) {
    const double away = (double)k - mean, weight = log_f[k] - bend * away * away;
    top = log_f[k] > top ? log_f[k] : top;
    best = weight > best ? weight : best;
  }
  return !(top - best < kAmplified);  // without a count in reach both are -inf
}

// What the search for a tilt adds.
inline double tilt_cost(Range support) { return support.first == support.last ? 10 : 16; }

// A series. Split ones cost most where the variance is nearly large enough.
inline double series_cost(const Untilted& model, const double* log_f, Range support) {
  const double n = model.n, k = model.nearest(support);
  if (!needs_tilt(log_f, support, model.mean, model.variance))
    return least_series_cost((ptrdiff_t)n) + (model.variance < kSmallVariance ? 14000 / n : 0.0);
  if (k == model.mean) return 35 + 15000 / n;  // nothing but slopes of the table keeps counts away: several pieces
  const bool split = model.share * k * (1 - k / n) < 1.4 * kSmallVariance;  // a guess, rather too often than too rarely
  return 10 + (support.first == support.last ? 7500 : 13000) / n + (split ? 28000 / n : 0.0);
}

// Batches of flat models: infinite logits, small models side by side, threads over rows.

constexpr ptrdiff_t kDirect = 320;                // up to this size a direct tree is the quickest
constexpr ptrdiff_t kDirectAtMost = 4096;         // above this it is no longer an alternative
constexpr ptrdiff_t kRowsWorthThreads = 1 << 14;  // variables

// Models of one size, and their solutions once there are any.
struct FlatRows {
  const Kernels* kernels;
  int threads;
  ptrdiff_t batch, n;
  const double *nu, *log_f;    // (batch, n); the first table
  ptrdiff_t table_stride = 0;  // from one table to the next
  bool cavities = true;  // messages to variables with infinite logits are wanted; otherwise they are as infinite
  std::vector<FlatSolution> row = {};
  std::shared_ptr<double> small_models = {};  // their marginals, (batch, n), then their leave-one-out ratios

  const double* table(ptrdiff_t b) const { return log_f + b * table_stride; }
  Logits logits(ptrdiff_t b, int used) const { return {kernels->flat, kernels->lanes, used, nu + b * n, n}; }
};

// Calls task(t, threads) for every t < tasks. Many tasks: one thread for each. One, or long ones: threads inside the task.
template <class Task>
void over_rows(ptrdiff_t tasks, ptrdiff_t variables, int threads, const Task& task) {
  if (tasks >= 2 * threads && variables >= kRowsWorthThreads)
    parallel_for(tasks, threads, [&](ptrdiff_t t) { task(t, 1); });
  else
    for (ptrdiff_t t = 0; t < tasks; t++) task(t, threads);
}

// A tilt whose mean is about that of the posterior, and the totals under tilt 0; false if there is no interior support.
inline bool posterior_tilt(const Kernels& kernels, const double* nu, ptrdiff_t n, const double* log_f, double* tilt,
                           FlatTotals* untilted) {
  const Logits logits = {kernels.flat, kernels.lanes, 1, nu, n};
  *untilted = logits.sums(0, 8).totals;
  return posterior_tilt(logits, *untilted, ArrayTable(logits.kernels, 1, log_f), tilt);
}

// Up to one register of models. `run` solves some by direct trees at given tilts and says where that is done: first under
// tilt 0 if `begin_untilted`, then, for models that leave the range of plain numbers, under tilts whose means are the
// posterior means. What is left goes to `rest`.
template <class Model>
using RunDirect = void (*)(const Kernels&, ptrdiff_t n, const Model*, const double* tilt, const FlatTotals* untilted,
                           int count, bool* done);
template <class Model, class Rest>
void solve_register(const Kernels& kernels, ptrdiff_t n, const Model* models, int count, bool begin_untilted,
                    RunDirect<Model> run, const Rest& rest) {
  Model open[8];
  FlatTotals untilted[8];
  double tilt[8] = {};
  bool done[8] = {};
  int left = 0;
  if (begin_untilted) run(kernels, n, models, tilt, untilted, count, done);
  for (int l = 0; l < count; l++) {
    if (done[l]) continue;
    const Model& m = models[l];
    if (all_finite(m.nu, n) && posterior_tilt(kernels, m.nu, n, m.log_f, &tilt[left], &untilted[left])) open[left++] = m;
    else rest(m);
  }
  if (left) run(kernels, n, open, tilt, untilted, left, done);
  for (int l = 0; l < left; l++)
    if (!done[l]) rest(open[l]);
}

void solve_rows(FlatRows* rows);
// The same for potentials sum_j a_j r_j^c; a row without a certificate has a bound of infinity and no answers.
void solve_power_rows(const double* coefficient, const double* rate, int terms, FlatRows* rows);
// All marginals, (batch, n), if solving left them behind; else null.
std::shared_ptr<const double> marginals_at_hand(const FlatRows& rows);
void row_answers(const FlatRows& rows, Wanted wanted, double* out);
void log_pmf_rows(const Kernels& kernels, int threads, const double* nu, ptrdiff_t batch, ptrdiff_t n, double* out);

// Models along the chain of partial sums. The bound is infinite where plain numbers run out of range. O(n k) time and
// memory for counts, of ones or of zeros, up to k.
void chain_rows(const FlatKernels& kernels, int threads, const double* nu, const double* log_f, ptrdiff_t table_stride,
                ptrdiff_t batch, ptrdiff_t n, double* log_mean, double* messages, double* bound);

// Derivatives of a flat model's expectations along directions in its log-odds and its log-table.

// One model, directions v in its log-odds and h in its log-table, and where the answers go. All pointers but the first two
// may be null: `v` and `change` without directions, `counts` with some.
struct TangentModel {
  const double *nu, *log_f;
  int directions;
  ptrdiff_t stride, count_stride;  // from one direction to the next, in v and `change`, in h and `count_change`
  const double *v, *h;             // (n,) and (n + 1,) per direction
  double* change;                  // (n,) per direction: d P(y_i = 1)
  double* counts;                  // (n + 1,): P(z = k)
  double* count_change;            // (n + 1,) per direction: d P(z = k)
  double* bound;                   // of the errors; see TangentBatch
  bool shifted = true;             // what v has in common counts as a direction of the table: best where few counts are likely

  const double* v_row(int r) const { return v + r * stride; }
  double table(int r, ptrdiff_t k) const { return h ? h[r * count_stride + k] : 0.0; }
  // At most `count` directions from one on.
  TangentModel along(int from, int count) const {
    TangentModel part = *this;
    part.directions = directions - from < count ? directions - from : count;
    if (v) part.v += from * stride;
    if (h) part.h += from * count_stride;
    if (change) part.change += from * stride;
    if (count_change) part.count_change += from * count_stride;
    return part;
  }
};

// A solved model with finite logits and at most kMaxDirections directions, of kind `series` or `ends`. Returns a bound on the absolute error of every number,
// as a share of the size of its direction's answer (of 1 for P(z = k)); infinite where there is none.
double series_tangent(const Kernels& kernels, int threads, const FlatSolution& solution, ptrdiff_t n,
                      const TangentModel& model);

// P(z = k), (batch, n + 1), of solved rows, and the bounds of their errors, infinite for rows that are left to others;
// false if all of them are.
bool row_counts(const FlatRows& rows, double* counts, double* bound);

// A batch: v is (directions, batch, n), h (directions, batch, n + 1) or null, likewise the answers; `counts` are wanted
// without directions only. `bound` (batch,) is infinite for a model that is left to others.
struct TangentBatch {
  const Kernels* kernels;
  int threads;
  ptrdiff_t batch, n, directions;
  const double *nu, *log_f;
  ptrdiff_t table_stride;
  const double *v, *h;
  double *change, *counts, *count_change, *bound;
};
void tangent_batch(const TangentBatch& batch);

}  // namespace tallytree
