#include "tree/count_tree.hpp"

#include <algorithm>
#include <queue>
#include <stdexcept>
#include <unordered_map>

namespace tallytree {

CountTree::CountTree(int32_t leaves, std::vector<int32_t> left, std::vector<int32_t> right,
               std::vector<int64_t> table_offset, int64_t table_entries)
    : leaves_(leaves), left_(std::move(left)), right_(std::move(right)), table_offset_(std::move(table_offset)) {
  const size_t nodes = (size_t)leaves_ + left_.size();
  parent_.assign(nodes, -1);
  size_.assign(nodes, 1);
  for (int32_t i = 0; i < inner(); i++) {
    const int32_t node = leaves_ + i;
    for (const int32_t child : {left_[i], right_[i]}) {
      if (child < 0 || child >= node) throw std::invalid_argument("children must come before their parent");
      if (parent_[child] >= 0) throw std::invalid_argument("a node must have at most one parent");
      parent_[child] = node;
    }
    size_[node] = size_[left_[i]] + size_[right_[i]];
    largest_ = std::max(largest_, size_[node]);
    if (table_offset_[i] >= 0 && table_offset_[i] > table_entries - size_[node] - 1)
      throw std::invalid_argument("a table reaches beyond the end of `tables`");
    if (table_offset_[i] >= 0) table_entries_ = std::max(table_entries_, table_offset_[i] + size_[node] + 1);
  }
  loose_.resize((size_t)leaves_);
  for (int32_t d = 0; d < leaves_; d++) loose_[(size_t)d] = d;
  link();
  for (const int32_t i : inner_roots_)
    if (table_offset_[i] < 0) throw std::invalid_argument("every root with children must have a table");
  split();
}

CountTree::CountTree(int32_t leaves, std::vector<int32_t> left, std::vector<int32_t> right, std::vector<int32_t> inner_size,
               std::vector<int64_t> table_offset, std::vector<int32_t> loose)
    : leaves_(leaves), left_(std::move(left)), right_(std::move(right)), loose_(std::move(loose)),
      table_offset_(std::move(table_offset)) {
  size_.assign((size_t)leaves_, 1);
  size_.insert(size_.end(), inner_size.begin(), inner_size.end());
  parent_.assign(size_.size(), -1);
  for (int32_t i = 0; i < inner(); i++) {
    largest_ = std::max(largest_, inner_size[i]);
    if (left_[i] >= 0) parent_[left_[i]] = parent_[right_[i]] = leaves_ + i;
  }
  link();
  split();
}

void CountTree::link() {
  for (int32_t i = 0; i < inner(); i++)
    if (parent_[leaves_ + i] < 0) inner_roots_.push_back(i);
  for (const int32_t d : loose_)
    if (parent_[d] < 0) free_.push_back(d);
  for (int32_t i = 0; i < inner(); i++)
    if (table_offset_[i] >= 0) tabled_.push_back(i);
  all_counts_.resize(size_.size());
  for (size_t v = 0; v < size_.size(); v++) all_counts_[v] = {0, size_[v]};
}

TreeView CountTree::view() const {
  return {leaves_,       inner(),      left_.data(), right_.data(), parent_.data(),
          size_.data(),  table_offset_.data()};
}

// Opens the costliest subtree until none holds more than a sixteenth of the work.
void CountTree::split() {
  std::vector<double> work(inner());
  for (int32_t i = 0; i < inner(); i++) {
    if (left_[i] < 0) continue;
    const double a = size_[left_[i]] + 1, b = size_[right_[i]] + 1;
    work[i] = 60 + std::min(a * b / 8, (a + b) * 12);
    for (const int32_t child : {left_[i], right_[i]})
      if (child >= leaves_) work[i] += work[child - leaves_];
  }
  std::priority_queue<std::pair<double, int32_t>> open;
  double total = 0;
  for (const int32_t i : inner_roots_) {
    if (work[i] == 0) continue;
    open.push({work[i], i});
    total += work[i];
  }
  std::vector<int32_t> task(inner(), -1);  // -1: above the subtrees
  int32_t tasks = 0;
  while (!open.empty()) {
    const auto [cost, i] = open.top();
    open.pop();
    if (cost <= total / 16 || cost < 4000) {
      task[i] = tasks++;
      continue;
    }
    for (const int32_t child : {left_[i], right_[i]})
      if (child >= leaves_ && work[child - leaves_] > 0) open.push({work[child - leaves_], child - leaves_});
  }
  for (int32_t i = inner(); i-- > 0;) {
    const int32_t up = parent_[leaves_ + i];
    if (task[i] < 0 && up >= 0) task[i] = task[up - leaves_];
  }
  // Small subtrees share a task: their order of creation is by falling cost.
  const int32_t groups = std::min(tasks, 64);
  subtrees_.resize(groups);
  for (int32_t i = 0; i < inner(); i++) {
    if (left_[i] < 0) continue;  // blocks are solved before everything else
    if (task[i] < 0) top_.push_back(i);
    else subtrees_[task[i] % groups].push_back(i);
  }
}

bool all_counts_possible(const CountTree& tree, const double* nu, const double* tables) {
  const TreeView f = tree.view();
  bool finite = true;
  for (int32_t d = 0; d < f.leaves; d++) finite &= nu[d] - nu[d] == 0;  // not so if it is infinite
  for (size_t j = 0; j < tree.tabled().size() && finite; j++) {
    const int32_t i = tree.tabled()[j];
    const double* t = tables + f.table_offset[i];
    finite = t[0] > -__builtin_inf() && t[f.size[f.leaves + i]] > -__builtin_inf();
  }
  return finite;
}

static Interval within_table(const TreeView& f, int32_t i, const double* tables, Interval s) {
  if (f.table_offset[i] < 0) return s;
  const double* t = tables + f.table_offset[i];
  while (s.lo <= s.hi && t[s.lo] == -__builtin_inf()) s.lo++;
  while (s.lo <= s.hi && t[s.hi] == -__builtin_inf()) s.hi--;
  return s;
}

static Interval restrict_to_difference(Interval s, Interval whole, Interval part) {
  return {std::max(s.lo, whole.lo - part.hi), std::min(s.hi, whole.hi - part.lo)};
}

void find_supports(const CountTree& tree, const double* nu, const double* tables, bool all_possible, bool cavities,
                   const std::vector<BlockCounts>& blocks, Supports& out) {
  out.possible = true;
  if (all_possible) {
    out.support = out.reach = tree.all_counts().data();
    return;
  }
  const TreeView f = tree.view();
  const double inf = __builtin_inf();
  std::vector<Interval>&support = out.support_storage, &reach = out.reach_storage;
  support.resize((size_t)f.leaves + f.inner);
  reach.resize(support.size());
  for (int32_t d = 0; d < f.leaves; d++) {
    support[d] = {nu[d] == inf, nu[d] != -inf};
    reach[d] = cavities ? Interval{0, 1} : support[d];
  }
  for (int32_t i = 0; i < f.inner; i++) support[f.leaves + i] = {0, f.size[f.leaves + i]};
  for (const BlockCounts& block : blocks) support[f.leaves + block.node] = block.counts;
  for (int32_t i = 0; i < f.inner; i++) {
    if (f.left[i] < 0) {  // a subtree solved as a whole
      const int32_t v = f.leaves + i;
      support[v] = reach[v] = within_table(f, i, tables, support[v]);
      if (support[v].lo > support[v].hi) out.possible = false;
      continue;
    }
    const Interval a = support[f.left[i]], b = support[f.right[i]], ra = reach[f.left[i]], rb = reach[f.right[i]];
    const int32_t node = f.leaves + i;
    support[node] = within_table(f, i, tables, {a.lo + b.lo, a.hi + b.hi});
    reach[node] = within_table(f, i, tables,
                               {std::min(ra.lo + b.lo, a.lo + rb.lo), std::max(ra.hi + b.hi, a.hi + rb.hi)});
    if (support[node].lo > support[node].hi) out.possible = false;
  }
  if (!out.possible) return;
  // A count below is useful only if some count above can contain it.
  for (int32_t i = f.inner; i-- > 0;) {
    const int32_t l = f.left[i], r = f.right[i];
    if (l < 0) continue;
    const Interval down = reach[f.leaves + i], up = support[f.leaves + i];
    const Interval either = {std::min(down.lo, up.lo), std::max(down.hi, up.hi)};
    const Interval sl = support[l], sr = support[r], rl = reach[l], rr = reach[r];
    support[l] = restrict_to_difference(sl, either, rr);
    support[r] = restrict_to_difference(sr, either, rl);
    reach[l] = restrict_to_difference(rl, down, sr);
    reach[r] = restrict_to_difference(rr, down, sl);
    if (support[l].lo > support[l].hi || support[r].lo > support[r].hi) out.possible = false;
  }
  out.support = support.data();
  out.reach = reach.data();
}

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

static void list_leaves(const TreeView& f, int32_t root, std::vector<int32_t>* out) {
  walk(f, root, [&](int32_t v) {
    if (v < f.leaves) out->push_back(v);
  });
}

using Blocks = std::vector<std::pair<int32_t, int32_t>>;  // (shape, root)

static Blocks find_blocks(const TreeView& f, const std::vector<char>& inside) {
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
static std::vector<int32_t> find_waves(const TreeView& f) {
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
