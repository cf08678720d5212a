#include "tree/blocks.hpp"

#include <algorithm>
#include <unordered_map>

namespace tallytree {

// Calls visit(v) for the nodes below `root` and itself, depth first, left before right.
template <class Visit>
static void walk(const TreeView& f, int32_t root, const Visit& visit) {
  std::vector<int32_t> stack = {root};
  while (!stack.empty()) {
    const int32_t v = stack.back();
    stack.pop_back();
    visit(v);
    if (v < f.leaves) continue;
    stack.push_back(f.right[v - f.leaves]);
    stack.push_back(f.left[v - f.leaves]);
  }
}

// The merges below `root` in ascending order of nodes; slots 0.. are its leaves in the order of list_leaves.
void BlockTree::add_shape(const CountTree& whole, int32_t root) {
  const TreeView f = whole.view();
  Shape& shape = shapes_.emplace_back();
  const int32_t leaves = f.size[root];
  std::vector<int32_t> inner;
  int32_t next_leaf = 0;
  std::unordered_map<int32_t, int32_t> slot;
  walk(f, root, [&](int32_t v) {
    if (v < f.leaves) slot[v] = next_leaf++;
    else inner.push_back(v);
  });
  shape.size.assign((size_t)leaves, 1);
  // The walk meets a parent before its children: reversed, children come first.
  for (size_t j = inner.size(); j-- > 0;) {
    const int32_t i = inner[j] - f.leaves;
    slot[inner[j]] = (int32_t)shape.size.size();
    shape.left.push_back(slot[f.left[i]]);
    shape.right.push_back(slot[f.right[i]]);
    shape.size.push_back(f.size[inner[j]]);
  }
  int32_t at = 0;
  for (const int32_t n : shape.size) {
    shape.start.push_back(at);
    at += n + 1;
  }
  shape.view = {leaves, (int32_t)shape.left.size(), shape.left.data(), shape.right.data(),
                shape.size.data(), shape.start.data(), at};
}

void BlockTree::list_leaves(const TreeView& f, int32_t root, std::vector<int32_t>* out) const {
  walk(f, root, [&](int32_t v) {
    if (v < f.leaves) out->push_back(v);
  });
}

BlockTree::Blocks BlockTree::find_blocks(const TreeView& f, const std::vector<char>& inside) const {
  // Subtrees without tables get a shape number: equal numbers, equal trees. 0 is a leaf, -1 none.
  std::vector<int32_t> shape((size_t)f.leaves + f.inner, 0);
  std::unordered_map<int64_t, int32_t> known;
  for (int32_t i = 0; i < f.inner; i++) {
    const int32_t a = shape[f.left[i]], b = shape[f.right[i]], node = f.leaves + i;
    shape[node] = -1;
    if (f.table_offset[i] >= 0 || a < 0 || b < 0 || f.size[node] > kBlockMost) continue;
    shape[node] = known.try_emplace((int64_t)a << 32 | b, (int32_t)known.size() + 1).first->second;
  }
  Blocks blocks;
  for (int32_t v = f.leaves; v < f.leaves + f.inner; v++)
    if (!inside[v] && shape[v] > 0 && f.size[v] >= kBlockLeast && shape[f.parent[v]] < 0) blocks.push_back({shape[v], v});
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

// Nodes with no table below them whose parents are not like that.
std::vector<int32_t> BlockTree::find_waves(const TreeView& f) const {
  std::vector<char> bare((size_t)f.leaves + f.inner, 1);  // no table here or below
  const auto may_be_wave = [&](int32_t i) { return bare[f.left[i]] && bare[f.right[i]]; };
  std::vector<int32_t> found;
  for (int32_t i = 0; i < f.inner; i++) bare[f.leaves + i] = f.table_offset[i] < 0 && may_be_wave(i);
  for (int32_t i = 0; i < f.inner; i++) {
    const int32_t v = f.leaves + i, up = f.parent[v];
    if (f.size[v] >= kWaveLeast && may_be_wave(i) && (up < 0 || !may_be_wave(up - f.leaves))) found.push_back(v);
  }
  return found;
}

BlockTree::BlockTree(const CountTree& whole, bool with_waves, bool with_blocks) {
  const TreeView f = whole.view();
  const std::vector<int32_t> waves = with_waves ? find_waves(f) : std::vector<int32_t>();
  std::vector<char> inside((size_t)f.leaves + f.inner, 0), solved_whole(inside);
  const auto mark_below = [&] {
    for (int32_t i = f.inner; i-- > 0;) {
      const int32_t v = f.leaves + i;
      if (inside[v] || solved_whole[v]) inside[f.left[i]] = inside[f.right[i]] = 1;
    }
  };
  for (const int32_t v : waves) solved_whole[v] = 1;
  mark_below();
  const Blocks blocks = with_blocks ? find_blocks(f, inside) : Blocks();
  if (!with_waves && blocks.empty()) return;
  for (const auto& [shape, v] : blocks) solved_whole[v] = 1;
  mark_below();

  // Number the remaining nodes: blocks, waves, and what is above or beside them.
  std::vector<int32_t> number((size_t)f.leaves + f.inner, -1), left, right, size;
  std::vector<int64_t> table_offset;
  for (int32_t d = 0; d < f.leaves; d++) number[d] = d;
  for (int32_t i = 0; i < f.inner; i++) {
    const int32_t v = f.leaves + i;
    if (inside[v]) continue;
    number[v] = f.leaves + (int32_t)left.size();
    left.push_back(solved_whole[v] ? -1 : number[f.left[i]]);
    right.push_back(solved_whole[v] ? -1 : number[f.right[i]]);
    size.push_back(f.size[v]);
    table_offset.push_back(f.table_offset[i]);
  }
  std::vector<int32_t> loose;
  for (int32_t d = 0; d < f.leaves; d++)
    if (!inside[d]) loose.push_back(d);
  tree_ = std::make_unique<CountTree>(f.leaves, std::move(left), std::move(right), std::move(size),
                                     std::move(table_offset), std::move(loose));
  for (const int32_t v : waves) {
    list_leaves(f, v, &wave_leaves_);
    waves_.push_back({number[v] - f.leaves, f.size[v], nullptr, false});
  }
  size_t first = 0;
  for (WaveBlock& wave : waves_) {  // addresses are final now
    int32_t* leaves = &wave_leaves_[first];
    std::sort(leaves, leaves + wave.count);  // a wave does not care about the order of its leaves
    wave.leaves = leaves;
    wave.side_by_side = leaves[wave.count - 1] - leaves[0] == wave.count - 1;
    first += (size_t)wave.count;
  }
  group_blocks(whole, blocks, number);
  if (with_waves) find_stars();
}

void BlockTree::find_stars() {
  const TreeView f = tree_->view();
  std::vector<char> bare((size_t)f.leaves + f.inner, 1);  // no table here or below
  for (int32_t i = 0; i < f.inner; i++)
    bare[f.leaves + i] = f.table_offset[i] < 0 && (f.left[i] < 0 || (bare[f.left[i]] && bare[f.right[i]]));
  star_of_.assign((size_t)f.inner, -1);
  for (int32_t top = f.inner; top-- > 0;) {
    if (f.left[top] < 0 || f.table_offset[top] < 0) continue;
    Star star = {top, {}, {}};
    std::vector<int32_t> stack = {f.left[top], f.right[top]};
    bool leaf = false;
    while (!stack.empty() && !leaf) {
      const int32_t v = stack.back(), i = v - f.leaves;
      stack.pop_back();
      leaf = v < f.leaves;
      if (leaf) continue;
      if (f.left[i] < 0 || f.table_offset[i] >= 0 || bare[v]) {
        star.children.push_back(i);
      } else {
        star.merges.push_back(i);
        stack.push_back(f.right[i]);
        stack.push_back(f.left[i]);
      }
    }
    // Small messages are merged two by two at less cost.
    if (leaf || star.children.size() < kStarLeast ||
        f.size[f.leaves + top] < kWaveLeast * (int32_t)star.children.size())
      continue;
    std::sort(star.merges.begin(), star.merges.end());
    for (const int32_t i : star.merges) star_of_[(size_t)i] = (int32_t)stars_.size();
    star_of_[(size_t)top] = (int32_t)stars_.size();
    stars_.push_back(std::move(star));
  }
}

void BlockTree::group_blocks(const CountTree& whole, const Blocks& blocks, const std::vector<int32_t>& number) {
  const TreeView f = whole.view();
  for (const auto& [shape, v] : blocks) {
    block_roots_.push_back(number[v] - f.leaves);
    list_leaves(f, v, &block_leaves_);
  }
  size_t leaf = 0;
  for (size_t b = 0; b < blocks.size();) {
    if (b == 0 || blocks[b].first != blocks[b - 1].first) add_shape(whole, blocks[b].second);
    size_t end = b + 1;
    while (end < blocks.size() && end - b < (size_t)kBlockGroup && blocks[end].first == blocks[b].first) end++;
    const BlockShape* view = &shapes_.back().view;
    groups_.push_back({view, (int32_t)(end - b), &block_roots_[b], &block_leaves_[leaf]});
    leaf += (end - b) * (size_t)view->leaves;
    b = end;
  }
}

}  // namespace tallytree
