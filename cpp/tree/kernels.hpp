// The tree kernels of one level, as a table of plain functions.
#pragma once
#include "base/kernels.hpp"
#include "tree/types.hpp"

namespace tallytree {

// "waves" is "fft" with the loose variables of every group solved by their characteristic function where that works.
enum class KernelName { direct, fft, waves, tiled, wide };

template <class Item>
using NodeKernel = void (*)(Item& item, Worker& worker, int32_t node);

struct TreeKernels {
  // Messages of the variables that are not inside a block.
  void (*tree_leaves)(const TreeItem& item, const int32_t* variables, ptrdiff_t count);
  // For the linear method.
  void (*block_up)(TreeItem& item, Worker& worker, const BlockGroup& group);
  void (*block_down)(TreeItem& item, Worker& worker, const BlockGroup& group);
  void (*wave_up)(TreeItem& item, Worker& worker, int32_t node, const WaveMessage& wave);
  // g = f . down of the node, zero up to kPad entries beyond; also notes the error of its upward message.
  void (*wave_gradient)(TreeItem& item, Worker& worker, int32_t node, double* g);
  void (*child_shape)(const double* value, int32_t length, double sum, ChildShape* shape);
  double (*child_log_mgf)(const double* value, int32_t length, double sum, double s, int32_t centre);
  // Down values of a star's child, the sums over everything else; `error` is that of each.
  void (*star_child)(TreeItem& item, Worker& worker, int32_t star, int32_t child, const double* value, double error,
                     double down_limit, double lost);
  Interval (*star_domain)(const TreeItem& item, int32_t node);
  // Many small models side by side; a bound of infinity asks for another pass. The scratch memory, in doubles, is for any of
  // these.
  ptrdiff_t (*small_scratch)(const TreeView& tree, bool derivatives);
  void (*small_messages)(const TreeView& tree, const SmallModels& models, double* scratch, double* log_mean, double* bound);
  void (*small_tangents)(const TreeView& tree, const SmallModels& models, double* scratch, double* bound);
  // One configuration after the other. `lost` is the share of all weight that samples cannot reach because it underflowed;
  // infinite where nothing is certain.
  void (*small_draws)(const TreeView& tree, const SmallModels& models, const SmallDraws& draws, double* scratch,
                      double* lost);
  // log P(count) of the root `node`. Rows of `out` have as many entries as the node has counts; false where an entry may have
  // underflowed.
  void (*small_counts)(const TreeView& tree, const SmallModels& models, int32_t node, double* scratch, double* const* out,
                       bool* certain);
  // Passes over the inner nodes: `up` in ascending order of ids; `start_down` at the roots, then `down` in descending order.
  NodeKernel<TreeItem> linear_up, linear_start_down, linear_down, tiled_up, tiled_start_down, tiled_down;
  NodeKernel<TreeItem> wide_up, wide_start_down, wide_down;
  NodeKernel<TangentItem> tangent_up, tangent_start_down, tangent_down;
};

}  // namespace tallytree
