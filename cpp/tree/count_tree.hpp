// A binary tree with tables: topology, the counts that are possible at each node, and its split into tasks.
#pragma once
#include <vector>

#include "tree/types.hpp"

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

}  // namespace tallytree
