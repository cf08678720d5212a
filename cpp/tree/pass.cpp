#include "tree/pass.hpp"

#include <atomic>
#include <cmath>
#include <stdexcept>

#include "base/sigmoid.hpp"
#include "tree/spectral_blocks.hpp"

namespace tallytree {

namespace {

constexpr size_t kGroupsPerTask = 16;

bool is_linear(KernelName name) {
  return name == KernelName::direct || name == KernelName::fft || name == KernelName::waves;
}

struct TreeMethod {
  NodeKernel<TreeItem> up, start_down, down;
};
TreeMethod method_of(const TreeKernels& k, KernelName name) {
  if (is_linear(name)) return {k.linear_up, k.linear_start_down, k.linear_down};
  return {k.wide_up, k.wide_start_down, k.wide_down};
}

// One model, from opening to its bound. `carved` is null where every node is solved on its own.
struct Solver {
  const Kernels& all_kernels;
  const TreeKernels& kernels;
  const TreeMethod method;
  const CountTree& tree;
  const BlockTree* carved;
  const std::vector<WaveState>& waves;  // as many as the carved tree has
  const TreeInputs& in;
  const TreeOutputs& out;
  KernelName name;
  size_t model;
  TreeItem item;
  std::vector<Worker> workers;
  std::vector<StarState> stars;

  template <class Task>
  void for_groups(Task task) {
    if (!carved) return;
    const std::vector<BlockGroup>& groups = carved->groups();
    const size_t tasks = (groups.size() + kGroupsPerTask - 1) / kGroupsPerTask;
    run_tasks(tasks, (int)workers.size(), [&](size_t k, int t) {
      for (size_t g = k * kGroupsPerTask; g < std::min(groups.size(), (k + 1) * kGroupsPerTask); g++)
        task(item, workers[t], groups[g]);
    });
  }
  template <class Task>
  void for_waves(Task task) {
    run_tasks(waves.size(), (int)workers.size(), [&](size_t w, int t) {
      task(kernels, carved->waves()[w], waves[w], item, workers[t]);
    });
  }

  void up() {
    kernels.tree_leaves(item, tree.loose().data(), (ptrdiff_t)tree.loose().size());
    for_groups(kernels.block_up);
    for_waves(wave_up);
    if (carved) stars.resize(carved->stars().size());
    visit_up(tree, (int)workers.size(), [&](int32_t i, int t, bool alone) { up_node(i, t, alone); });
  }

  // `alone`: nobody else is at work, so a star can have all workers.
  void up_node(int32_t i, int thread, bool alone) {
    Worker& worker = workers[(size_t)thread];
    const int32_t s = carved ? carved->star_of(i) : -1;
    if (s < 0) return method.up(item, worker, i);
    const Star& star = carved->stars()[(size_t)s];
    if (star.node != i || star_up(all_kernels, star, item, workers, thread, alone, &stars[(size_t)s])) return;
    for (const int32_t merge : star.merges) method.up(item, worker, merge);
    method.up(item, worker, i);
  }

  void down_node(int32_t i, int thread, bool alone) {
    const int32_t s = carved ? carved->star_of(i) : -1;
    if (s < 0 || !stars[(size_t)s].used)
      method.down(item, workers[(size_t)thread], i);
    else if (carved->stars()[(size_t)s].node == i)
      star_down(all_kernels, carved->stars()[(size_t)s], stars[(size_t)s], item, workers, thread, alone);
  }

  void down() {
    for (const int32_t i : tree.inner_roots()) method.start_down(item, workers[0], i);
    visit_down(tree, (int)workers.size(), [&](int32_t i, int t, bool alone) { down_node(i, t, alone); });
    for_groups(kernels.block_down);
    for_waves(wave_down);
  }

  void no_answer(double bound) {
    out.log_mean[model] = -kInfinity;
    out.bound[model] = bound;
    if (out.probability_bound) out.probability_bound[model] = bound;
    std::fill_n(item.messages, tree.leaves(), 0.0);
    if (item.log_beliefs) std::fill_n(item.log_beliefs, in.table_entries, -kInfinity);
  }

  double root_log_mean(bool& zero, bool& lost) const {
    double log_mean = 0;
    for (const int32_t i : tree.inner_roots()) {
      if (item.notes[i].sum > 0) {
        log_mean += std::log(item.notes[i].sum) + item.up[i].scale * kLn2 - item.tilt * item.centre;
      } else {
        zero = true;
        lost |= item.notes[i].lost_up > -kInfinity;
      }
    }
    return log_mean;
  }

  // Rounding errors of the merges are modelled as independent, eight standard deviations allowed, with a bias of a
  // quarter unit per node on top. Those of transforms are independent as well: six standard deviations, each taken as the
  // bound on a single transform. Errors of underflow and cut tails are bounded without such a model.
  double bound(bool messages, double* of_probabilities) const {
    const bool linear = is_linear(name);
    const TreeView& f = *item.tree;
    // Variables inside waves take part in no merge.
    double leaves = (double)tree.loose().size();
    if (carved)
      for (const BlockGroup& group : carved->groups()) leaves += (double)group.count * group.shape->leaves;
    if (carved) leaves += (double)carved->waves().size();
    double variance = 4.0 * leaves, amplified = 0, transforms = 0, lost = 0, size = 0, of_messages = 0;
    for (int32_t i = 0; i < f.inner; i++) {
      variance += item.notes[i].rounding;
      amplified += item.notes[i].amplified;
      if (linear) transforms += item.notes[i].transformed * item.notes[i].transformed;
    }
    amplified += 6 * std::sqrt(transforms);
    double furthest = 0;  // from the centre of the tilt
    for (const int32_t i : tree.inner_roots()) {
      const NodeNotes& note = item.notes[i];
      if (note.lost_up > -kInfinity) lost += std::exp2(note.lost_up) * item.up[i].length / note.sum;
      const double first = item.up[i].lo - item.centre, last = first + item.up[i].length - 1;
      furthest = std::max(furthest, std::max(std::fabs(first), std::fabs(last)));
    }
    const double rounding = kUnitRoundoff * (8 * std::sqrt(variance) + 0.5 * leaves) +
                            2 * kUnitRoundoff * std::fabs(item.tilt) * furthest;
    // The rounding of log_mean itself, a few units of its size, is left out: callers grant it relative accuracy.
    const double of_mean = rounding + lost + 2 * amplified;
    *of_probabilities = of_mean;
    if (!messages) return of_mean;
    double probability = 0;
    const auto include = [&](double by_floor, double amplification, double message, double spread) {
      // Infinite amplification: the share of Z says nothing about a state of (almost) no probability.
      const double by_share = amplification < kInfinity ? amplification * amplified : amplified > 0 ? kInfinity : 0.0;
      const double error = by_floor + by_share;
      of_messages = std::max(of_messages, error);
      if (spread > 0) probability = std::max(probability, spread * error);
      if (std::fabs(message) < kInfinity) size = std::max(size, std::fabs(message));
    };
    for (const int32_t d : tree.loose())
      if (f.parent[d] >= 0)
        include(item.leaf_bound[d], item.leaf_amplification[d], item.messages[d],
                spread(item.nu[d] + item.messages[d]));
    for (int32_t i = 0; i < f.inner; i++) {
      const NodeNotes& note = item.notes[i];
      if (f.left[i] < 0) include(note.block_bound, note.block_amplification, note.block_message, 0.25);
    }
    const double rounded = 3 * rounding + 2 * kUnitRoundoff * (size + std::fabs(item.tilt));
    *of_probabilities = probability + 0.25 * rounded;
    return std::max(of_mean, of_messages + rounded);
  }

  void finish(bool downwards) {
    bool zero = false, lost = false;
    const double log_mean = root_log_mean(zero, lost);
    // A zero is the truth only if nothing on the way to it was lost, cut or transformed.
    if (zero && (!waves.empty() || !stars.empty())) lost = true;
    if (zero && item.use_fft)
      for (int32_t i = 0; i < tree.inner(); i++) lost |= item.notes[i].trimmed > 0 || item.notes[i].transform > 0;
    if (zero) return no_answer(lost ? kInfinity : 0.0);
    out.log_mean[model] = log_mean;
    for (const int32_t d : tree.free()) item.messages[d] = 0.0;
    if (item.log_beliefs) std::fill_n(item.log_beliefs, in.table_entries, -kInfinity);
    if (downwards) down();
    double of_probabilities;
    const double certified = bound(downwards, &of_probabilities);
    out.bound[model] = certified >= 0 ? certified : kInfinity;  // NaN: some share of Z was 0 / 0
    if (out.probability_bound)
      out.probability_bound[model] = certified < kInfinity && of_probabilities >= 0 ? of_probabilities : kInfinity;
  }
};

// The characteristic functions of all waves; false if one of them cannot serve.
bool prepare_waves(const Kernels& kernels, const BlockTree& carved, const double* nu, double tilt, bool cavities,
                   int threads, std::vector<WaveState>* prepared) {
  const std::vector<WaveBlock>& waves = carved.waves();
  std::vector<WaveState>& states = *prepared;
  states.resize(waves.size());
  std::atomic<bool> able{true};
  const int inside = waves.size() < (size_t)threads ? threads : 1;
  run_tasks(waves.size(), threads, [&](size_t w, int) {
    if (able && !prepare_wave(kernels, inside, waves[w], nu, tilt, cavities, &states[w])) able = false;
  });
  if (!able) states.clear();
  return able;
}

// The tree to work on: with waves where their characteristic functions can serve, with blocks where all counts are
// possible, or as it is.
const BlockTree* carve(const Kernels& kernels, TreePlan& plan, const double* nu, double tilt, bool cavities,
                         bool blocks, bool may_have_waves, int threads, std::vector<WaveState>* waves) {
  if (may_have_waves) {
    const BlockTree& carved = plan.carved(true, blocks);
    if (!carved.empty() && prepare_waves(kernels, carved, nu, tilt, cavities, threads, waves)) return &carved;
  }
  if (!blocks || plan.carved(false, true).empty()) return nullptr;
  return &plan.carved(false, true);
}

void solve_model(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, const TreeOutputs& out,
                 KernelName name, size_t model, ItemMemory& memory, WorkerMemory* workers, int threads) {
  const double* nu = in.nu + model * (size_t)plan.tree().leaves();
  const double* tables = in.tables_of(model);
  const double tilt = in.tilt ? in.tilt[model] : 0.0;
  std::vector<WaveState> waves;
  const BlockTree* carved = nullptr;
  const bool all_possible = all_counts_possible(plan.tree(), nu, tables);
  if (is_linear(name))
    carved = carve(kernels, plan, nu, tilt, in.cavities, all_possible, name == KernelName::waves && !out.log_beliefs,
                   threads, &waves);
  const CountTree& tree = carved ? carved->tree() : plan.tree();
  const TreeView view = tree.view();
  const size_t leaves = (size_t)view.leaves;

  TreeItem item = {};
  item.tree = &view;
  item.nu = nu;
  item.tables = tables;
  item.table_entries = (int64_t)in.table_entries;
  item.tilt = tilt;
  item.centre = in.centre ? in.centre[model] : 0.0;
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
  item.use_fft = name == KernelName::fft || name == KernelName::waves;

  Solver solver = {kernels, *kernels.tree, method_of(*kernels.tree, name), tree, carved, waves, in, out, name, model, item, {}, {}};
  std::vector<BlockCounts> counts;
  for (size_t w = 0; w < waves.size(); w++) counts.push_back({carved->waves()[w].node, possible_counts(waves[w])});
  find_supports(tree, nu, tables, all_possible, in.cavities, counts, memory.supports);
  if (!memory.supports.possible) return solver.no_answer(0.0);
  solver.item.support = memory.supports.support;
  solver.item.reach = memory.supports.reach;
  for (int t = 0; t < threads; t++) {
    workers[t].arena.reset();
    solver.workers.push_back(workers[t].worker((size_t)tree.largest() + 1));
  }
  solver.up();
  // The certificate of the fft method is made on the way down.
  solver.finish(out.messages || out.log_beliefs || item.use_fft);
}

// Small models of a batch go side by side in the lanes of a register.
bool suits_registers(const CountTree& tree, const TreeInputs& in, const TreeOutputs& out, KernelName name) {
  return name == KernelName::direct && in.batch > 1 && tree.leaves() <= kSmallModelMost && tree.inner() > 0 &&
         !in.tilt && out.messages && !out.log_beliefs;
}

}  // namespace

KernelName method_named(const std::string& name) {
  const char* names[] = {"direct", "fft", "waves", "wide"};
  for (int k = 0; k < 4; k++)
    if (name == names[k]) return (KernelName)k;
  throw std::invalid_argument("`method` must be direct, fft, waves or wide, not " + name);
}

void tree_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, const TreeOutputs& out, KernelName name,
               int threads) {
  threads = thread_count(threads);
  std::unique_ptr<PassMemory> memory = plan.take_memory();
  memory->require(threads);
  const auto item = [&](int t) -> ItemMemory& {
    if (!memory->items[t])
      memory->items[t] = std::make_unique<ItemMemory>((size_t)plan.tree().leaves(), (size_t)plan.tree().inner());
    return *memory->items[t];
  };
  const auto one = [&](size_t b, int t) {
    solve_model(kernels, plan, in, out, name, b, item(t), &memory->workers[t], 1);
  };
  if (suits_registers(plan.tree(), in, out, name)) {
    const TreeView view = plan.tree().view();
    const ptrdiff_t doubles = kernels.tree->small_scratch(view, false);
    over_registers(kernels, *memory, in.batch, doubles, threads, [&](size_t first, size_t count, double* scratch, int t) {
      SmallModels models = small_models(plan.tree(), in, first, count);
      for (size_t l = 0; l < count; l++) models.messages[l] = out.messages + (first + l) * (size_t)view.leaves;
      kernels.tree->small_messages(view, models, scratch, out.log_mean + first, out.bound + first);
      for (size_t b = first; b < first + count; b++) {
        if (out.probability_bound) out.probability_bound[b] = 0.25 * out.bound[b];
        if (out.bound[b] == kInfinity) one(b, t);
      }
    });
  } else if (in.batch == 1) {
    solve_model(kernels, plan, in, out, name, 0, item(0), memory->workers.data(), threads);
  } else {
    run_tasks(in.batch, threads, one);
  }
  plan.give_back(std::move(memory));
}

// Batches of small models on one tree, side by side in lanes: samples, counts at a root, probabilities of all counts.

// Calls run(models, first, count, scratch) for every register of models.
template <class Run>
static void over_models(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, int threads, const Run& run) {
  std::unique_ptr<PassMemory> memory = plan.take_memory();
  const ptrdiff_t doubles = kernels.tree->small_scratch(plan.tree().view(), false);
  over_registers(kernels, *memory, in.batch, doubles, thread_count(threads),
                 [&](size_t first, size_t count, double* scratch, int) {
    run(small_models(plan.tree(), in, first, count), first, count, scratch);
  });
  plan.give_back(std::move(memory));
}

SmallModels small_models(const CountTree& tree, const TreeInputs& in, size_t first, size_t count) {
  SmallModels models = {};
  models.count = (int)count;
  models.shared_tables = in.shared_tables;
  for (size_t l = 0; l < 8; l++) {
    const size_t b = l < count ? first + l : first;
    models.nu[l] = in.nu + b * (size_t)tree.leaves();
    models.tables[l] = in.tables_of(b);
  }
  return models;
}

void small_draw_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, const uint32_t* key, size_t samples,
                     uint8_t* out, double* lost, int threads) {
  const size_t leaves = (size_t)plan.tree().leaves();
  over_models(kernels, plan, in, threads, [&](const SmallModels& models, size_t first, size_t count, double* scratch) {
    SmallDraws draws = {key, {}, (ptrdiff_t)samples, (ptrdiff_t)(in.batch * leaves), {}};
    for (size_t l = 0; l < count; l++) {
      draws.model[l] = (uint32_t)(first + l);
      draws.out[l] = out ? out + (first + l) * leaves : nullptr;
    }
    kernels.tree->small_draws(plan.tree().view(), models, draws, scratch, lost + first);
  });
}

void small_belief_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, double* beliefs, double* bound,
                       int threads) {
  over_models(kernels, plan, in, threads, [&](SmallModels models, size_t first, size_t count, double* scratch) {
    for (size_t l = 0; l < count; l++) models.beliefs[l] = beliefs + (first + l) * in.table_entries;
    double log_mean[8];
    kernels.tree->small_messages(plan.tree().view(), models, scratch, log_mean, bound + first);
  });
}

void small_count_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, int32_t node, double* out,
                      bool* certain, int threads) {
  const TreeView view = plan.tree().view();
  over_models(kernels, plan, in, threads, [&](const SmallModels& models, size_t first, size_t count, double* scratch) {
    double* rows[8] = {};
    for (size_t l = 0; l < count; l++) rows[l] = out + (first + l) * ((size_t)view.size[node] + 1);
    kernels.tree->small_counts(view, models, node, scratch, rows, certain + first);
  });
}

}  // namespace tallytree
