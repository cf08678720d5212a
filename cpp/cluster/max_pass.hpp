// (max, +) over a program of clusters: best configurations and max-marginals of one model.
//
// The value of a cluster is the best weight of what it holds, for every state of its boundary and every count. Without
// counting, a potential stands for its largest value: that gives an upper bound for every part of the model, and with
// it a pass that counts can leave out what no configuration worth having can use.
#pragma once
#include <vector>

#include "base/workspace.hpp"
#include "cluster/types.hpp"

namespace tallytree {

// All weights are logarithms.
struct MaxModel {
  ClusterView program;
  const int32_t *order, *roots;  // order: operands before results
  size_t n_roots;
  int states;  // K
  const double *log_leaf, *log_edges, *tables;
  const int64_t* offset;
  const int32_t* score;
  size_t sets;
};

// Best configurations and max-marginals of a batch of models on one program.
struct MaximaInput {
  MaxModel first;  // the first model of the batch
  int depth;       // levels of the program
  size_t batch, edges, entries;
  bool shared_edges, shared_tables;
  // By how much the best configuration is expected to fall short of the bound without counts, (batch); infinity: it is
  // not known, and nothing is left out.
  const double* slack;
  bool give_up;  // where leaving out does not help, instead of leaving nothing out
};
struct MaximaOutput {
  double* value;                // (batch): best log-weight
  bool* known;                  // (batch): false where it was given up
  int64_t* states;              // (batch, D), or null
  double *messages, *counts;    // (batch, D, K) and (batch, entries), or null
};

// All tables must have largest entry 0 or -inf: errors are bounded by the size of what is left of the weights.
void find_maxima(const Kernels& kernels, const MaximaInput& in, const MaximaOutput& out, int threads);

}  // namespace tallytree
