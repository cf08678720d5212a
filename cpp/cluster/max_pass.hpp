// (max, +) over a program of clusters: best configurations and max-marginals of one model.
//
// The value of a cluster is the best weight of what it holds, for every state of its boundary and every count. Without
// counting, a potential stands for its largest value: that gives an upper bound for every part of the model, and with
// it a pass that counts can leave out what no configuration worth having can use.
#pragma once
#include <vector>

#include "base/workspace.hpp"
#include "cluster/terms.hpp"

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
  static double* empty(Arena* arena, size_t n);  // filled with -inf
  double* scratch(size_t n) { return empty(&scratch_, n); }  // forgotten after every cluster
  double* nothing(size_t n) { return empty(&arena_, n); }
  Second second_operand(int node);
  bool keep(int node, const double* rows, int states, int n, int lo);
  bool leaf_up(int node);
  bool single_up(int node);
  bool product_up(int node);
  void single_down(int node);
  void product_down(int node);
  void walk_single(int node);
  void walk_product(int node);
  double potential(int set, int count) const;
  // out[i + j] = max(itself, x[i] + y[j])
  void convolve(const double* x, int nx, const double* y, int ny, double* out);
  // out[i] = max(itself, g[i + j - shift] + y[j])
  void correlate(const double* g, int ng, int shift, const double* y, int ny, double* out, int n);

  const Kernels& kernels_;
  const MaxModel& model_;
  bool counting_;
  int threads_, K_;
  double work_ = 0, threshold_ = 0;
  const MaxPass* outside_ = nullptr;
  std::vector<MaxCluster> clusters_;
  std::vector<Term> terms_[kOuter + 1];
  std::vector<double> identity_, table_top_;
  std::vector<int32_t> state_, count_;  // of every cluster, on the way down a configuration
  Arena arena_, scratch_;
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
