// Sum-product over a program of clusters, for a batch of models.
#pragma once
#include <vector>

#include "cluster/types.hpp"
#include "base/kernels.hpp"

namespace tallytree {

struct ClusterInput {
  ClusterView program;
  const int64_t* level_start;  // clusters are listed level by level: those of level l from level_start[l] on
  const int32_t* order;
  int levels, states;
  size_t batch, edges, entries, sets, n_roots;
  const double *log_leaf, *edge_tables, *edge_top, *tables, *table_top;
  bool shared_edges, shared_tables;
  const int64_t* offset;
  const int32_t *score, *roots;
  double keep;
  int arithmetic;  // of ClusterArithmetic
  const double* powers;    // (batch, sets), see ClusterItem
  const int32_t* top_set;  // (D,)
  // Samples in place of the pass downwards, where there are any: uniform numbers (batch, samples, nodes).
  size_t samples;
  const double* uniform;
};
enum ClusterArithmetic { kPlain, kFourier, kTiled };
struct ClusterOutput {
  int64_t* drawn;  // (samples, batch, D)
  double *log_z, *messages, *log_edges, *log_counts;
  double *error;     // of the mass of any state, relative to it
  double *vanished;  // what may be missing from Z or any part of it, relative to Z
  // What transforms did to clusters and to their adjoints, relative to their sums; of tiled rows the power of two that belongs to
  // Z, to be added to log_z.
  double* noise;
};

void cluster_pass(const Kernels& kernels, const ClusterInput& in, const ClusterOutput& out, int threads);

}  // namespace tallytree
