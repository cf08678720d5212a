// The table of derivative kernels of this level.
#include "base/tangent_kernels.hpp"
#include "tree/tangent_kernels.hpp"

namespace tallytree::TT_LEVEL {

ptrdiff_t tangent_direct_scratch(ptrdiff_t);
void tangent_direct(const DirectTangent&, ptrdiff_t, double*, DirectTotals*);
void weighted_sums(const double*, const double*, ptrdiff_t, double, int, WeightedSums*);
ptrdiff_t weighted_powers(const double*, const double*, ptrdiff_t, double, WeightedPowers*, double*, double*);
void tangent_node(const WavesView&, double, double, NodeSums*);
void tangent_apply(const double*, ptrdiff_t, const double*, ptrdiff_t, const TangentView&, double*, ptrdiff_t);
void tangent_apply_plain(const double*, ptrdiff_t, const double*, ptrdiff_t, const TangentPieceView&, int,
                         double*, ptrdiff_t);

ptrdiff_t lane_models_tangent_scratch(const TreeView&);
void lane_models_tangent(const TreeView&, const LaneTangents&, double*, double*);
void tree_tangent_up(TangentItem&, Worker&, const int32_t*, ptrdiff_t);
void tree_tangent_start_down(TangentItem&, Worker&, int32_t);
void tree_tangent_down(TangentItem&, Worker&, const int32_t*, ptrdiff_t);

static const TreeTangentKernels tree_tangent_kernels = {
    lane_models_tangent_scratch, lane_models_tangent, tree_tangent_up, tree_tangent_start_down, tree_tangent_down,
};

extern const EdgeTangentKernels edge_tangent_kernels;
extern const TangentKernels tangent_kernels;
const TangentKernels tangent_kernels = {
    tangent_direct_scratch, tangent_direct, weighted_sums, weighted_powers,
    tangent_node,           tangent_apply,  tangent_apply_plain, &tree_tangent_kernels,
    &edge_tangent_kernels,
};

}  // namespace tallytree::TT_LEVEL
