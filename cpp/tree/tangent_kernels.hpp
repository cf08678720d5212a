// Derivatives on trees: plain data shared by the driver and the kernels, and the kernels' table.
#pragma once
#include "tree/types.hpp"

namespace tallytree {

// Up to one register of models on one tree, one direction each. `h`, `change`, `beliefs` and `belief_change` may be
// null; arrays beyond `count` repeat the first.
struct LaneTangents {
  int count;
  bool shared_tables;
  const double *nu[8], *tables[8], *v[8], *h[8];
  double *change[8];         // (leaves,): d P(y = 1)
  double *beliefs[8];        // packed like the tables: P(count)
  double *belief_change[8];  // the same: d P(count)
};

// A message over the counts lo .. lo + length - 1 and its derivative.
struct DualMessage {
  double *value, *change;
  int32_t lo, length;
};

// What an inner node remembers. Errors are shares of Z, or of Z times the size of the direction for derivatives.
struct TangentNode {
  DualMessage up, down;
  double sum, norm, change_sum, change_norm;  // of up: 1-norms and 2-norms of both parts
  double factor;                              // up = f c factor
  double log_top, table_limit;                // the table is used as f e^-log_top; its largest value, also where cut off
  double direction_limit;                     // largest |h|
  double cut, change_cut;                     // mass of up cut off at its ends
  int32_t transform;                          // length of the transforms; 0: merged directly
  double* spectra;                            // left, its derivative, right, its derivative
  double down_limit, down_change_limit;       // upper bounds of the down values, also at counts that were cut off
  double overlap;                             // <up, down>
  double cut_error, cut_change_error;         // by cut ends and underflow
  double noise, change_noise;                 // squares: by this node's upward transform
  double path, change_path;                   // squares: by the downward transforms above
};

// One model and one direction. `h`, `change`, `beliefs` and `belief_change` may be null.
struct TangentItem {
  const TreeView* tree;
  const double *nu, *tables, *v, *h;
  TangentNode* nodes;
  double *change, *beliefs, *belief_change;
  double* leaf_path;  // (leaves, 2): path and change_path
  PlanCache* plans;
  bool use_fft, trim;
  double direction_limit;  // sum of |v|: what the values of a message are multiplied by, at most, in their derivatives
};

struct TreeTangentKernels {
  ptrdiff_t (*lane_scratch)(const TreeView& tree);  // doubles
  // A bound of infinity asks for another pass.
  void (*lanes)(const TreeView& tree, const LaneTangents& models, double* scratch, double* bound);
  // Inner nodes in ascending order, and in descending order after start_down at the roots.
  void (*up)(TangentItem& item, Worker& worker, int32_t node);
  void (*start_down)(TangentItem& item, Worker& worker, int32_t root);
  void (*down)(TangentItem& item, Worker& worker, int32_t node);
};

}  // namespace tallytree
