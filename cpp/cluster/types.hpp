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
  const double *leaf_move, *table_move;  // a direction, (D, K) and packed like the tables; or null
  double reach_of_move;                  // not below what it adds to the logarithm of any configuration's weight
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

struct ClusterKernels {
  // A run of clusters of one level.
  void (*cluster_up)(ClusterItem& item, ClusterWorker& worker, const int32_t* nodes, ptrdiff_t count);
  void (*cluster_down)(ClusterItem& item, ClusterWorker& worker, const int32_t* nodes, ptrdiff_t count);
  // The same with derivatives: those of messages, P(pair of states) and P(count) take the places of the logarithms.
  void (*tangent_cluster_up)(ClusterItem& item, ClusterWorker& worker, const int32_t* nodes, ptrdiff_t count);
  void (*tangent_cluster_down)(ClusterItem& item, ClusterWorker& worker, const int32_t* nodes, ptrdiff_t count);
  // The same in wide rows; the logarithm of a root's value, whose adjoint becomes 1.
  void (*wide_cluster_up)(ClusterItem& item, ClusterWorker& worker, const int32_t* nodes, ptrdiff_t count);
  void (*wide_cluster_down)(ClusterItem& item, ClusterWorker& worker, const int32_t* nodes, ptrdiff_t count);
  double (*wide_cluster_root)(ClusterItem& item, ClusterWorker& worker, int32_t node);
  void (*wide_cluster_draw)(ClusterItem& item, ClusterWorker& worker, const int32_t* order, const double* uniform, int* state,
                             int* count, int64_t* drawn);
};

}  // namespace tallytree
