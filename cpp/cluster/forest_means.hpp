// Pairwise forests without counts: marginals and best configurations.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tallytree {

struct RootedForest {
  int32_t variables, states;
  const int32_t *order, *parent, *edge;  // order: parents first; edge: to the parent
  const int8_t* flip;                    // whether the edge's table has the child's state first
};

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
