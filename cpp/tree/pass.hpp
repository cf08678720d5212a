// Passes over a tree for a batch of models: sum-product, derivatives of the expectations, and what small models can do side
// by side.
#pragma once
#include <algorithm>
#include <string>

#include "base/parallel.hpp"
#include "base/workspace.hpp"
#include "tree/count_tree.hpp"

namespace tallytree {

// What is worth keeping between passes over one tree: its analysis, FFT plans, and memory.

// One model in flight. The arrays are sized for the tree it was made for.
struct ItemMemory {
  Supports supports;
  std::unique_ptr<Message[]> up, down;
  std::unique_ptr<NodeNotes[]> notes;
  AlignedArray leaves, messages, leaf_bound, leaf_amplification;

  ItemMemory(size_t variables, size_t inner)
      : up(new Message[inner]), down(new Message[inner]), notes(new NodeNotes[inner]),
        leaves(aligned_doubles(4 * variables)), messages(aligned_doubles(variables)),
        leaf_bound(aligned_doubles(variables)), leaf_amplification(aligned_doubles(variables)) {}
};

// What one pass uses: per thread a worker and, when it works on models of its own, an item.
struct PassMemory {
  std::vector<WorkerMemory> workers;
  std::vector<std::unique_ptr<ItemMemory>> items;
  std::vector<AlignedArray> lanes;  // of models that are solved side by side
  size_t lane_doubles = 0;

  void require(int threads) {
    if (workers.size() < (size_t)threads) {
      workers.resize((size_t)threads);
      items.resize((size_t)threads);
    }
  }
  double* lane_scratch(int thread, size_t doubles) {
    if (!lanes[(size_t)thread]) lanes[(size_t)thread] = aligned_doubles(doubles);
    return lanes[(size_t)thread].get();
  }
  void require_lanes(int threads, size_t doubles) {
    if (doubles > lane_doubles) lanes.clear();
    lane_doubles = std::max(doubles, lane_doubles);
    if (lanes.size() < (size_t)threads) lanes.resize((size_t)threads);
  }
};

// Safe to use from several threads at once: passes that run at the same time get memory of their own.
class TreePlan {
 public:
  explicit TreePlan(CountTree tree) : tree_(std::move(tree)), fft_plans_(new_plan_cache()) {}

  ~TreePlan() {
    for (auto& row : carved_)
      for (auto& made : row) delete made.load();
  }

  const CountTree& tree() const { return tree_; }
  // The tree with subtrees taken out that are solved as a whole; made when first asked for.
  const BlockTree& carved(bool waves, bool blocks) {
    return made_once(carved_[waves][blocks], [&] { return std::make_unique<BlockTree>(tree_, waves, blocks); });
  }
  PlanCache* fft_plans() { return fft_plans_.get(); }

  std::unique_ptr<PassMemory> take_memory() {
    const ForkSafeLock lock;
    if (idle_.empty()) return std::make_unique<PassMemory>();
    std::unique_ptr<PassMemory> memory = std::move(idle_.back());
    idle_.pop_back();
    return memory;
  }
  void give_back(std::unique_ptr<PassMemory> memory) {
    const ForkSafeLock lock;
    if (idle_.size() < 2) idle_.push_back(std::move(memory));
  }

 private:
  CountTree tree_;
  std::atomic<BlockTree*> carved_[2][2] = {};
  std::shared_ptr<PlanCache> fft_plans_;
  std::vector<std::unique_ptr<PassMemory>> idle_;
};

// Passes over a tree for a batch of models: sum-product, derivatives of the expectations, and what small models can do side
// by side.

// The method of a name, as Python spells it: direct, fft, waves or wide.
KernelName method_named(const std::string& name);

struct TreeInputs {
  size_t batch;
  const double* nu;      // (batch, leaves)
  const double* tables;  // (batch or 1, table_entries)
  const double* tilt;    // (batch,) or null
  const double* centre;  // (batch,) or null: whole numbers near the tilted counts, where the tilt changes nothing
  size_t table_entries;
  bool shared_tables;
  bool cavities;  // messages to variables with infinite logits are wanted; otherwise they are as infinite

  const double* tables_of(size_t model) const { return tables + (shared_tables ? 0 : model * table_entries); }
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

struct TreeTangents {
  TreeInputs models;
  size_t directions;
  const double* v;  // (directions, batch, leaves)
  const double* h;  // (directions, batch, table_entries) or null
  double* change;         // (directions, batch, leaves)
  double* beliefs;        // (batch, table_entries) or null; without directions only
  double* belief_change;  // (directions, batch, table_entries) or null
  double* bound;          // (batch,): relative to the largest entry; infinite where there is no answer
  bool direct;            // direct merges only, whatever they cost
  double size;            // of the directions before what cancels was taken out; not above that of any
};

void tree_tangent_pass(const Kernels& kernels, TreePlan& plan, const TreeTangents& in, int threads);

// The models first .. first + count - 1 of a batch, nothing wanted of them yet; lanes beyond repeat the first.
SmallModels small_models(const CountTree& tree, const TreeInputs& in, size_t first, size_t count);

// Samples (samples, batch, leaves), or none where `out` is null, under a key of 128 bits. `lost` (batch,) is the share
// of the weight that underflowed; a model for which it is infinite has no samples here.
void small_draw_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, const uint32_t* key, size_t samples,
                     uint8_t* out, double* lost, int threads);

// P(count) of every node with a table, packed like the tables, (batch, table_entries); a bound of infinity: not known.
void small_belief_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, double* beliefs, double* bound,
                       int threads);

// log P(count) of the root `node`, (batch, counts of the node); `certain` (batch,) says which rows are right.
void small_count_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, int32_t node, double* out,
                      bool* certain, int threads);

// Calls run(first, count, scratch, thread) for every register of models of a batch.
template <class Run>
void over_registers(const Kernels& kernels, PassMemory& memory, size_t batch, ptrdiff_t doubles, int threads,
                    const Run& run) {
  memory.require_lanes(threads, (size_t)doubles);
  const size_t lanes = (size_t)kernels.lanes;
  run_tasks((batch + lanes - 1) / lanes, threads, [&](size_t k, int t) {
    run(k * lanes, std::min(lanes, batch - k * lanes), memory.lane_scratch(t, memory.lane_doubles), t);
  });
}

// Call visit(node, thread, alone) for all inner nodes, children before parents or parents before children: subtrees on all
// threads, and what is above them on one (`alone`). Nodes are large there.
template <class Visit>
void visit_up(const CountTree& tree, int threads, const Visit& visit) {
  run_tasks(tree.subtrees().size(), threads, [&](size_t s, int t) {
    for (const int32_t i : tree.subtrees()[s]) visit(i, t, false);
  });
  parallel_for((ptrdiff_t)tree.top().size(), 1, [&](ptrdiff_t j) { visit(tree.top()[(size_t)j], 0, true); });
}
template <class Visit>
void visit_down(const CountTree& tree, int threads, const Visit& visit) {
  const std::vector<int32_t>& top = tree.top();
  parallel_for((ptrdiff_t)top.size(), 1, [&](ptrdiff_t j) { visit(top[top.size() - 1 - (size_t)j], 0, true); });
  run_tasks(tree.subtrees().size(), threads, [&](size_t s, int t) {
    const std::vector<int32_t>& nodes = tree.subtrees()[s];
    for (size_t j = nodes.size(); j-- > 0;) visit(nodes[j], t, false);
  });
}

}  // namespace tallytree
