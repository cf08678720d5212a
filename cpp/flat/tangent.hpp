// Derivatives of a flat model's expectations along directions in its log-odds and its log-table.
#pragma once
#include "flat/batches.hpp"

namespace tallytree {

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
bool row_counts(const FlatRows& rows, const double* nu, const double* log_f, ptrdiff_t table_stride, double* counts,
                double* bound);

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
