#include "tree/count_tree.hpp"

#include <algorithm>
#include <queue>
#include <stdexcept>

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

}  // namespace tallytree
