// Batches of flat models: infinite logits, small models side by side, threads over rows.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "base/parallel.hpp"
#include "flat/flat.hpp"

namespace tallytree {

constexpr ptrdiff_t kDirect = 320;                // up to this size a direct tree is the quickest
constexpr ptrdiff_t kDirectAtMost = 4096;         // above this it is no longer an alternative
constexpr ptrdiff_t kRowsWorthThreads = 1 << 14;  // variables

struct FlatRows {
  // Rows without answers yet.
  FlatRows(const Kernels& k, int threads_used, ptrdiff_t rows, ptrdiff_t variables)
      : kernels(&k), threads(threads_used), batch(rows), n(variables) {}
  FlatRows(FlatRows&&) = default;

  const Kernels* kernels;
  int threads;
  ptrdiff_t batch, n;
  bool cavities = true;  // messages to variables with infinite logits are wanted; otherwise they are as infinite
  std::vector<FlatSolution> row;
  std::shared_ptr<double> small_models;  // their marginals, (batch, n), then their leave-one-out ratios
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

// nu is (batch, n); row b of the tables starts at log_f + b * table_stride.
void solve_rows(const double* nu, const double* log_f, ptrdiff_t table_stride, FlatRows* rows);
// The same for potentials sum_j a_j r_j^c; a row without a certificate has a bound of infinity and no answers.
void solve_power_rows(const double* nu, const double* coefficient, const double* rate, int terms, FlatRows* rows);
// All marginals, (batch, n), if solving left them behind; else null.
std::shared_ptr<const double> marginals_at_hand(const FlatRows& rows);
void row_answers(const FlatRows& rows, const double* nu, Wanted wanted, double* out);
void log_pmf_rows(const Kernels& kernels, int threads, const double* nu, ptrdiff_t batch, ptrdiff_t n, double* out);

// Models along the chain of partial sums. The bound is infinite where plain numbers run out of range. O(n k) time and
// memory for counts, of ones or of zeros, up to k.
void chain_rows(const FlatKernels& kernels, int threads, const double* nu, const double* log_f, ptrdiff_t table_stride,
                ptrdiff_t batch, ptrdiff_t n, double* log_mean, double* messages, double* bound);

}  // namespace tallytree
