#include "tree_pass.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "parallel.hpp"

namespace tallytree {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kUnitRoundoff = 1.1102230246251565e-16;
constexpr double kLn2 = 0.69314718055994530942;

// Everything one model in flight needs besides the threads' own memory.
struct ItemMemory {
  Supports supports;
  std::vector<Message> up, down;
  std::vector<NodeNotes> notes;
  AlignedArray leaf_storage;
  std::vector<double> messages, leaf_bound, leaf_amplification;

  explicit ItemMemory(const Forest& forest)
      : up(forest.inner()), down(forest.inner()), notes(forest.inner()),
        leaf_storage(aligned_doubles(4 * (size_t)forest.leaves())), messages(forest.leaves()),
        leaf_bound(forest.leaves()), leaf_amplification(forest.leaves()) {}
};

struct Pass {
  const TreeKernels& kernels;
  const TreeMethod& method;
  const Forest& forest;
  const TreeInputs& in;
  const TreeOutputs& out;
  KernelName name;
  PlanCache* plans;

  TreeItem open_item(size_t b, ItemMemory& memory, const ForestView& view) const {
    const size_t leaves = (size_t)forest.leaves();
    TreeItem item = {};
    item.forest = &view;
    item.nu = in.nu + b * leaves;
    item.tables = in.tables + (in.shared_tables ? 0 : b * in.table_entries);
    item.tilt = in.tilt ? in.tilt[b] : 0.0;
    for (int y = 0; y < 2; y++) {
      item.leaf_value[y] = memory.leaf_storage.get() + (size_t)(2 * y) * leaves;
      item.leaf_exponent[y] = memory.leaf_storage.get() + (size_t)(2 * y + 1) * leaves;
    }
    item.up = memory.up.data();
    item.down = memory.down.data();
    item.notes = memory.notes.data();
    item.messages = out.messages ? out.messages + b * leaves : memory.messages.data();
    item.log_beliefs = out.log_beliefs ? out.log_beliefs + b * in.table_entries : nullptr;
    item.leaf_bound = memory.leaf_bound.data();
    item.leaf_amplification = memory.leaf_amplification.data();
    item.plans = plans;
    item.use_fft = name == KernelName::fft;
    return item;
  }

  void no_answer(size_t b, TreeItem& item, double bound) const {
    out.log_mean[b] = -kInf;
    out.bound[b] = bound;
    std::fill_n(item.messages, forest.leaves(), 0.0);
    if (item.log_beliefs) std::fill_n(item.log_beliefs, in.table_entries, -kInf);
  }

  void solve(size_t b, ItemMemory& memory, std::vector<WorkerMemory>& workers, size_t first_worker, int threads) const;
  double bound(const TreeItem& item, double log_mean, bool messages) const;
};

void Pass::solve(size_t b, ItemMemory& memory, std::vector<WorkerMemory>& workers, size_t first_worker,
                 int threads) const {
  const ForestView view = forest.view();
  TreeItem item = open_item(b, memory, view);
  find_supports(forest, item.nu, item.tables, memory.supports);
  if (!memory.supports.possible) return no_answer(b, item, 0.0);
  item.support = memory.supports.support;
  item.reach = memory.supports.reach;

  std::vector<Worker> worker;
  for (int t = 0; t < threads; t++) {
    workers[first_worker + t].arena.reset();
    worker.push_back(workers[first_worker + t].worker((size_t)forest.largest() + 1));
  }
  kernels.leaves(item, 0, view.leaves);

  const auto& subtrees = forest.subtrees();
  const std::vector<int32_t>& top = forest.top();
  run_tasks(subtrees.size(), threads, [&](size_t s, int t) {
    method.up(item, worker[t], subtrees[s].data(), (ptrdiff_t)subtrees[s].size());
  });
  method.up(item, worker[0], top.data(), (ptrdiff_t)top.size());

  double log_mean = 0;
  bool zero = false, lost = false;
  for (const int32_t i : forest.inner_roots()) {
    if (item.notes[i].sum > 0) {
      log_mean += std::log(item.notes[i].sum) + item.up[i].scale * kLn2;
    } else {
      zero = true;
      lost |= item.notes[i].lost_up > -kInf;
    }
  }
  if (zero) return no_answer(b, item, lost ? kInf : 0.0);
  out.log_mean[b] = log_mean;

  std::fill_n(item.messages, view.leaves, 0.0);
  std::fill_n(item.leaf_bound, view.leaves, 0.0);
  std::fill_n(item.leaf_amplification, view.leaves, 0.0);
  if (item.log_beliefs) std::fill_n(item.log_beliefs, in.table_entries, -kInf);
  const bool downwards = out.messages || out.log_beliefs || name == KernelName::fft;
  if (downwards) {
    for (const int32_t i : forest.inner_roots()) method.start_down(item, worker[0], i);
    for (size_t j = top.size(); j-- > 0;) method.down(item, worker[0], &top[j], 1);
    run_tasks(subtrees.size(), threads, [&](size_t s, int t) {
      for (size_t j = subtrees[s].size(); j-- > 0;) method.down(item, worker[t], &subtrees[s][j], 1);
    });
  }
  out.bound[b] = bound(item, log_mean, downwards);
}

// Rounding errors of the merges are modelled as independent, eight standard deviations allowed, with a bias of a
// quarter unit per node on top; errors of underflow, transforms and cut tails are bounded without such a model.
double Pass::bound(const TreeItem& item, double log_mean, bool messages) const {
  const ForestView& f = *item.forest;
  double variance = 4.0 * f.leaves, amplified = 0, root = 0, lost = 0;
  for (int32_t i = 0; i < f.inner; i++) {
    variance += item.notes[i].rounding;
    amplified += item.notes[i].amplified;
  }
  int32_t largest_root = 0;
  for (const int32_t i : forest.inner_roots()) {
    const NodeNotes& note = item.notes[i];
    if (note.lost_up > -kInf) lost += std::exp2(note.lost_up) * item.up[i].length / note.sum;
    root += 2 * kUnitRoundoff * std::fabs(item.up[i].scale * kLn2);
    largest_root = std::max(largest_root, f.size[f.leaves + i]);
  }
  const double rounding = kUnitRoundoff * (8 * std::sqrt(variance) + 0.25 * ((double)f.inner + f.leaves)) +
                          2 * kUnitRoundoff * std::fabs(item.tilt) * largest_root;
  // The tiled pass has two bounds for the same losses; the others add different ones.
  const bool alternative = name == KernelName::tiled;
  const double of_mean = rounding + root + (alternative ? std::min(lost, 2 * amplified) : lost + 2 * amplified) + 2 * kUnitRoundoff * std::fabs(log_mean);
  if (!messages) return of_mean;
  double of_messages = 0, size = 0;
  for (int32_t d = 0; d < f.leaves; d++) {
    const double by_share = amplified > 0 ? item.leaf_amplification[d] * amplified : 0.0;
    const double error = alternative ? std::min(item.leaf_bound[d], by_share) : item.leaf_bound[d] + by_share;
    of_messages = std::max(of_messages, error);
    const double r = std::fabs(item.messages[d]);
    if (r < kInf) size = std::max(size, r);
  }
  of_messages += 3 * rounding + 2 * kUnitRoundoff * (size + std::fabs(item.tilt));
  return std::max(of_mean, of_messages);
}

}  // namespace

void tree_pass(const Kernels& kernels, const Forest& forest, const TreeInputs& in, const TreeOutputs& out,
               PlanCache* plans, KernelName name, int threads) {
  const TreeKernels& tree = *kernels.tree;
  const TreeMethod& method = name == KernelName::wide    ? tree.wide
                             : name == KernelName::tiled ? tree.tiled
                                                             : tree.linear;
  threads = thread_count(threads);
  std::vector<WorkerMemory> workers((size_t)threads);
  const Pass pass = {tree, method, forest, in, out, name, plans};
  if (in.batch == 1) {
    ItemMemory memory(forest);
    pass.solve(0, memory, workers, 0, threads);
    return;
  }
  std::vector<std::unique_ptr<ItemMemory>> memory((size_t)threads);
  run_tasks(in.batch, threads, [&](size_t b, int t) {
    if (!memory[t]) memory[t] = std::make_unique<ItemMemory>(forest);
    pass.solve(b, *memory[t], workers, (size_t)t, 1);
  });
}

}  // namespace tallytree
