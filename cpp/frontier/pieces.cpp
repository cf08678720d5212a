// Sums over the transitions of a step, for a piece of the states that it leaves alone.
#include "frontier/step.hpp"

namespace tallytree::TT_LEVEL {

namespace {

void include(Extremes& seen, const double* x, ptrdiff_t n) {
  const double none = __builtin_inf();
  double largest = seen.largest, smallest = seen.smallest;
#pragma GCC ivdep
  for (ptrdiff_t i = 0; i < n; i++) {
    largest = x[i] > largest ? x[i] : largest;
    const double positive = x[i] > 0 ? x[i] : none;
    smallest = positive < smallest ? positive : smallest;
  }
  seen = {largest, smallest};
}

}  // namespace

static void sums(const int64_t* order, const int64_t* ends, const int64_t* begins, const double* weight, ptrdiff_t count,
                   const double* from, double* to, ptrdiff_t n, Extremes* seen) {
  for (ptrdiff_t t = 0; t < count;) {
    const int64_t end = ends[order[t]];
    double* __restrict x = to + end;
    const double *y = from + begins[order[t]], w = weight[order[t]];
    for (ptrdiff_t i = 0; i < n; i++) x[i] = w * y[i];
    for (t++; t < count && ends[order[t]] == end; t++) {
      const double *z = from + begins[order[t]], v = weight[order[t]];
      for (ptrdiff_t i = 0; i < n; i++) x[i] += v * z[i];
    }
    include(*seen, x, n);
  }
}

static void products(const int64_t* begins, const int64_t* ends, ptrdiff_t count, const double* up, const double* after,
                       ptrdiff_t n, double* sums) {
  for (ptrdiff_t t = 0; t < count; t++) {
    const double *x = up + begins[t], *y = after + ends[t];
    double part[8] = {};
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8)
      for (int j = 0; j < 8; j++) part[j] += x[i + j] * y[i + j];
    double sum = 0;
    for (; i < n; i++) sum += x[i] * y[i];
    for (int j = 0; j < 8; j++) sum += part[j];
    sums[t] += sum;
  }
}

extern const FrontierKernels frontier_kernels;
const FrontierKernels frontier_kernels = {sums, products};

}  // namespace tallytree::TT_LEVEL
