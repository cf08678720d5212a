#include <cmath>

#include "base/sigmoid.hpp"
#include "tree/pass.hpp"

namespace tallytree {

namespace {

constexpr int32_t kDirectMost = 64;  // below this transforms never pay
constexpr int32_t kDirectAtMost = 8192;  // above this direct merges are tried only if asked for
constexpr double kAccepted = 1e-10;  // error of a derivative as a share of its largest entry
constexpr double kAcceptedCounts = 1e-11;  // error of a probability
constexpr double kVanishing = 0.1;  // answers smaller than this share of the direction count as cancelled
constexpr double kSafe = 0x1p-700;   // smallest <up, down> that underflow cannot have reached
constexpr double kDeviations = 6;    // of independent errors
constexpr size_t kWorthThreads = 4096;  // variables

// One model and one direction: pair r * batch + b. Without directions there is one that changes nothing.
struct Pairs {
  const CountTree& tree;
  const TreeTangents& in;
  std::vector<double> still;  // the direction that changes nothing

  Pairs(const CountTree& f, const TreeTangents& batch) : tree(f), in(batch) {
    if (in.directions == 0) still.assign((size_t)f.leaves(), 0.0);
  }
  size_t count() const { return in.models.batch * std::max<size_t>(in.directions, 1); }
  TangentItem item(size_t pair) const {
    const size_t model = pair % in.models.batch, leaves = (size_t)tree.leaves(), entries = in.models.table_entries;
    const auto row = [&](auto* rows, size_t length, bool wanted) {
      return rows && wanted ? rows + pair * length : nullptr;
    };
    const bool moves = in.directions > 0;
    TangentItem item = {};
    item.nu = in.models.nu + model * leaves;
    item.tables = in.models.tables_of(model);
    item.v = moves ? in.v + pair * leaves : still.data();
    item.h = row(in.h, entries, moves);
    item.change = row(in.change, leaves, moves);
    item.beliefs = row(in.beliefs, entries, !moves);
    item.belief_change = row(in.belief_change, entries, moves);
    return item;
  }
};

double largest_of(const double* x, size_t n) {
  double largest = 0;
  for (size_t i = 0; i < n && x; i++) largest = std::fmax(largest, std::fabs(x[i]));
  return largest;
}

double bound_of(const CountTree& tree, const TangentItem& item, size_t table_entries, double size) {
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
  for (int32_t d = 0; d < tree.leaves(); d++) {
    if (item.tree->parent[d] < 0) continue;
    path = std::fmax(path, item.leaf_path[2 * d]);
    path_change = std::fmax(path_change, item.leaf_path[2 * d + 1]);
  }
  const double value = cut + kDeviations * std::sqrt(noise + path);
  if (!(value <= kAcceptedCounts)) return kInfinity;
  if (!item.change && !item.belief_change) return value;
  const double wrong = cut_change + kDeviations * std::sqrt(noise_change + path_change);
  size = std::fmax(size, largest_of(item.v, (size_t)tree.leaves()));
  const double reference = std::fmax(std::fmax(largest_of(item.change, (size_t)tree.leaves()), kVanishing * size),
                                     std::fmax(largest_of(item.belief_change, table_entries), 1e-300));
  return wrong <= kAccepted * reference ? std::fmax(value, wrong / reference) : kInfinity;
}

// One pair by messages of its own; returns its bound.
double solve_pair(const Kernels& kernels, TreePlan& plan, const Pairs& pairs, size_t pair, WorkerMemory* memory,
                  int threads) {
  const CountTree& tree = pairs.tree;
  const TreeKernels& k = *kernels.tree;
  const TreeView view = tree.view();
  std::vector<TangentNode> nodes((size_t)tree.inner());
  std::vector<double> leaf_path(2 * (size_t)tree.leaves());
  TangentItem item = pairs.item(pair);
  item.tree = &view;
  item.nodes = nodes.data();
  item.leaf_path = leaf_path.data();
  item.plans = plan.fft_plans();
  for (int32_t d = 0; d < tree.leaves(); d++)
    if (std::isfinite(item.nu[d])) item.direction_limit += std::fabs(item.v[d]);
  for (const int32_t d : tree.free())  // variables outside all groups
    if (item.change) item.change[d] = spread(item.nu[d]) > 0 ? spread(item.nu[d]) * item.v[d] : 0.0;
  double bound = kInfinity;
  const int first = pairs.in.direct || tree.leaves() < kDirectMost ? 1 : 0;
  const int last = pairs.in.direct || tree.leaves() <= kDirectAtMost ? 1 : 0;
  for (int rung = first; rung <= last && bound == kInfinity; rung++) {
    item.use_fft = rung == 0;
    std::vector<Worker> workers;
    for (int t = 0; t < threads; t++) {
      memory[t].arena.reset();
      workers.push_back(memory[t].worker((size_t)tree.largest() + 1));
    }
    visit_up(tree, threads, [&](int32_t i, int t, bool) { k.tangent_up(item, workers[(size_t)t], i); });
    for (const int32_t i : tree.inner_roots()) k.tangent_start_down(item, workers[0], i);
    visit_down(tree, threads, [&](int32_t i, int t, bool) { k.tangent_down(item, workers[(size_t)t], i); });
    bound = bound_of(tree, item, pairs.in.models.table_entries, pairs.in.size);
  }
  return bound;
}

void solve_small(const Kernels& kernels, const Pairs& pairs, size_t first, size_t count, double* scratch, double* bound) {
  SmallModels models = {};
  models.count = (int)count;
  models.shared_tables = pairs.in.models.shared_tables;
  for (size_t l = 0; l < 8; l++) {
    const TangentItem item = pairs.item(l < count ? first + l : first);
    models.nu[l] = item.nu;
    models.tables[l] = item.tables;
    models.v[l] = item.v;
    models.h[l] = item.h;
    models.change[l] = item.change;
    models.beliefs[l] = item.beliefs;
    models.belief_change[l] = item.belief_change;
  }
  kernels.tree->small_tangents(pairs.tree.view(), models, scratch, bound);
}

}  // namespace

void tree_tangent_pass(const Kernels& kernels, TreePlan& plan, const TreeTangents& in, int threads) {
  const CountTree& tree = plan.tree();
  const Pairs pairs(tree, in);
  const size_t batch = in.models.batch;
  threads = pairs.count() * (size_t)tree.leaves() < kWorthThreads ? 1 : thread_count(threads);
  std::unique_ptr<PassMemory> memory = plan.take_memory();
  memory->require(threads);
  std::vector<double> bound(pairs.count(), kInfinity);
  const auto one = [&](size_t pair, int t) {
    bound[pair] = solve_pair(kernels, plan, pairs, pair, &memory->workers[(size_t)t], 1);
  };
  if (pairs.count() > 1 && tree.leaves() <= kSmallModelMost && tree.inner() > 0) {
    const ptrdiff_t doubles = kernels.tree->small_scratch(tree.view(), true);
    over_registers(kernels, *memory, pairs.count(), doubles, threads, [&](size_t first, size_t count, double* scratch, int t) {
      solve_small(kernels, pairs, first, count, scratch, &bound[first]);
      for (size_t pair = first; pair < first + count; pair++)
        if (bound[pair] == kInfinity) one(pair, t);
    });
  } else if (pairs.count() >= 2 * (size_t)threads) {
    run_tasks(pairs.count(), threads, one);
  } else {
    for (size_t pair = 0; pair < pairs.count(); pair++)
      bound[pair] = solve_pair(kernels, plan, pairs, pair, memory->workers.data(), threads);
  }
  plan.give_back(std::move(memory));
  std::fill_n(in.bound, batch, 0.0);
  for (size_t pair = 0; pair < pairs.count(); pair++) in.bound[pair % batch] = std::fmax(in.bound[pair % batch], bound[pair]);
}

}  // namespace tallytree
