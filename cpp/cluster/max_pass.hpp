// (max, +) over a program of clusters: best configurations and max-marginals of one model.
//
// The value of a cluster is the best weight of what it holds, for every state of its boundary and every count. Without
// counting, a potential stands for its largest value: that gives an upper bound for every part of the model, and with
// it a pass that counts can leave out what no configuration worth having can use.
#pragma once
#include <algorithm>
#include <vector>

#include "base/interrupt.hpp"
#include "base/kernels.hpp"
#include "cluster/terms.hpp"
#include "base/workspace.hpp"

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

// Rows (states) of counts lo .. lo+width-1. The adjoint of an entry is the best weight of everything else.
struct MaxCluster {
  double *value, *adjoint;
  int32_t lo, width;
};

constexpr int32_t kNodesBetweenSignals = 1024;

class MaxPass {
 public:
  enum class Found { kValues, kNothing, kTooMuch };

  MaxPass(const Kernels& kernels, const MaxModel& model, bool counting, int threads);

  // Values of all clusters. With `outside`, a pass without counts that went up and down, counts are cut off at the ends
  // of a cluster where no configuration of weight `threshold` can have them. Gives up after `most_work` sums.
  Found up(const MaxPass* outside, double threshold, double most_work);
  void down();
  double total() const;       // best weight, after `up`
  double most_work() const;   // what `up` takes if nothing is cut off

  void states(int64_t* out);            // a best configuration (D,), after `up`
  void messages(double* out) const;     // best weights without the vertex's own (D, K), after `down`
  void counts(double* out) const;       // best weights by count of every set, packed, after `down`
  double smallest_belief(const MaxPass& bounds, bool* missing) const;

 private:
  struct Second : Crossing {  // the second operand of a product, the edge's table in it
    const double* rows;       // the operand's own if there is no table
    int width;
  };

  double* scratch(size_t n);  // filled with -inf; forgotten after every cluster
  double* nothing(size_t n);  // filled with -inf
  // out[j] = max(itself, weight + x[j])
  static void raise(double* out, const double* x, double weight, int n) {
    for (int j = 0; j < n; j++) out[j] = std::max(out[j], weight + x[j]);
  }
  Second second_operand(int node);
  bool keep(int node, const double* rows, int states, int n, int lo, const MaxPass* outside, double threshold);
  bool single_up(int node, const MaxPass* outside, double threshold);
  bool product_up(int node, const MaxPass* outside, double threshold);
  void single_down(int node);
  void product_down(int node);
  void walk_single(int node);
  void walk_product(int node);
  double potential(int set, int count) const;
  // out[i + j] = max(itself, x[i] + y[j])
  void convolve(const double* x, int nx, const double* y, int ny, double* out);
  // out[i] = max(itself, g[i + j - shift] + y[j])
  void correlate(const double* g, int ng, int shift, const double* y, int ny, double* out, int n);
  void run_kernel(const double* a, int m, const double* c, int width, double* out);

  const Kernels& kernels_;
  const MaxModel& model_;
  bool counting_;
  int threads_, K_;
  double work_ = 0;
  std::vector<MaxCluster> clusters_;
  std::vector<Term> terms_[kOuter + 1];
  std::vector<double> identity_, table_top_;
  std::vector<int32_t> state_, count_;  // of every cluster, on the way down a configuration
  Arena arena_, scratch_;
};

}  // namespace tallytree
