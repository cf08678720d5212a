// Sum-product over a program of clusters, for a batch of models.
#pragma once
#include <vector>

#include "cluster/types.hpp"

namespace tallytree {

// A batch of models on one program. Without `shared_edges` and `shared_tables` every model has its own.
struct ClusterInput {
  ClusterView program;
  const int64_t* level_start;  // clusters are listed level by level: those of level l from level_start[l] on
  const int32_t *order, *roots;
  int levels, states;
  size_t batch, edges, entries, sets, n_roots;
  const double *log_leaf, *edge_tables, *tables;
  bool shared_edges, shared_tables;
  const int64_t* offset;
  const int32_t* score;

  // Model b, without anything that only some passes need.
  ClusterItem item(size_t b, Cluster* clusters) const;
};
// What weighs 1 where a state stays what it is, and 0 elsewhere, (K, K); as logarithms if so.
std::vector<double> identity_of(int states, bool logarithms);

// What sum-product needs besides.
struct SumInput {
  const double *edge_top, *table_top;
  double keep;
  int arithmetic;  // of ClusterArithmetic
  const double* powers;    // (batch, sets), see ClusterItem
  const int32_t* top_set;  // (D,)
  // Samples in place of the pass downwards, where there are any: uniform numbers (batch, samples, nodes).
  size_t samples;
  const double* uniform;
  // Derivatives along directions (batch, D, K) and (batch, entries) in place of answers, or null.
  const double *leaf_move, *table_move;
};
enum ClusterArithmetic { kPlain, kFourier, kWide };
struct ClusterOutput {
  int64_t* drawn;  // (samples, batch, D)
  double *log_z, *messages, *log_edges, *log_counts;
  double *error;     // of the mass of any state, relative to it
  double *vanished;  // what may be missing from Z or any part of it, relative to Z
  // What transforms did to clusters and to their adjoints, relative to their sums; of wide rows the power of two that belongs to
  // Z, to be added to log_z.
  double* noise;
};

void cluster_pass(const Kernels& kernels, const ClusterInput& models, const SumInput& in, const ClusterOutput& out, int threads);

// Best configurations and max-marginals, of models in logarithms; see max_pass.cpp.
struct MaximaOutput {
  double* value;                // (batch): best log-weight
  bool* known;                  // (batch): false where it was given up
  int64_t* states;              // (batch, D), or null
  double *messages, *counts;    // (batch, D, K) and (batch, entries), or null
};
// All tables must have largest entry 0 or -inf: errors are bounded by the size of what is left of the weights. `slack` (batch):
// by how much the best configuration is expected to fall short of the bound without counts; infinity: it is not known, and
// nothing is left out. Where leaving out does not help, nothing is left out, unless it is to `give_up`.
void find_maxima(const Kernels& kernels, const ClusterInput& models, const double* slack, bool give_up, const MaximaOutput& out,
                 int threads);

// Rooted forests of pairs: marginals and best configurations without counts.

struct BeliefsOut {
  double* beliefs;  // (D, K), each sums to 1, or to 0 where everything underflowed
  // These may be null: log Z, log-messages to the vertices (D, K), log edge marginals (E, K, K).
  double *log_z, *messages, *log_edges;
};

// leaf (D, K) and edges (E, K, K) are plain numbers. False if a zero or an underflow may have spoilt the answer.
bool forest_means(const RootedForest& forest, const double* leaf, const double* edges, const BeliefsOut& out);

// The same model with other numbers: what a child sends moves from the rows of its edge's table to its parent's weights,
// so that no state of a vertex is improbable for anything but its weights. All logarithms, in place. `moved` (D, K) gains
// what was moved to each weight, also to a weight of zero: there it cannot be read off the weights.
void forest_gauge(const RootedForest& forest, double* log_leaf, double* log_edges, double* moved);

// A best configuration `states` (D) and its weight; all logarithms.
double forest_best(const RootedForest& forest, const double* log_leaf, const double* log_edges, int64_t* states);

}  // namespace tallytree
