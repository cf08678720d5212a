// Derivatives of the expectations on a tree, for a batch of models and several directions.
#pragma once
#include "base/kernels.hpp"
#include "tree/plan.hpp"
#include "tree/tangent_kernels.hpp"

namespace tallytree {

struct TreeTangentBatch {
  size_t batch, directions, table_entries;
  const double* nu;      // (batch, leaves)
  const double* tables;  // (batch or 1, table_entries)
  bool shared_tables;
  const double* v;  // (directions, batch, leaves)
  const double* h;  // (directions, batch, table_entries) or null
  double* change;         // (directions, batch, leaves)
  double* beliefs;        // (batch, table_entries) or null
  double* belief_change;  // (directions, batch, table_entries) or null
  double* bound;          // (batch,): relative to the largest entry; infinite where there is no answer
  bool direct;            // direct merges only, whatever they cost
};

void tree_tangent_pass(const Kernels& kernels, TreePlan& plan, const TreeTangentBatch& batch, int threads);

}  // namespace tallytree
