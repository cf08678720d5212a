// The tree kernels of this level.
#include "convolve.hpp"
#include "tree_kernels.hpp"

namespace tallytree::TT_LEVEL {

void tree_leaves(const TreeItem& item, ptrdiff_t begin, ptrdiff_t end);
void linear_up(TreeItem&, Worker&, const int32_t*, ptrdiff_t);
void linear_start_down(TreeItem&, Worker&, int32_t);
void linear_down(TreeItem&, Worker&, const int32_t*, ptrdiff_t);
void wide_up(TreeItem&, Worker&, const int32_t*, ptrdiff_t);
void wide_start_down(TreeItem&, Worker&, int32_t);
void wide_down(TreeItem&, Worker&, const int32_t*, ptrdiff_t);

static void convolve(const double* a, int na, const double* b, int nb, double* out, double* scratch) {
  convolve_direct(a, na, b, nb, out, scratch);
}
static void correlate(const double* g, const double* u, int nu, double* out, int count) {
  correlate_direct(g, u, nu, out, count);
}

extern const TreeKernels tree_kernels;
const TreeKernels tree_kernels = {
    tree_leaves,
    {linear_up, linear_start_down, linear_down},
    {wide_up, wide_start_down, wide_down},
    {wide_up, wide_start_down, wide_down},
    convolve,
    correlate,
};

}  // namespace tallytree::TT_LEVEL
