// The tree kernels of this level.
#include "tree/kernels.hpp"
#include "tree/tangent_kernels.hpp"

namespace tallytree::TT_LEVEL {

void tree_leaves(const TreeItem&, const int32_t*, ptrdiff_t);
void block_up(TreeItem&, Worker&, const BlockGroup&);
void block_down(TreeItem&, Worker&, const BlockGroup&);
void wave_up(TreeItem&, Worker&, int32_t, const WaveMessage&);
void wave_gradient(TreeItem&, Worker&, int32_t, double*);
void child_shape(const double*, int32_t, double, ChildShape*);
double child_log_mgf(const double*, int32_t, double, double, int32_t);
void star_child(TreeItem&, Worker&, int32_t, int32_t, const double*, double, double, double);
Interval star_domain(const TreeItem&, int32_t);
ptrdiff_t lane_models_scratch(const TreeView&);
void lane_models(const TreeView&, const LaneModels&, double*, double*, double*);
ptrdiff_t lane_draws_scratch(const TreeView&);
void lane_draws(const TreeView&, const LaneModels&, const LaneDraws&, double*, double*);
ptrdiff_t lane_counts_scratch(const TreeView&);
void lane_counts(const TreeView&, const LaneModels&, int32_t, double*, double* const*, bool*);
void linear_up(TreeItem&, Worker&, int32_t);
void linear_start_down(TreeItem&, Worker&, int32_t);
void linear_down(TreeItem&, Worker&, int32_t);
void tiled_up(TreeItem&, Worker&, int32_t);
void tiled_start_down(TreeItem&, Worker&, int32_t);
void tiled_down(TreeItem&, Worker&, int32_t);
void wide_up(TreeItem&, Worker&, int32_t);
void wide_start_down(TreeItem&, Worker&, int32_t);
void wide_down(TreeItem&, Worker&, int32_t);

extern const TreeKernels tree_kernels;
const TreeKernels tree_kernels = {
    tree_leaves,
    block_up,
    block_down,
    wave_up,
    wave_gradient,
    child_shape,
    child_log_mgf,
    star_child,
    star_domain,
    lane_models_scratch,
    lane_models,
    lane_draws_scratch,
    lane_draws,
    lane_counts_scratch,
    lane_counts,
    {linear_up, linear_start_down, linear_down},
    {tiled_up, tiled_start_down, tiled_down},
    {wide_up, wide_start_down, wide_down},
};

ptrdiff_t lane_models_tangent_scratch(const TreeView&);
void lane_models_tangent(const TreeView&, const LaneTangents&, double*, double*);
void tree_tangent_up(TangentItem&, Worker&, int32_t);
void tree_tangent_start_down(TangentItem&, Worker&, int32_t);
void tree_tangent_down(TangentItem&, Worker&, int32_t);

extern const TreeTangentKernels tree_tangent_kernels;
const TreeTangentKernels tree_tangent_kernels = {
    lane_models_tangent_scratch, lane_models_tangent, tree_tangent_up, tree_tangent_start_down, tree_tangent_down,
};

}  // namespace tallytree::TT_LEVEL
