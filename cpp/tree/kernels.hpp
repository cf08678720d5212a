// The tree kernels of one level, as a table of plain functions.
#pragma once
#include "tree/types.hpp"

namespace tallytree {

// "waves" is "fft" with the loose variables of every group solved by their characteristic function where that works.
enum class KernelName { direct, fft, waves, tiled, wide };

// Passes over the inner nodes: `up` in ascending order of ids; `start_down` at the roots, then `down` in descending order.
struct TreeMethod {
  void (*up)(TreeItem& item, Worker& worker, int32_t node);
  void (*start_down)(TreeItem& item, Worker& worker, int32_t root);
  void (*down)(TreeItem& item, Worker& worker, int32_t node);
};

struct TreeKernels {
  void (*leaves)(const TreeItem& item, const int32_t* variables, ptrdiff_t count);
  void (*block_up)(TreeItem& item, Worker& worker, const BlockGroup& group);  // for the linear method
  void (*block_down)(TreeItem& item, Worker& worker, const BlockGroup& group);
  void (*wave_up)(TreeItem& item, Worker& worker, int32_t node, const WaveMessage& wave);
  // g = f . down of the node, zero up to kPad entries beyond; also notes the error of its upward message.
  void (*wave_gradient)(TreeItem& item, Worker& worker, int32_t node, double* g);
  void (*child_shape)(const double* value, int32_t length, double sum, ChildShape* shape);
  double (*child_log_mgf)(const double* value, int32_t length, double sum, double s, int32_t centre);
  // Down values of a star's child, the sums over everything else; `error` is that of each.
  void (*star_child)(TreeItem& item, Worker& worker, int32_t star, int32_t child, const double* value, double error,
                     double down_limit, double lost);
  Interval (*down_domain)(const TreeItem& item, int32_t node);
  // Many small models at once: lane_models.cpp. A bound of infinity asks for another pass.
  ptrdiff_t (*lane_models_scratch)(const TreeView& tree);  // doubles
  void (*lane_models)(const TreeView& tree, const LaneModels& models, double* scratch, double* log_mean,
                      double* bound);
  // One configuration after the other of many small models: lane_draws.cpp. `lost` is the share of all weight that
  // samples cannot reach because it underflowed; infinite where nothing is certain.
  ptrdiff_t (*lane_draws_scratch)(const TreeView& tree);  // doubles
  void (*lane_draws)(const TreeView& tree, const LaneModels& models, const LaneDraws& draws, double* scratch,
                     double* lost);
  // log P(count) of the root `node` of many small models: lane_counts.cpp. Rows of `out` have as many entries as the
  // node has counts; false where an entry may have underflowed.
  ptrdiff_t (*lane_counts_scratch)(const TreeView& tree);  // doubles
  void (*lane_counts)(const TreeView& tree, const LaneModels& models, int32_t node, double* scratch, double* const* out,
                      bool* certain);
  TreeMethod linear, tiled, wide;
};

}  // namespace tallytree
