// Batches of small models on one tree that need the way up in lanes only: samples, and counts at a root.
#pragma once
#include "tree/pass.hpp"

namespace tallytree {

// The models first .. first + count - 1 of a batch, without messages; lanes beyond repeat the first.
LaneModels lanes_of(const CountTree& tree, const TreeInputs& in, size_t first, size_t count);

// Samples (samples, batch, leaves), or none where `out` is null, under a key of 128 bits. `lost` (batch,) is the share of
// the weight that underflowed; a model for which it is infinite has no samples here.
void lane_draw_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, const uint32_t* key, size_t samples,
                    uint8_t* out, double* lost, int threads);

// log P(count) of the root `node`, (batch, counts of the node); `certain` (batch,) says which rows are right.
void lane_count_pass(const Kernels& kernels, TreePlan& plan, const TreeInputs& in, int32_t node, double* out,
                     bool* certain, int threads);

}  // namespace tallytree
