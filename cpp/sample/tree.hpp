// Upward messages of one model on a tree of blocks, and draws from them. Never included by kernel files.
#pragma once
#include <span>
#include <vector>

#include "base/kernels.hpp"
#include "sample/kernels.hpp"

namespace tallytree {

// A tree cut at blocks (structure/blocks.py) and the numbers of one model; borrowed while the messages are made.
struct SampleTreeInput {
  using Ints = std::span<const int64_t>;
  Ints variables, start, left, right;
  Ints table;  // where a block's or node's log-table starts, -1 if it has none
  Ints roots, free;
  std::span<const double> nu, tables;
  bool windowed;  // one root without tables below it: counts stay within `budget` nats of their tilted means
  double tilt, budget;
  int64_t low, high;
  int64_t blocks() const { return (int64_t)start.size() - 1; }
};

class SampleTree {
 public:
  SampleTree(const SampleTreeInput& in, const SampleKernels& kernels, int threads);

  // Fills rows of `out` (each `stride` bytes) with samples; totals, if given, are the counts of the first root.
  void draw(uint8_t* out, ptrdiff_t stride, const int64_t* rows, ptrdiff_t samples, const SampleKey& key,
            const int64_t* totals, int threads) const;

  bool impossible() const { return impossible_; }
  // One more than the largest variable: what a row of samples must hold.
  int64_t width() const { return width_; }
  MessageView root() const { return impossible_ || roots_.empty() ? MessageView{nullptr, 0, 0} : message(roots_[0]); }
  MessageView message(int64_t id) const { return {up_.data() + place_[id], low_[id], high_[id] - low_[id] + 1}; }

 private:
  struct Stage {  // nodes order_[begin..end), one level or several thin ones
    int64_t begin, end;
    bool wide;
  };
  struct Work;  // of one call
  struct Room;  // of one thread

  void collect(const SampleTreeInput& in);
  void bound(const SampleTreeInput& in);
  void pass_up(const SampleTreeInput& in, int threads);
  void order_nodes();
  void draw_roots(Work& work, int64_t root, Room& room) const;
  void draw_node(Work& work, int64_t node, ptrdiff_t first, ptrdiff_t last, Room& room) const;
  void draw_tile(Work& work, int64_t task, Room& room) const;
  void run(Work& work, std::vector<Room>& rooms) const;
  // Blocks of the tree, and then of the variables drawn by themselves; tiles of all of them.
  int64_t all_blocks() const { return blocks_ + ((int64_t)independent_.size() + kBlock - 1) / kBlock; }
  int64_t tiles() const;

  const SampleKernels& kernels_;
  int64_t blocks_, nodes_;
  std::vector<int64_t> left_, right_, roots_;
  std::vector<int64_t> variables_, start_, forced_;  // variables with finite log-odds, by block
  std::vector<double> nu_;
  std::vector<int64_t> independent_;  // variables drawn by themselves: free, excluded and forced ones
  std::vector<double> independent_nu_;
  std::vector<int64_t> low_, high_, place_;
  std::vector<double> up_;
  std::vector<int64_t> order_, level_;  // nodes by depth; where every level of them begins, and the end
  std::vector<Stage> stages_;
  int64_t longest_ = 1, width_ = 0;
  bool impossible_ = false;
};

// Fills out[0 .. n-1] for finite logits nu, given that `count` of the variables are on; false if that was not to be had
// in a reasonable time, which happens to models and not to random numbers.
bool draw_given_count(const Kernels& kernels, int threads, const double* nu, ptrdiff_t n, ptrdiff_t count,
                      const SampleKey& key, uint8_t* out);

}  // namespace tallytree
