// Sum-product on a tree for a batch of models.
#pragma once
#include "base/kernels.hpp"
#include "tree/kernels.hpp"
#include "tree/plan.hpp"

namespace tallytree {

struct TreeInputs {
  size_t batch;
  const double* nu;      // (batch, leaves)
  const double* tables;  // (batch or 1, table_entries)
  const double* tilt;    // (batch,) or null
  const double* centre;  // (batch,) or null: whole numbers near the tilted counts, where the tilt changes nothing
  size_t table_entries;
  bool shared_tables;
  bool cavities;  // messages to variables with infinite logits are wanted; otherwise they are as infinite
};

struct TreeOutputs {
  double* log_mean;     // (batch,)
  double* messages;     // (batch, leaves) or null
  double* log_beliefs;  // (batch, table_entries) or null
  double* bound;        // (batch,): on the absolute error of every message, and of log_mean
  double* probability_bound;  // (batch,) or null: likewise of every P(y = 1), where rare states count less
};

void tree_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, const TreeOutputs& out, KernelName method,
               int threads);

}  // namespace tallytree
