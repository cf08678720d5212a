// Batches of flat models.
//
// A direct tree takes infinite logits like others. Otherwise a variable with one is excluded or forced: the others are
// solved with the table shifted by the number of forced ones. Its own message compares the two tables that result from
// switching it: one more solve.
#include "flat/batches.hpp"

#include <numeric>

#include "base/workspace.hpp"

namespace tallytree {

namespace {

constexpr ptrdiff_t kWorthLanes = 4;       // models that share the lanes: so many may be quicker by direct trees
constexpr ptrdiff_t kMayUnderflow = 256;   // from here on it is worth knowing beforehand
constexpr ptrdiff_t kLanesAtMost = 1 << 15;  // above this they do not fit any cache
constexpr ptrdiff_t kSingleAtMost = 1024;   // the lanes of one model hold at most 512 variables each
constexpr double kSafe = 1e-270;           // smallest divisor of a direct tree that underflow cannot have reached

// Relative round-off of a direct tree: sums of at most n positive terms on the way up and down, and the argument of
// exp, which is the log of a number between `smallest` and 1 after the tilt.
double direct_bound(ptrdiff_t n, double tilt, double log_mean, double smallest) {
  const double steep = tilt == 0 ? 0 : std::fabs(log_mean) + 2 * std::fabs(tilt) * (double)n;
  return kRoundOff * (4 * (double)n + 64 - 2 * std::log(smallest) + 2 * steep);
}

// One pass under tilt 0. Where a single count is possible it is mostly solved under another tilt, and few sums will do.
Sums first_pass(const Logits& logits, const double* log_f) {
  const Range support = support_of(*logits.kernels, log_f, logits.n);
  return logits.sums(0, support.first >= support.last ? 8 : first_sums(logits.n));
}

struct DirectJob {
  const double *nu, *log_f;
  FlatSolution* solution;
};

// Direct trees of up to one register of models at the given tilts; done where underflow did no harm.
void run_direct(const Kernels& kernels, ptrdiff_t n, const DirectJob* job, const double* tilt,
                const FlatTotals* untilted, int count, bool* done) {
  const FlatKernels& k = *kernels.flat;
  const AlignedArray scratch = aligned_doubles((size_t)std::max(k.direct_scratch(n), k.single_scratch(n)));
  DirectRows rows;
  DirectTotals totals[8];
  rows.models = count;
  for (int l = 0; l < count; l++) {
    FlatSolution& s = *job[l].solution;
    if (!s.ratio) {
      s.own.resize(2 * (size_t)n);
      s.ratio = s.own.data();
      s.marginal = s.ratio + n;
    }
    rows.nu[l] = job[l].nu;
    rows.log_f[l] = job[l].log_f;
    rows.tilt[l] = tilt[l];
    rows.ratio[l] = s.ratio;
    rows.marginal[l] = s.marginal;
  }
  if (count == 1 && n <= kSingleAtMost)
    k.single(job->nu, job->log_f, tilt[0], n, scratch.get(), totals, rows.ratio[0], rows.marginal[0]);
  else
    k.direct(rows, n, scratch.get(), totals);
  for (int l = 0; l < count; l++) {
    FlatSolution& s = *job[l].solution;
    const DirectTotals& t = totals[l];
    done[l] = t.smallest > kSafe;
    if (tilt[l] == 0) s.softplus = t.softplus;
    if (!done[l]) continue;
    s.kind = FlatKind::direct;
    s.tilt = tilt[l];
    s.log_mean = t.log_mean;
    s.largest_logit = t.largest + std::fabs(tilt[l]);
    s.bound = direct_bound(n, tilt[l], t.log_mean, t.smallest);
    if (tilt[l] == 0) continue;
    const Logits logits = {&k, kernels.lanes, 1, job[l].nu, n};
    s.softplus = softplus(untilted[l]);
    s.log_mean += tilt_norm(untilted[l], logits.sums(tilt[l], 8).totals, tilt[l]).minus(0);
  }
}

void solve_with_infinities(const Kernels& kernels, int threads, const double* nu, ptrdiff_t n, const double* log_f,
                           bool cavities, FlatSolution* s);

// Whether plain numbers cannot hold the weight of what the table allows under tilt 0.
bool hopeless(const Kernels& kernels, ptrdiff_t n, const DirectJob& job) {
  if (n < kMayUnderflow || !all_finite(job.nu, n)) return false;
  const Logits logits = {kernels.flat, kernels.lanes, 1, job.nu, n};
  return Untilted(n, logits.sums(0, 8)).hopeless(support_of(*kernels.flat, job.log_f, n));
}

// Direct trees, then series with their certificates. Neighbours are much alike: the first one tells whether all begin
// with a tilt.
void solve_small(const Kernels& kernels, ptrdiff_t n, bool cavities, const DirectJob* job, int count) {
  const auto rest = [&](const DirectJob& one) {
    if (!all_finite(one.nu, n))
      return solve_with_infinities(kernels, 1, one.nu, n, one.log_f, cavities, one.solution);
    const Logits logits = {kernels.flat, kernels.lanes, 1, one.nu, n};
    *one.solution = solve_series(logits, ArrayTable(logits.kernels, 1, one.log_f), logits.sums(0, first_sums(n)));
  };
  DirectJob open[8];
  int left = 0;
  for (int l = 0; l < count; l++)
    if (ArrayTable(kernels.flat, 1, job[l].log_f).any_possible({1, n - 1})) open[left++] = job[l];
    else rest(job[l]);
  if (left) solve_register(kernels, n, open, left, !hopeless(kernels, n, open[0]), run_direct, rest);
}

// The series; if it cannot certify its answer, and n permits, a direct tree.
void solve_large(const Kernels& kernels, const Logits& logits, const double* log_f, const Sums& untilted,
                 FlatSolution* s) {
  *s = solve_series(logits, ArrayTable(logits.kernels, logits.threads, log_f), untilted);
  if (s->bound <= 2 * kTolerance || s->kind != FlatKind::series || logits.n > kDirectAtMost) return;
  FlatSolution other;
  const DirectJob job = {logits.nu, log_f, &other};
  solve_register(kernels, logits.n, &job, 1, true, run_direct, [&](const DirectJob&) { other.bound = kInfinity; });
  if (other.bound < s->bound) *s = std::move(other);
}

// Finite logits, any size.
void solve_finite(const Kernels& kernels, int threads, const double* nu, ptrdiff_t n, const double* log_f,
                  FlatSolution* s) {
  if (n == 0) {
    s->kind = log_f[0] > -kInfinity ? FlatKind::ends : FlatKind::impossible;
    s->log_mean = log_f[0];
  } else if (n <= kDirect) {
    const DirectJob job = {nu, log_f, s};
    solve_small(kernels, n, false, &job, 1);
  } else {
    const Logits logits = {kernels.flat, kernels.lanes, threads, nu, n};
    solve_large(kernels, logits, log_f, first_pass(logits, log_f), s);
  }
}

void solve_with_infinities(const Kernels& kernels, int threads, const double* nu, ptrdiff_t n, const double* log_f,
                           bool cavities, FlatSolution* s) {
  const Split split = split_infinite(nu, n);
  const std::vector<double>& finite = split.finite;
  const ptrdiff_t m = (ptrdiff_t)finite.size();
  const double* table = log_f + split.forced;
  solve_finite(kernels, threads, finite.data(), m, table, s);
  s->any_infinite = true;
  s->message_excluded = -kInfinity;
  s->message_forced = kInfinity;
  if (!cavities) return;
  double bound = s->bound;
  const auto log_mean_with = [&](const double* other_table) {
    FlatSolution switched;
    solve_finite(kernels, threads, finite.data(), m, other_table, &switched);
    // Bounds leave out the rounding of the log_means, of which messages are differences here.
    const double size = std::fabs(s->log_mean) + std::fabs(switched.log_mean);
    bound = std::fmax(bound, s->bound + switched.bound + (size < kInfinity ? 8 * kRoundOff * size : 0.0));
    return switched.log_mean;
  };
  if (split.excluded) s->message_excluded = log_mean_with(table + 1) - s->log_mean;
  if (split.forced) s->message_forced = s->log_mean - log_mean_with(table - 1);
  s->bound = bound;
}

void answer_row(const FlatRows& rows, ptrdiff_t b, int threads, Wanted wanted, double* out) {
  const FlatSolution& s = rows.row[(size_t)b];
  Logits logits = rows.logits(b, threads);
  const double* nu = logits.nu;
  std::vector<double> result;
  if (s.any_infinite && s.kind == FlatKind::direct) {  // its answers are listed for the finite ones only
    const std::vector<double> finite = split_infinite(nu, rows.n).finite;
    result.resize(finite.size());
    logits.nu = finite.data();
    logits.n = (ptrdiff_t)finite.size();
    flat_answers(logits, s, wanted, result.data());
  } else {
    flat_answers(logits, s, wanted, out);
  }
  if (!s.any_infinite) return;
  const bool marginals = wanted == Wanted::marginals;
  const double on = marginals ? 1.0 : s.message_forced, off = marginals ? 0.0 : s.message_excluded;
  const double* next = result.data();
  around_infinities(
      nu, rows.n,
      [&](ptrdiff_t i) { out[i] = s.kind == FlatKind::impossible ? __builtin_nan("") : nu[i] > 0 ? on : off; },
      [&](ptrdiff_t from, ptrdiff_t to) {
        if (result.empty()) return;
        std::copy(next, next + (to - from), out + from);
        next += to - from;
      });
}

// The rows `which` by direct trees, side by side in `at_once` lanes. What shares a register has about the same counts,
// for all take the time of the longest.
void solve_in_lanes(std::vector<ptrdiff_t> which, ptrdiff_t at_once, FlatRows* rows) {
  const ptrdiff_t all = (ptrdiff_t)which.size(), n = rows->n;
  if (rows->table_stride && at_once > 1) {
    std::vector<ptrdiff_t> order((size_t)rows->batch);
    for (const ptrdiff_t b : which) {
      const Range support = support_of(*rows->kernels->flat, rows->table(b), n);
      order[(size_t)b] = n - support.first < support.last ? support.first - n - 1 : support.last;
    }
    std::stable_sort(which.begin(), which.end(),
                     [&](ptrdiff_t a, ptrdiff_t b) { return order[(size_t)a] < order[(size_t)b]; });
  }
  over_rows((all + at_once - 1) / at_once, all * n, rows->threads, [&](ptrdiff_t t, int) {
    DirectJob job[8];
    int count = 0;
    for (ptrdiff_t i = t * at_once; i < std::min(all, (t + 1) * at_once); i++) {
      const ptrdiff_t b = which[(size_t)i];
      job[count++] = {rows->nu + b * n, rows->table(b), &rows->row[(size_t)b]};
    }
    solve_small(*rows->kernels, n, rows->cavities, job, count);
  });
}

// The share of the lanes that the models of a batch fill.
double filled(const FlatRows& rows) { return std::fmin(1.0, (double)rows.batch / rows.kernels->lanes); }

// Whether a direct tree that shares its register is quicker than the series.
bool quicker_in_lanes(const FlatRows& rows, const double* log_f, const Sums& untilted) {
  const ptrdiff_t n = rows.n;
  const Range support = support_of(*rows.kernels->flat, log_f, n);
  if (support.empty() || n > kLanesAtMost) return false;
  const Untilted model(n, untilted);
  const double tilt = model.hopeless(support) ? tilt_cost(support) : 0.0;
  return direct_cost(n, support, filled(rows)) + tilt < series_cost(model, log_f, support);
}

// Whether direct trees are the quickest for all rows: for one potential the first row tells.
bool quickest_by_direct_trees(const FlatRows& rows) {
  const ptrdiff_t n = rows.n;
  if (n <= kDirect || rows.batch < kWorthLanes) return n <= kDirect;
  if (!rows.table_stride && all_finite(rows.nu, n)) return quicker_in_lanes(rows, rows.log_f, rows.logits(0, 1).sums(0, 8));
  for (ptrdiff_t b = 0; b < (rows.table_stride ? rows.batch : 1); b++) {
    const Range support = support_of(*rows.kernels->flat, rows.table(b), n);
    if (direct_cost(n, support, filled(rows)) > least_series_cost(n)) return false;
  }
  return true;
}

}  // namespace

// Series, one model after the other. Models that direct trees solve more quickly wait: there may be enough of them to share
// the lanes.
static void solve_by_series(FlatRows* rows) {
  const ptrdiff_t n = rows->n, batch = rows->batch;
  const Kernels& kernels = *rows->kernels;
  const bool may_wait = batch >= kWorthLanes;
  std::vector<unsigned char> waits((size_t)batch, 0);
  over_rows(batch, batch * n, rows->threads, [&](ptrdiff_t b, int threads) {
    // The first pass of the series also says whether all logits are finite.
    const Logits logits = rows->logits(b, threads);
    const double* table = rows->table(b);
    const Sums untilted = first_pass(logits, table);
    if (untilted.totals.infinite > 0)
      solve_with_infinities(kernels, threads, logits.nu, n, table, rows->cavities, &rows->row[(size_t)b]);
    else if (may_wait && quicker_in_lanes(*rows, table, untilted))
      waits[(size_t)b] = 1;
    else
      solve_large(kernels, logits, table, untilted, &rows->row[(size_t)b]);
  });
  std::vector<ptrdiff_t> waiting;
  for (ptrdiff_t b = 0; b < batch; b++)
    if (waits[(size_t)b]) waiting.push_back(b);
  if ((ptrdiff_t)waiting.size() >= kWorthLanes)
    return solve_in_lanes(std::move(waiting), kernels.lanes, rows);
  for (const ptrdiff_t b : waiting)
    solve_finite(kernels, 1, rows->nu + b * n, n, rows->table(b), &rows->row[(size_t)b]);
}

static void solve_by_direct_trees(FlatRows* rows) {
  const ptrdiff_t n = rows->n, batch = rows->batch, at_once = batch > 1 ? rows->kernels->lanes : 1;
  const std::shared_ptr<DoubleBlock> block(new_doubles(2 * (size_t)(batch * n)), free_doubles);
  rows->small_models = {block, block->data};
  for (ptrdiff_t b = 0; b < batch; b++) {
    rows->row[(size_t)b].ratio = rows->small_models.get() + (batch + b) * n;
    rows->row[(size_t)b].marginal = rows->small_models.get() + b * n;
  }
  std::vector<ptrdiff_t> all((size_t)batch);
  std::iota(all.begin(), all.end(), 0);
  solve_in_lanes(std::move(all), at_once, rows);
}

void solve_rows(FlatRows* rows) {
  rows->row.resize((size_t)rows->batch);
  if (rows->n == 0) {
    for (ptrdiff_t b = 0; b < rows->batch; b++)
      solve_finite(*rows->kernels, 1, rows->nu, 0, rows->table(b), &rows->row[(size_t)b]);
  } else if (rows->batch > 0 && quickest_by_direct_trees(*rows)) {
    solve_by_direct_trees(rows);
  } else {
    solve_by_series(rows);
  }
}

void solve_power_rows(const double* coefficient, const double* rate, int terms, FlatRows* rows) {
  rows->row.resize((size_t)rows->batch);
  over_rows(rows->batch, rows->batch * rows->n, rows->threads, [&](ptrdiff_t b, int threads) {
    solve_powers(rows->n, rows->logits(b, threads).powers(rate, terms), coefficient, rate, terms, &rows->row[(size_t)b]);
  });
}

std::shared_ptr<const double> marginals_at_hand(const FlatRows& rows) {
  for (const FlatSolution& s : rows.row)
    if (s.any_infinite || !marginals_known(s) || s.own.size()) return nullptr;
  return rows.small_models;
}

void row_answers(const FlatRows& rows, Wanted wanted, double* out) {
  over_rows(rows.batch, rows.batch * rows.n, rows.threads, [&](ptrdiff_t b, int threads) {
    answer_row(rows, b, threads, wanted, out + b * rows.n);
  });
}

void log_pmf_rows(const Kernels& kernels, int threads, const double* nu, ptrdiff_t batch, ptrdiff_t n, double* out) {
  over_rows(batch, batch * n, threads, [&](ptrdiff_t b, int inner) {
    const Split split = split_infinite(nu + b * n, n);
    const std::vector<double>& finite = split.finite;
    double* row = out + b * (n + 1);
    std::fill(row, row + n + 1, -kInfinity);
    flat_log_pmf({kernels.flat, kernels.lanes, inner, finite.data(), (ptrdiff_t)finite.size()}, row + split.forced);
  });
}

// Counts ones, or zeros where that leaves fewer counts.
void chain_rows(const FlatKernels& kernels, int threads, const double* nu, const double* log_f, ptrdiff_t table_stride,
                ptrdiff_t batch, ptrdiff_t n, double* log_mean, double* messages, double* bound) {
  parallel_for(batch, threads, [&](ptrdiff_t b) {
    const double* table = log_f + b * table_stride;
    const Range support = support_of(kernels, table, n);
    if (support.empty()) {
      log_mean[b] = -kInfinity;
      bound[b] = 0;
      std::fill_n(messages + b * n, n, 0.0);
      return;
    }
    const ptrdiff_t cap = counts_carried(support, n);
    const std::unique_ptr<double[]> scratch(new double[(size_t)kernels.chain_scratch(n, cap)]);
    kernels.chain(nu + b * n, table, n, cap, n - support.first < support.last, scratch.get(), messages + b * n,
                  log_mean + b, bound + b);
  });
}

}  // namespace tallytree
