// Batches of small models on one tree, side by side in lanes: samples, counts at a root, probabilities of all counts.
#pragma once
#include "base/parallel.hpp"
#include "tree/pass.hpp"

namespace tallytree {

// The models first .. first + count - 1 of a batch, without messages; lanes beyond repeat the first.
LaneModels lanes_of(const CountTree& tree, const TreeInputs& in, size_t first, size_t count);

// Calls run(first, count, scratch, thread) for every register of models of a batch.
template <class Run>
void over_lanes(const Kernels& kernels, PassMemory& memory, size_t batch, ptrdiff_t doubles, int threads, const Run& run) {
  memory.require_lanes(threads, (size_t)doubles);
  const size_t lanes = (size_t)kernels.lanes;
  run_tasks((batch + lanes - 1) / lanes, threads, [&](size_t k, int t) {
    run(k * lanes, std::min(lanes, batch - k * lanes), memory.lane_scratch(t, memory.lane_doubles), t);
  });
}

// Samples (samples, batch, leaves), or none where `out` is null, under a key of 128 bits. `lost` (batch,) is the share
// of the weight that underflowed; a model for which it is infinite has no samples here.
void lane_draw_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, const uint32_t* key, size_t samples,
                    uint8_t* out, double* lost, int threads);

// P(count) of every node with a table, packed like the tables, (batch, table_entries); a bound of infinity: not known.
void lane_belief_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, double* beliefs, double* bound,
                      int threads);

// log P(count) of the root `node`, (batch, counts of the node); `certain` (batch,) says which rows are right.
void lane_count_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, int32_t node, double* out,
                     bool* certain, int threads);

}  // namespace tallytree
