// What is worth keeping between passes over one tree: its analysis, FFT plans, and memory.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "tree/blocks.hpp"
#include "base/fork_gate.hpp"
#include "base/once.hpp"
#include "base/workspace.hpp"

namespace tallytree {

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

}  // namespace tallytree
