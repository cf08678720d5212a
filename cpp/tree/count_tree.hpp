// A binary tree with tables: topology, the counts that are possible at each node, and its split into tasks.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "tree/kernels.hpp"

namespace tallytree {

class CountTree {
 public:
  // Throws std::invalid_argument where the arrays do not describe a tree (see bind/tree.cpp for the rules).
  CountTree(int32_t leaves, std::vector<int32_t> left, std::vector<int32_t> right, std::vector<int64_t> table_offset,
         int64_t table_entries);
  // A tree known to be sound in which some inner nodes stand for blocks: they have no children (-1) but a size, and
  // the variables below them are not in `loose`.
  CountTree(int32_t leaves, std::vector<int32_t> left, std::vector<int32_t> right, std::vector<int32_t> inner_size,
         std::vector<int64_t> table_offset, std::vector<int32_t> loose);

  TreeView view() const;
  int32_t leaves() const { return leaves_; }
  int32_t inner() const { return (int32_t)left_.size(); }
  int64_t table_entries() const { return table_entries_; }
  int32_t largest() const { return largest_; }
  const std::vector<int32_t>& inner_roots() const { return inner_roots_; }

  // Variables that are leaves of this tree, and those of them that are roots.
  const std::vector<int32_t>& loose() const { return loose_; }
  const std::vector<int32_t>& free() const { return free_; }

  // Disjoint subtrees that can be solved independently (inner nodes, ascending), costliest first, and the nodes above
  // them, ascending. The split depends on the tree only.
  const std::vector<std::vector<int32_t>>& subtrees() const { return subtrees_; }
  const std::vector<int32_t>& top() const { return top_; }
  // All counts 0..size of every node.
  const std::vector<Interval>& all_counts() const { return all_counts_; }
  const std::vector<int32_t>& tabled() const { return tabled_; }  // inner nodes with a table

 private:
  void link();
  void split();

  int32_t leaves_, largest_ = 1;
  int64_t table_entries_ = 0;  // up to the end of the last table
  std::vector<int32_t> left_, right_, parent_, size_, inner_roots_, top_, loose_, free_, tabled_;
  std::vector<int64_t> table_offset_;
  std::vector<std::vector<int32_t>> subtrees_;
  std::vector<Interval> all_counts_;
};

// Counts that logits and tables allow. `support` bounds the up messages. `reach` bounds the down messages: it is the
// support, or with `cavities` the support if any one variable with an infinite logit were free, so that its own message
// can be computed.
struct Supports {
  const Interval *support, *reach;
  bool possible;
  std::vector<Interval> support_storage, reach_storage;
};
// Whether every count 0..size of every node is possible.
bool all_counts_possible(const CountTree& tree, const double* nu, const double* tables);
// The counts that the logits below a block allow; those of a block that is not listed are all possible.
struct BlockCounts {
  int32_t node;
  Interval counts;
};
// `all_possible`: what all_counts_possible said.
void find_supports(const CountTree& tree, const double* nu, const double* tables, bool all_possible, bool cavities,
                   const std::vector<BlockCounts>& blocks, Supports& out);

// Subtrees that are solved as a whole. Blocks: small ones without tables, grouped by shape so that several can be solved
// side by side in the SIMD lanes. Waves: large ones with no table but that of their root.

constexpr int32_t kBlockLeast = 12, kBlockMost = kBlockLeavesMost;  // leaves of a block
constexpr int32_t kBlockGroup = 8;                    // blocks handed to a kernel at once

constexpr int32_t kWaveLeast = 256;  // leaves of a wave: from here on it is quicker than a tree

constexpr size_t kStarLeast = 16;    // children of a star

// A node with many children and no tables between it and them: all are merged at once.
struct Star {
  int32_t node;
  std::vector<int32_t> merges;    // the nodes between, ascending, for when that does not work
  std::vector<int32_t> children;  // inner nodes
};

struct WaveBlock {
  int32_t node;  // inner node of the carved tree
  int32_t count;
  const int32_t* leaves;
  bool side_by_side;  // the leaves are consecutive
};

// A tree in which every block and every wave is a single node, without children of its own.
class BlockTree {
 public:
  BlockTree(const CountTree& whole, bool with_waves, bool with_blocks);

  const CountTree& tree() const { return *tree_; }
  const std::vector<BlockGroup>& groups() const { return groups_; }
  const std::vector<WaveBlock>& waves() const { return waves_; }
  const std::vector<Star>& stars() const { return stars_; }
  // The star that an inner node is the top of, or lies inside of; -1 for the others.
  int32_t star_of(int32_t i) const { return stars_.empty() ? -1 : star_of_[(size_t)i]; }
  bool empty() const { return groups_.empty() && waves_.empty() && stars_.empty(); }

 private:
  void find_stars();
  void group_blocks(const CountTree& whole, const std::vector<std::pair<int32_t, int32_t>>& blocks,
                    const std::vector<int32_t>& number);
  void add_shape(const CountTree& whole, int32_t root);

  struct Shape {
    BlockShape view;
    std::vector<int32_t> left, right, size, start;
  };
  std::deque<Shape> shapes_;  // addresses stay valid
  std::vector<int32_t> block_roots_, block_leaves_, wave_leaves_;
  std::vector<BlockGroup> groups_;
  std::vector<WaveBlock> waves_;
  std::vector<Star> stars_;
  std::vector<int32_t> star_of_;
  std::unique_ptr<CountTree> tree_;
};

}  // namespace tallytree
