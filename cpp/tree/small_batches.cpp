// Batches of small models on one tree, side by side in lanes: samples, counts at a root, probabilities of all counts.
#include "tree/pass.hpp"

namespace tallytree {

namespace {

// Calls run(models, first, count, scratch) for every register of models.
template <class Run>
void over_models(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, int threads, const Run& run) {
  std::unique_ptr<PassMemory> memory = plan.take_memory();
  const ptrdiff_t doubles = kernels.tree->small_scratch(plan.tree().view(), false);
  over_registers(kernels, *memory, in.batch, doubles, thread_count(threads),
                 [&](size_t first, size_t count, double* scratch, int) {
    run(small_models(plan.tree(), in, first, count), first, count, scratch);
  });
  plan.give_back(std::move(memory));
}

}  // namespace

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
