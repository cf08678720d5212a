// What the passes over clusters share: operands of a product, the edge between them, transforms or direct sums.
//
// The terms of a product are convolutions of rows; the same terms give the adjoints, as correlations. Errors are kept by state:
// `lost`, of any entry of a row; `cut`, the mass cut off its ends; `reach`, the largest adjoint of any count.
#pragma once
#include "cluster/terms.hpp"
#include "base/fft_merge.hpp"

namespace tallytree::TT_LEVEL {

constexpr double kTiny = 1e-290;  // anything smaller may have been lost to underflow

static inline double* take(ClusterWorker& w, size_t n) { return arena_take(w.scratch.arena, n + kPad); }
static inline double* take_zero(ClusterWorker& w, size_t n) {
  double* p = take(w, n);
  fill(p, (ptrdiff_t)n + kPad, 0.0);
  return p;
}

static inline void add_scaled(double* out, const double* x, double w, int n) {
  const vec v = splat(w);
  int j = 0;
  for (; j + kLanes <= n; j += kLanes) store(out + j, load(out + j) + v * load(x + j));
  for (; j < n; j++) out[j] += w * x[j];
}
static inline void add_product(double* out, const double* x, const double* y, int n) {
  for (int j = 0; j < n; j++) out[j] += x[j] * y[j];
}
static inline double sum(const double* x, int n) {
  double s = 0;
  for (int j = 0; j < n; j++) s += x[j];
  return s;
}

// A direct product is also more accurate, and most of the noise is that of the many short transforms: these must win
// clearly. On chains and trees of 10^4 to 10^5 variables 4 takes the time of 1, and 12 up to a tenth more; with 12 the
// bound of a chain of 10^6 is below the tolerance.
constexpr int32_t kNoisy = 1 << 17;  // variables
static inline double clearly(int32_t variables) { return variables < kNoisy ? 4 : 12; }

static inline int transform_length(const ClusterItem& item, int terms, int rows, int na, int nb) {
  if (!item.use_fft || min(na, nb) < 24) return 0;
  const int N = fft_length((int64_t)na + nb - 1);
  const double direct = terms * (0.6 * na * nb / kLanes + 40), transforms = rows * (0.55 * N * real::log2(N) / kLanes + 60);
  return clearly(item.program->variables) * transforms < direct ? N : 0;
}

// Spectra of rows of n numbers, one after the other.
static inline double* spectra(const double* rows, int count, int n, ClusterWorker& w, const FftPlan& plan) {
  double *out = take(w, (size_t)count * plan.length), *scratch = take(w, plan.length);
  for (int i = 0; i < count; i++)
    padded_spectrum(rows + (ptrdiff_t)i * n, n, out + (ptrdiff_t)i * plan.length, scratch, plan);
  return out;
}
// Rows from spectra (destroyed), negative values (all of them rounding errors) set to 0.
static inline void rows_from_spectra(double* spectrum, int count, int n, double* rows, ClusterWorker& w,
                                     const FftPlan& plan) {
  double* x = take(w, plan.length);
  for (int i = 0; i < count; i++) {
    fft_backward(spectrum + (ptrdiff_t)i * plan.length, x, plan);
    double* out = rows + (ptrdiff_t)i * n;
    for (int j = 0; j < n; j++) out[j] = x[j] > 0 ? x[j] : 0.0;
  }
}
static inline double norm(const double* x, int n) { return real::sqrt(dot(x, x, n)); }

// A product of two clusters: operands, terms, and the length of the transforms if they pay.
struct Product {
  const Cluster &x, &b;
  const Second y;
  double top;  // of the edge's table
  Term* terms;
  int count, x_states, out_states, n, N;

  Product(const ClusterItem& item, ClusterWorker& w, int node)
      : x(item.clusters[item.program->a[node]]), b(item.clusters[item.program->b[node]]),
        y(second_operand(*item.program, node, item.states, item.edges, item.identity, b.value, b.width,
                         [&](size_t room) { return take_zero(w, room); }, add_scaled)),
        n(x.width + y.width - 1) {
    top = y.table && item.program->edge[node] >= 0 ? item.edge_top[item.program->edge[node]] : 0.0;
    const int K = item.states, op = item.program->op[node], kind = item.program->kind[node];
    terms = reinterpret_cast<Term*>(take(w, (size_t)(2 * K * K * K + 8)));
    count = list_terms(op, K, terms);
    x_states = states_of(first_kind(op, kind), K);
    out_states = states_of(kind, K);
    N = transform_length(item, count, x_states + y.count + out_states, x.width, y.width);
  }
  const double* x_row(const Term& t) const { return x.value + (ptrdiff_t)t.x * x.width; }
  const double* y_row(const Term& t) const { return y.rows + (ptrdiff_t)t.y * y.width; }
};

}  // namespace tallytree::TT_LEVEL
