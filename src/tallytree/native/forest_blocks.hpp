// Small subtrees without tables, grouped by shape so that several can be solved side by side in the SIMD lanes.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "forest.hpp"

namespace tallytree {

constexpr int32_t kBlockLeast = 12, kBlockMost = 32;  // leaves of a block
constexpr int32_t kBlockGroup = 8;                    // blocks handed to a kernel at once

// A forest in which every block is a single node, without children of its own.
class BlockForest {
 public:
  explicit BlockForest(const Forest& whole);

  const Forest& forest() const { return *forest_; }
  const std::vector<BlockGroup>& groups() const { return groups_; }
  bool empty() const { return groups_.empty(); }

 private:
  void add_shape(const Forest& whole, int32_t root);
  void list_leaves(const Forest& whole, int32_t root);

  struct Shape {
    BlockShape view;
    std::vector<int32_t> left, right, size, start;
  };
  std::deque<Shape> shapes_;  // addresses stay valid
  std::vector<int32_t> block_roots_, block_leaves_;
  std::vector<BlockGroup> groups_;
  std::unique_ptr<Forest> forest_;
};

}  // namespace tallytree
