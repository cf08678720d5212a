// Marginals of a pairwise forest without counts; what a tilt is chosen by.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tallytree {

struct RootedForest {
  int32_t variables, states;
  const int32_t *order, *parent, *edge;  // order: parents first; edge: to the parent
  const int8_t* flip;                    // whether the edge's table has the child's state first
};

// leaf (D, K) and edges (E, K, K) in plain numbers; beliefs (D, K) sum to 1, or to 0 where everything underflowed.
void forest_means(const RootedForest& forest, const double* leaf, const double* edges, double* beliefs);

}  // namespace tallytree
