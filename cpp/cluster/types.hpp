// Plain data of the passes over cluster programs, shared by the driver (compiled once) and the kernels (per level).
#pragma once
#include <cstdint>

#include "base/constants.hpp"
#include "base/kernels.hpp"
#include "base/worker.hpp"

namespace tallytree {

// The operations of a program; the numbers are those of structure/clusters.py.
enum ClusterOp : int8_t {
  kLeaf, kOnes, kThrough, kSum, kTurn, kTable, kRake, kHang, kClose, kCompress, kJoin, kScale, kScalePath, kOuter
};
enum ClusterKind : int8_t { kScalar, kVector, kMatrix };

struct ClusterView {
  int32_t nodes, variables;
  const int8_t *op, *kind;
  const int32_t *a, *b, *edge, *ref;
  const int8_t *flip, *counted, *top;  // top: by set, whether its counts end there
};

// Rows (states) of counts lo .. lo+width-1: entry (s, j) is value[s * width + j].
struct Cluster {
  double *value, *adjoint;
  double *lost, *cut, *reach;  // by state, or null; see sum_product.cpp
  int32_t lo, width;
  double log_scale;
  double underflow[2];  // what may have been lost to underflow in any entry of the value and of the adjoint
  double harm;        // errors of this value, relative to the mass of a state
  double noise;       // Euclidean norm of what a transform did to a state, relative to the state's sum
  double transform;   // error of a transform of this size, relative to the norms of its operands; 0 if there was none
  double vanished;    // what underflow here, or a state below the errors, may have taken from Z, relative to Z
  double path_error;  // errors of the adjoints above
  bool touched;       // something here or below was transformed or cut
  bool transformed;   // something here or below was transformed: what is 0 may be anything below the noise
  double exponent;    // the power of two that was taken out of a wide value
};

// One model of the batch.
struct ClusterItem {
  const ClusterView* program;
  int states;              // K
  const double* log_leaf;  // (D, K)
  const double* edges;     // (E, K, K), plain numbers; logarithms for wide rows, and so is `identity`
  const double* edge_top;  // (E): what was taken out, as a logarithm
  const double* identity;  // (K, K)
  const double* tables;    // packed log-tables
  const double* table_top;
  const int64_t* offset;
  const int32_t* score;  // (D, K)
  Cluster* clusters;
  double *messages, *log_edges, *log_counts;  // logarithms out
  double keep;                                // entries below this part of the largest are cut off at the ends
  PlanCache* plans;
  bool use_fft;
  // For wide rows: the counts that a cluster can have; tilts by set, as powers of two; the largest set of a vertex, or -1.
  const Interval* windows;
  const double* powers;
  const int32_t* top_set;
};

struct ClusterWorker {
  Worker kept, scratch;  // for what stays, and for what is forgotten after every cluster
};
void arena_forget(Arena* arena);

struct RootedForest {
  int32_t variables, states;
  const int32_t *order, *parent, *edge;  // order: parents first; edge: to the parent
  const int8_t* flip;                    // whether the edge's table has the child's state first
};

// A forest of two states with one count; vertex weights and edge tables are plain numbers of at most 1.
struct CountedForest {
  RootedForest forest;
  const int8_t* counted;
  const double *leaf, *edges;  // (variables, 2), (edges, 2, 2)
  const double* slope;         // (variables, 2): derivative of the log of the weights
};

// One register of frequencies: e^{iw}, the transforms of f and f h there.
struct EdgeWaves {
  const double *cos_w, *sin_w, *f_re, *f_im, *h_re, *h_im;
  double *re, *im, *change_re, *change_im;  // the characteristic function and its derivative
};

struct ClusterKernels {
  // A run of clusters of one level.
  void (*cluster_up)(ClusterItem& item, ClusterWorker& worker, const int32_t* nodes, ptrdiff_t count);
  void (*cluster_down)(ClusterItem& item, ClusterWorker& worker, const int32_t* nodes, ptrdiff_t count);
  // The same in wide rows; the logarithm of a root's value, whose adjoint becomes 1.
  void (*wide_cluster_up)(ClusterItem& item, ClusterWorker& worker, const int32_t* nodes, ptrdiff_t count);
  void (*wide_cluster_down)(ClusterItem& item, ClusterWorker& worker, const int32_t* nodes, ptrdiff_t count);
  double (*wide_cluster_root)(ClusterItem& item, ClusterWorker& worker, int32_t node);
  void (*wide_cluster_draw)(ClusterItem& item, ClusterWorker& worker, const int32_t* order, const double* uniform, int* state,
                             int* count, int64_t* drawn);
  // Doubles of memory that edge_pass needs, and of its sums.
  ptrdiff_t (*edge_scratch)(int32_t variables);
  ptrdiff_t (*edge_sums)(int32_t variables);
  // Adds the shares of these frequencies to `sums`. Scales come from the first frequency if `first`, which must be 0.
  void (*edge_pass)(const CountedForest& model, const EdgeWaves& waves, bool first, double* scales, double* scratch,
                    double* sums);
  // P(y = 1) and its derivative from the sums, the largest that a relative error of all terms can do to the former, and what it
  // can do to each of the latter.
  void (*edge_finish)(int32_t variables, const double* sums, double* marginals, double* change, double* worst, double* doubt);
  // The largest share of a vertex's weight at frequency 0 that products below the smallest number may have lost.
  double (*edge_underflow)(const CountedForest& model, double* scratch);
};

// What the operations of a cluster program do to states, for any arithmetic.
//
// A product is a list of terms (x, y, out): row `out` of the result gains the product of row x of the first operand with
// row y of the second, an edge's table already in it. Everything is static: files of several instruction sets include it.

// A sum of logarithms, compensated.
struct LogSum {
  double total = 0, lost = 0;
  void add(double x) {
    const double y = x - lost, next = total + y;
    lost = __builtin_isfinite(next) ? (next - total) - y : 0.0;
    total = next;
  }
};

struct Term {
  int x, y, out;
};

static inline int states_of(int kind, int K) { return kind == kScalar ? 1 : kind == kVector ? K : K * K; }
static inline int first_kind(int op, int kind) {
  if (op == kThrough || op == kSum) return kVector;
  if (op == kTurn || op == kTable) return kind;
  if (op == kJoin) return kScalar;
  return op == kClose || op == kCompress || op == kScalePath ? kMatrix : kVector;
}

// The terms of a product; returns their number, at most K^3.
static inline int list_terms(int op, int K, Term* out) {
  int n = 0;
  const int P = op == kJoin ? 1 : K;
  const int Q = op == kClose || op == kCompress ? K : 1;
  const int R = op == kHang || op == kCompress || op == kScalePath || op == kOuter ? K : 1;
  for (int p = 0; p < P; p++)
    for (int q = 0; q < Q; q++)
      for (int r = 0; r < R; r++) {
        Term t = {p, 0, R > 1 ? p * K + r : p};
        switch (op) {
          case kRake: t.y = p; break;
          case kHang: t.y = p * K + r; break;
          case kClose: t.x = p * K + q; t.y = q; break;
          case kCompress: t.x = p * K + q; t.y = q * K + r; break;
          case kScalePath: t.x = p * K + r; break;
          case kOuter: t.y = r; break;
          default: break;
        }
        out[n++] = t;
      }
  return n;
}

// An entry of an edge's table, the upper vertex's state first.
static inline double entry(const double* t, bool flip, int K, int p, int q) { return flip ? t[q * K + p] : t[p * K + q]; }

// How the second operand of a product gets across its edge.
struct Crossing {
  const double* table;  // (K, K), or null: there is nothing to cross
  bool flip, spread;    // spread: a vector becomes a matrix
  int count;            // rows on the other side
};
static inline Crossing crossing(const ClusterView& view, int node, int K, const double* edges, const double* identity) {
  const int op = view.op[node], kind = view.kind[view.b[node]], e = view.edge[node];
  Crossing c = {nullptr, false, false, states_of(kind, K)};
  if (op > kCompress) return c;
  c.spread = kind == kVector && (op == kHang || op == kCompress);
  if (e < 0 && !c.spread) return c;
  c.table = e < 0 ? identity : edges + (ptrdiff_t)e * K * K;
  c.flip = e >= 0 && view.flip[node];
  if (c.spread) c.count = K * K;
  return c;
}

// Calls meet(row on this side, row behind the edge, entry of its table) for all rows that meet there.
template <class Meet>
static inline void across(const Crossing& c, int K, const Meet& meet) {
  const int columns = c.count / K;
  for (int p = 0; p < K; p++)
    for (int r = 0; r < columns; r++)
      for (int q = c.spread ? r : 0; q < (c.spread ? r + 1 : K); q++)
        meet(p * columns + r, c.spread ? r : q * columns + r, entry(c.table, c.flip, K, p, q));
}

// Calls take(x, y, weight) for all states of a product's operands that lead to a state of its own, with the edge's weight, `one`
// where there is no edge.
template <class Take>
static inline void each_way(const Crossing& c, int K, const Term* terms, int count, int state, double one, const Take& take) {
  for (int i = 0; i < count; i++) {
    const Term t = terms[i];
    if (t.out != state) continue;
    if (!c.table) take(t.x, t.y, one);
    else across(c, K, [&](int here, int behind, double weight) {
      if (here == t.y) take(t.x, behind, weight);
    });
  }
}

// The second operand of a product, behind its edge.
struct Second : Crossing {
  const double* rows;  // (count, width); the operand's own if there is no table
  int width;
};
// take(n) gives n numbers to begin with; add(out, x, weight, n): the n numbers of a row gain those of another with a weight.
template <class Take, class Add>
static inline Second second_operand(const ClusterView& view, int node, int K, const double* edges, const double* identity,
                                    const double* value, int width, const Take& take, const Add& add) {
  Second s = {crossing(view, node, K, edges, identity), value, width};
  if (!s.table) return s;
  double* rows = take((size_t)s.count * (size_t)width);
  across(s, K, [&](int here, int behind, double weight) {
    add(rows + (ptrdiff_t)here * width, value + (ptrdiff_t)behind * width, weight, width);
  });
  s.rows = rows;
  return s;
}

// Calls meet(row of the result, row of the operand, weight) for all rows that an operation on one cluster links: through an
// edge's table, summed over all states, or turned around. `one` is the weight that changes nothing.
template <class Meet>
static inline void link_rows(const ClusterView& view, int node, int K, const double* edges, double one, const Meet& meet) {
  const int op = view.op[node];
  const double* t = op == kThrough ? edges + (ptrdiff_t)view.edge[node] * K * K : nullptr;
  for (int p = 0; p < (op == kSum ? 1 : K); p++)
    for (int q = 0; q < K; q++)
      meet(op == kTurn ? q * K + p : p, op == kTurn ? p * K + q : q, t ? entry(t, view.flip[node], K, p, q) : one);
}

// Where something is visible in any of the rows: from the first such entry to behind the last; empty (lo = n, hi = 0) if nothing is.
template <class Visible>
static inline Interval visible_window(int states, int n, const Visible& visible) {
  Interval w = {n, 0};
  for (int s = 0; s < states; s++) {
    int i = 0, j = n;
    while (i < w.lo && !visible(s, i)) i++;
    while (j > w.hi && !visible(s, j - 1)) j--;
    w = {i, j};
  }
  return w;
}

// Counts of a vertex's own cluster: one more than its largest score if it is counted.
static inline int leaf_width(const ClusterView& view, const int32_t* score, int vertex, int K) {
  int width = 1;
  for (int k = 0; k < K && view.counted[vertex]; k++)
    if (score[(ptrdiff_t)vertex * K + k] >= width) width = score[(ptrdiff_t)vertex * K + k] + 1;
  return width;
}

}  // namespace tallytree
