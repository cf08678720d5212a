#include "tree/lane_batches.hpp"

namespace tallytree {

namespace {

// The same with memory of the plan.
template <class Run>
void over_plan(const Kernels& kernels, TreePlan& plan, size_t batch, ptrdiff_t doubles, int threads, const Run& run) {
  std::unique_ptr<PassMemory> memory = plan.take_memory();
  over_lanes(kernels, *memory, batch, doubles, thread_count(threads), run);
  plan.give_back(std::move(memory));
}

}  // namespace

LaneModels lanes_of(const CountTree& tree, const TreeInputs& in, size_t first, size_t count) {
  LaneModels models = {(int)count, in.shared_tables, {}, {}, {}, {}};
  for (size_t l = 0; l < 8; l++) {
    const size_t b = l < count ? first + l : first;
    models.nu[l] = in.nu + b * (size_t)tree.leaves();
    models.tables[l] = in.tables + (in.shared_tables ? 0 : b * in.table_entries);
  }
  return models;
}

void lane_draw_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, const uint32_t* key, size_t samples,
                    uint8_t* out, double* lost, int threads) {
  const CountTree& tree = plan.tree();
  const TreeView view = tree.view();
  const size_t leaves = (size_t)tree.leaves();
  over_plan(kernels, plan, in.batch, kernels.tree->lane_draws_scratch(view), threads,
             [&](size_t first, size_t count, double* scratch, int) {
    LaneDraws draws = {key, {}, (ptrdiff_t)samples, (ptrdiff_t)(in.batch * leaves), {}};
    for (size_t l = 0; l < count; l++) {
      draws.model[l] = (uint32_t)(first + l);
      draws.out[l] = out ? out + (first + l) * leaves : nullptr;
    }
    kernels.tree->lane_draws(view, lanes_of(tree, in, first, count), draws, scratch, lost + first);
  });
}

void lane_belief_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, double* beliefs, double* bound,
                      int threads) {
  const CountTree& tree = plan.tree();
  const TreeView view = tree.view();
  over_plan(kernels, plan, in.batch, kernels.tree->lane_models_scratch(view), threads,
             [&](size_t first, size_t count, double* scratch, int) {
    LaneModels models = lanes_of(tree, in, first, count);
    for (size_t l = 0; l < count; l++) models.beliefs[l] = beliefs + (first + l) * in.table_entries;
    double log_mean[8];
    kernels.tree->lane_models(view, models, scratch, log_mean, bound + first);
  });
}

void lane_count_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, int32_t node, double* out,
                     bool* certain, int threads) {
  const CountTree& tree = plan.tree();
  const TreeView view = tree.view();
  const size_t counts = (size_t)view.size[node] + 1;
  over_plan(kernels, plan, in.batch, kernels.tree->lane_counts_scratch(view), threads,
             [&](size_t first, size_t count, double* scratch, int) {
    double* rows[8] = {};
    for (size_t l = 0; l < count; l++) rows[l] = out + (first + l) * counts;
    kernels.tree->lane_counts(view, lanes_of(tree, in, first, count), node, scratch, rows, certain + first);
  });
}

}  // namespace tallytree
