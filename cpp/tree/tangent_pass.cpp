#include "tree/tangent_pass.hpp"

#include <algorithm>
#include <cmath>

#include "base/constants.hpp"
#include "base/parallel.hpp"

namespace tallytree {

namespace {

constexpr int32_t kDirectMost = 64;  // below this transforms never pay
constexpr int32_t kDirectAtMost = 8192;  // above this direct merges are tried only if asked for
constexpr double kAccepted = 1e-10;  // error of a derivative as a share of its largest entry
constexpr double kAcceptedCounts = 1e-11;  // error of a probability
constexpr double kVanishing = 1e-3;  // answers smaller than this share of the direction count as cancelled
constexpr double kSafe = 0x1p-700;   // smallest <up, down> that underflow cannot have reached
constexpr double kDeviations = 6;    // of independent errors
constexpr size_t kWorthThreads = 4096;  // variables

// One model and one direction: pair r * batch + b. Without directions there is one that moves nothing.
struct Pairs {
  const CountTree& tree;
  const TreeTangentBatch& in;
  std::vector<double> still;  // the direction that moves nothing

  Pairs(const CountTree& f, const TreeTangentBatch& batch) : tree(f), in(batch) {
    if (in.directions == 0) still.assign((size_t)f.leaves(), 0.0);
  }
  size_t count() const { return in.batch * std::max<size_t>(in.directions, 1); }
  size_t model(size_t pair) const { return pair % in.batch; }
  const double* nu(size_t pair) const { return in.nu + model(pair) * (size_t)tree.leaves(); }
  const double* tables(size_t pair) const { return in.tables + (in.shared_tables ? 0 : model(pair) * in.table_entries); }
  const double* v(size_t pair) const {
    return still.empty() ? in.v + pair * (size_t)tree.leaves() : still.data();
  }
  const double* h(size_t pair) const { return in.h && in.directions ? in.h + pair * in.table_entries : nullptr; }
  double* change(size_t pair) const {
    return in.change && in.directions ? in.change + pair * (size_t)tree.leaves() : nullptr;
  }
  double* beliefs(size_t pair) const { return in.beliefs && pair < in.batch ? in.beliefs + pair * in.table_entries : nullptr; }
  double* belief_change(size_t pair) const {
    return in.belief_change && in.directions ? in.belief_change + pair * in.table_entries : nullptr;
  }
};

double largest_of(const double* x, size_t n) {
  double largest = 0;
  for (size_t i = 0; i < n && x; i++) largest = std::fmax(largest, std::fabs(x[i]));
  return largest;
}

// One pair by messages of its own.
struct TangentSolver {
  const TreeTangentKernels& kernels;
  const Pairs& pairs;
  size_t pair;
  TangentItem item;
  std::vector<Worker> workers;

  void pass();
  double bound() const;
};

void TangentSolver::pass() {
  const CountTree& tree = pairs.tree;
  const auto& subtrees = tree.subtrees();
  const auto up = [&](const std::vector<int32_t>& nodes, int t) {
    for (const int32_t i : nodes) kernels.up(item, workers[(size_t)t], i);
  };
  const auto down = [&](const std::vector<int32_t>& nodes, int t) {
    for (size_t j = nodes.size(); j-- > 0;) kernels.down(item, workers[(size_t)t], nodes[j]);
  };
  run_tasks(subtrees.size(), (int)workers.size(), [&](size_t s, int t) { up(subtrees[s], t); });
  const std::vector<int32_t>& top = tree.top();
  parallel_for((ptrdiff_t)top.size(), 1, [&](ptrdiff_t j) { kernels.up(item, workers[0], top[(size_t)j]); });
  for (const int32_t i : tree.inner_roots()) kernels.start_down(item, workers[0], i);
  parallel_for((ptrdiff_t)top.size(), 1, [&](ptrdiff_t j) { kernels.down(item, workers[0], top[top.size() - 1 - (size_t)j]); });
  run_tasks(subtrees.size(), (int)workers.size(), [&](size_t s, int t) { down(subtrees[s], t); });
}

double TangentSolver::bound() const {
  const CountTree& tree = pairs.tree;
  double cut = 0, cut_change = 0, noise = 0, noise_change = 0, path = 0, path_change = 0;
  for (int32_t i = 0; i < tree.inner(); i++) {
    const TangentNode& node = item.nodes[i];
    if (!(node.overlap > kSafe)) return kInfinity;
    cut += node.cut_error;
    cut_change += node.cut_change_error;
    noise += node.noise;
    noise_change += node.change_noise;
    path = std::fmax(path, node.path);
    path_change = std::fmax(path_change, node.change_path);
  }
  const TreeView view = tree.view();
  for (int32_t d = 0; d < tree.leaves(); d++) {
    if (view.parent[d] < 0) continue;
    path = std::fmax(path, item.leaf_path[2 * d]);
    path_change = std::fmax(path_change, item.leaf_path[2 * d + 1]);
  }
  const double value = cut + kDeviations * std::sqrt(noise + path);
  if (!(value <= kAcceptedCounts)) return kInfinity;
  if (!item.change && !item.belief_change) return value;
  const double wrong = cut_change + kDeviations * std::sqrt(noise_change + path_change);
  const double reference = std::fmax(
      std::fmax(largest_of(item.change, (size_t)tree.leaves()), kVanishing * largest_of(item.v, (size_t)tree.leaves())),
      std::fmax(largest_of(item.belief_change, pairs.in.table_entries), 1e-300));
  return wrong <= kAccepted * reference ? std::fmax(value, wrong / reference) : kInfinity;
}

// Variables outside all groups.
void move_free(const CountTree& tree, const TangentItem& item) {
  for (const int32_t d : tree.free()) {
    const double e = std::exp(-std::fabs(item.nu[d])), spread = e / ((1 + e) * (1 + e));
    if (item.change) item.change[d] = spread > 0 ? spread * item.v[d] : 0.0;
  }
}

double solve_pair(const Kernels& kernels, TreePlan& plan, const Pairs& pairs, size_t pair, WorkerMemory* memory,
                  int threads) {
  const CountTree& tree = pairs.tree;
  const TreeView view = tree.view();
  std::vector<TangentNode> nodes((size_t)tree.inner());
  std::vector<double> leaf_path(2 * (size_t)tree.leaves());
  TangentSolver solver = {*kernels.tree_tangent, pairs, pair, {}, {}};
  solver.item = {&view, pairs.nu(pair), pairs.tables(pair), pairs.v(pair), pairs.h(pair), nodes.data(),
                 pairs.change(pair), pairs.beliefs(pair), pairs.belief_change(pair), leaf_path.data(), plan.fft_plans(),
                 false, false, 0.0};
  for (int32_t d = 0; d < tree.leaves(); d++)
    if (std::isfinite(solver.item.nu[d])) solver.item.direction_limit += std::fabs(solver.item.v[d]);
  move_free(tree, solver.item);
  double bound = kInfinity;
  const int first = pairs.in.direct || tree.leaves() < kDirectMost ? 1 : 0;
  const int last = pairs.in.direct || tree.leaves() <= kDirectAtMost ? 1 : 0;
  for (int rung = first; rung <= last && bound == kInfinity; rung++) {
    solver.item.use_fft = solver.item.trim = rung == 0;
    solver.workers.clear();
    for (int t = 0; t < threads; t++) {
      memory[t].arena.reset();
      solver.workers.push_back(memory[t].worker((size_t)tree.largest() + 1));
    }
    solver.pass();
    bound = solver.bound();
  }
  return bound;
}

void solve_lanes(const Kernels& kernels, const Pairs& pairs, size_t first, size_t count, double* scratch,
                 double* bound) {
  LaneTangents models{};
  models.count = (int)count;
  models.shared_tables = pairs.in.shared_tables;
  const bool beliefs = pairs.in.beliefs && first < pairs.in.batch;
  for (size_t l = 0; l < 8; l++) {
    const size_t pair = l < count ? first + l : first;
    models.nu[l] = pairs.nu(pair);
    models.tables[l] = pairs.tables(pair);
    models.v[l] = pairs.v(pair);
    models.h[l] = pairs.h(pair);
    models.change[l] = pairs.change(pair);
    models.beliefs[l] = beliefs ? pairs.beliefs(pair) : nullptr;
    models.belief_change[l] = pairs.belief_change(pair);
  }
  kernels.tree_tangent->lanes(pairs.tree.view(), models, scratch, bound);
}

}  // namespace

void tree_tangent_pass(const Kernels& kernels, TreePlan& plan, const TreeTangentBatch& in, int threads) {
  const CountTree& tree = plan.tree();
  const Pairs pairs(tree, in);
  threads = pairs.count() * (size_t)tree.leaves() < kWorthThreads ? 1 : thread_count(threads);
  std::unique_ptr<PassMemory> memory = plan.take_memory();
  memory->require(threads);
  std::vector<double> bound(pairs.count(), kInfinity);
  const auto one = [&](size_t pair, int t) {
    bound[pair] = solve_pair(kernels, plan, pairs, pair, &memory->workers[(size_t)t], 1);
  };
  if (pairs.count() > 1 && tree.leaves() <= kLaneModelMost && tree.inner() > 0) {
    // Tasks do not cross directions: beliefs are wanted from the first only.
    const size_t lanes = (size_t)kernels.lanes, per_direction = (in.batch + lanes - 1) / lanes;
    const size_t doubles = (size_t)kernels.tree_tangent->lane_scratch(tree.view());
    memory->require_lanes(threads, doubles);
    run_tasks(per_direction * (pairs.count() / in.batch), threads, [&](size_t k, int t) {
      const size_t from = k / per_direction * in.batch + k % per_direction * lanes;
      const size_t count = std::min(lanes, (k / per_direction + 1) * in.batch - from);
      double found[8];
      solve_lanes(kernels, pairs, from, count, memory->lane_scratch(t, memory->lane_doubles), found);
      for (size_t l = 0; l < count; l++) {
        bound[from + l] = found[l];
        if (found[l] == kInfinity) one(from + l, t);
      }
    });
  } else if (pairs.count() >= 2 * (size_t)threads) {
    run_tasks(pairs.count(), threads, one);
  } else {
    for (size_t pair = 0; pair < pairs.count(); pair++)
      bound[pair] = solve_pair(kernels, plan, pairs, pair, memory->workers.data(), threads);
  }
  plan.give_back(std::move(memory));
  std::fill_n(in.bound, in.batch, 0.0);
  for (size_t pair = 0; pair < pairs.count(); pair++)
    in.bound[pairs.model(pair)] = std::fmax(in.bound[pairs.model(pair)], bound[pair]);
}

}  // namespace tallytree
