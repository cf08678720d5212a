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
constexpr size_t kGroupsPerTask = 16;

// One model, from opening to its bound. `blocks` is null where every node is solved on its own.
struct Solver {
  const TreeKernels& kernels;
  const TreeMethod& method;
  const Forest& forest;
  const BlockForest* blocks;
  const TreeInputs& in;
  const TreeOutputs& out;
  KernelName name;
  size_t model;
  TreeItem item;
  std::vector<Worker> workers;

  void up();
  void down();
  void no_answer(double bound);
  void finish(bool downwards);
  double root_log_mean(bool& zero, bool& lost) const;
  double bound(double log_mean, bool messages) const;

  template <class Task>
  void for_groups(Task task) {
    if (!blocks) return;
    const std::vector<BlockGroup>& groups = blocks->groups();
    const size_t tasks = (groups.size() + kGroupsPerTask - 1) / kGroupsPerTask;
    run_tasks(tasks, (int)workers.size(), [&](size_t k, int t) {
      for (size_t g = k * kGroupsPerTask; g < std::min(groups.size(), (k + 1) * kGroupsPerTask); g++)
        task(item, workers[t], groups[g]);
    });
  }
};

void Solver::up() {
  kernels.leaves(item, forest.loose().data(), (ptrdiff_t)forest.loose().size());
  for_groups(kernels.block_up);
  const auto& subtrees = forest.subtrees();
  run_tasks(subtrees.size(), (int)workers.size(), [&](size_t s, int t) {
    method.up(item, workers[t], subtrees[s].data(), (ptrdiff_t)subtrees[s].size());
  });
  method.up(item, workers[0], forest.top().data(), (ptrdiff_t)forest.top().size());
}

void Solver::down() {
  const std::vector<int32_t>& top = forest.top();
  const auto& subtrees = forest.subtrees();
  for (const int32_t i : forest.inner_roots()) method.start_down(item, workers[0], i);
  for (size_t j = top.size(); j-- > 0;) method.down(item, workers[0], &top[j], 1);
  run_tasks(subtrees.size(), (int)workers.size(), [&](size_t s, int t) {
    for (size_t j = subtrees[s].size(); j-- > 0;) method.down(item, workers[t], &subtrees[s][j], 1);
  });
  for_groups(kernels.block_down);
}

void Solver::no_answer(double bound) {
  out.log_mean[model] = -kInf;
  out.bound[model] = bound;
  std::fill_n(item.messages, forest.leaves(), 0.0);
  if (item.log_beliefs) std::fill_n(item.log_beliefs, in.table_entries, -kInf);
}

double Solver::root_log_mean(bool& zero, bool& lost) const {
  double log_mean = 0;
  for (const int32_t i : forest.inner_roots()) {
    if (item.notes[i].sum > 0) {
      log_mean += std::log(item.notes[i].sum) + item.up[i].scale * kLn2;
    } else {
      zero = true;
      lost |= item.notes[i].lost_up > -kInf;
    }
  }
  return log_mean;
}

// Rounding errors of the merges are modelled as independent, eight standard deviations allowed, with a bias of a
// quarter unit per node on top; errors of underflow, transforms and cut tails are bounded without such a model.
double Solver::bound(double log_mean, bool messages) const {
  const ForestView& f = *item.forest;
  double variance = 4.0 * f.leaves, amplified = 0, root = 0, lost = 0, size = 0, of_messages = 0;
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
  const double rounding = kUnitRoundoff * (8 * std::sqrt(variance) + 0.5 * f.leaves) +
                          2 * kUnitRoundoff * std::fabs(item.tilt) * largest_root;
  // The tiled pass has two bounds for the same losses; the others add different ones.
  const bool alternative = name == KernelName::tiled;
  const double of_mean = rounding + root + (alternative ? std::min(lost, 2 * amplified) : lost + 2 * amplified) +
                         2 * kUnitRoundoff * std::fabs(log_mean);
  if (!messages) return of_mean;
  const auto include = [&](double by_floor, double amplification, double message) {
    const double by_share = amplified > 0 ? amplification * amplified : 0.0;
    of_messages = std::max(of_messages, alternative ? std::min(by_floor, by_share) : by_floor + by_share);
    if (std::fabs(message) < kInf) size = std::max(size, std::fabs(message));
  };
  for (const int32_t d : forest.loose())
    if (f.parent[d] >= 0) include(item.leaf_bound[d], item.leaf_amplification[d], item.messages[d]);
  for (int32_t i = 0; i < f.inner; i++) {
    const NodeNotes& note = item.notes[i];
    if (f.left[i] < 0) include(note.block_bound, note.block_amplification, note.block_message);
  }
  of_messages += 3 * rounding + 2 * kUnitRoundoff * (size + std::fabs(item.tilt));
  return std::max(of_mean, of_messages);
}

void Solver::finish(bool downwards) {
  bool zero = false, lost = false;
  const double log_mean = root_log_mean(zero, lost);
  if (zero) return no_answer(lost ? kInf : 0.0);
  out.log_mean[model] = log_mean;
  for (const int32_t d : forest.free()) item.messages[d] = 0.0;
  if (item.log_beliefs) std::fill_n(item.log_beliefs, in.table_entries, -kInf);
  if (downwards) down();
  out.bound[model] = bound(log_mean, downwards);
}

void solve_model(const TreeKernels& kernels, TreePlan& plan, const TreeInputs& in, const TreeOutputs& out,
                 KernelName name, size_t model, ItemMemory& memory, WorkerMemory* workers, int threads) {
  const double* nu = in.nu + model * (size_t)plan.forest().leaves();
  const double* tables = in.tables + (in.shared_tables ? 0 : model * in.table_entries);
  const bool linear = name == KernelName::direct || name == KernelName::fft;
  const bool use_blocks = linear && !plan.blocks().empty() && all_counts_possible(plan.blocks().forest(), nu, tables);
  const Forest& forest = use_blocks ? plan.blocks().forest() : plan.forest();
  const TreeMethod& method = linear ? kernels.linear : name == KernelName::tiled ? kernels.tiled : kernels.wide;
  const ForestView view = forest.view();
  const size_t leaves = (size_t)view.leaves;

  TreeItem item = {};
  item.forest = &view;
  item.nu = nu;
  item.tables = tables;
  item.tilt = in.tilt ? in.tilt[model] : 0.0;
  for (int y = 0; y < 2; y++) {
    item.leaf_value[y] = memory.leaves.get() + (size_t)(2 * y) * leaves;
    item.leaf_exponent[y] = memory.leaves.get() + (size_t)(2 * y + 1) * leaves;
  }
  item.up = memory.up.get();
  item.down = memory.down.get();
  item.notes = memory.notes.get();
  item.messages = out.messages ? out.messages + model * leaves : memory.messages.get();
  item.log_beliefs = out.log_beliefs ? out.log_beliefs + model * in.table_entries : nullptr;
  item.leaf_bound = memory.leaf_bound.get();
  item.leaf_amplification = memory.leaf_amplification.get();
  item.plans = plan.fft_plans();
  item.use_fft = name == KernelName::fft;

  Solver solver = {kernels, method, forest, use_blocks ? &plan.blocks() : nullptr, in, out, name, model, item, {}};
  find_supports(forest, nu, tables, memory.supports);
  if (!memory.supports.possible) return solver.no_answer(0.0);
  solver.item.support = memory.supports.support;
  solver.item.reach = memory.supports.reach;
  for (int t = 0; t < threads; t++) {
    workers[t].arena.reset();
    solver.workers.push_back(workers[t].worker((size_t)forest.largest() + 1));
  }
  solver.up();
  // The certificate of the fft method is made on the way down.
  solver.finish(out.messages || out.log_beliefs || name == KernelName::fft);
}

}  // namespace

void tree_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, const TreeOutputs& out, KernelName name,
               int threads) {
  threads = thread_count(threads);
  std::unique_ptr<PassMemory> memory = plan.take_memory();
  memory->require(threads);
  const auto item = [&](int t) -> ItemMemory& {
    if (!memory->items[t])
      memory->items[t] = std::make_unique<ItemMemory>((size_t)plan.forest().leaves(), (size_t)plan.forest().inner());
    return *memory->items[t];
  };
  if (in.batch == 1) {
    solve_model(*kernels.tree, plan, in, out, name, 0, item(0), memory->workers.data(), threads);
  } else {
    run_tasks(in.batch, threads, [&](size_t b, int t) {
      solve_model(*kernels.tree, plan, in, out, name, b, item(t), &memory->workers[t], 1);
    });
  }
  plan.give_back(std::move(memory));
}

}  // namespace tallytree
