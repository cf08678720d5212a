// The derivative kernels of flat models of this level.
#include "flat/tangent_kernels.hpp"

namespace tallytree::TT_LEVEL {

ptrdiff_t tangent_direct_scratch(ptrdiff_t);
void tangent_direct(const DirectTangent&, ptrdiff_t, double*, DirectTotals*);
void weighted_sums(const double*, const double*, ptrdiff_t, double, int, WeightedSums*);
ptrdiff_t weighted_powers(const double*, const double*, ptrdiff_t, double, WeightedPowers*, double*, double*);
void tangent_node(const WavesView&, double, double, NodeSums*);
void tangent_apply(const double*, ptrdiff_t, const double*, ptrdiff_t, const TangentView&, double*, ptrdiff_t);
void tangent_apply_plain(const double*, ptrdiff_t, const double*, ptrdiff_t, const TangentPieceView&, int,
                         double*, ptrdiff_t);

extern const FlatTangentKernels flat_tangent_kernels;
const FlatTangentKernels flat_tangent_kernels = {
    tangent_direct_scratch, tangent_direct, weighted_sums, weighted_powers, tangent_node, tangent_apply, tangent_apply_plain,
};

}  // namespace tallytree::TT_LEVEL
