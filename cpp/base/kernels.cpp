// The kernel table of this level.
#include "base/kernels.hpp"

#define TT_STRING2(x) #x
#define TT_STRING(x) TT_STRING2(x)

namespace tallytree::TT_LEVEL {

void copy_and_scan(const double*, ptrdiff_t, double*, double*, double*);
void max_plus(const double*, ptrdiff_t, const double*, ptrdiff_t, double*);
void posterior_marginals(const double*, const double*, ptrdiff_t, double*);
double softplus_sum(const double* x, ptrdiff_t n);
extern const TreeKernels tree_kernels;
extern const ClusterKernels cluster_kernels;
extern const SampleKernels sample_kernels;
#ifdef TT_TEST_HOOKS
extern const HookKernels hook_kernels;
#endif
extern const TreeTangentKernels tree_tangent_kernels;
extern const EdgeTangentKernels edge_tangent_kernels;

extern const FlatKernels flat_kernels;
extern const Kernels kernels;
const Kernels kernels = {
    TT_STRING(TT_LEVEL),
    TT_LANES,
    softplus_sum,
    copy_and_scan,
    posterior_marginals,
    &flat_kernels,
    &tree_kernels,
    &cluster_kernels,
    &sample_kernels,
#ifdef TT_TEST_HOOKS
    &hook_kernels,
#else
    nullptr,
#endif
    &tree_tangent_kernels,
    &edge_tangent_kernels,
    max_plus,
};

}  // namespace tallytree::TT_LEVEL
