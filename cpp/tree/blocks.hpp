// Subtrees that are solved as a whole. Blocks: small ones without tables, grouped by shape so that several can be solved
// side by side in the SIMD lanes. Waves: large ones with no table but that of their root.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "tree/count_tree.hpp"

namespace tallytree {

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
  using Blocks = std::vector<std::pair<int32_t, int32_t>>;  // (shape, root)
  Blocks find_blocks(const TreeView& f, const std::vector<char>& inside) const;
  std::vector<int32_t> find_waves(const TreeView& f) const;
  void find_stars();
  void group_blocks(const CountTree& whole, const Blocks& blocks, const std::vector<int32_t>& number);
  void add_shape(const CountTree& whole, int32_t root);
  void list_leaves(const TreeView& f, int32_t root, std::vector<int32_t>* out) const;

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
