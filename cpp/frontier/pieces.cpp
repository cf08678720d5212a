// One step of an elimination on a piece of the states that it leaves alone.
#include "frontier/step.hpp"

namespace tallytree::TT_LEVEL {

namespace {

struct SumProduct {
  static double plus(double a, double b) { return a + b; }
  static double times(double a, double b) { return a * b; }
};

struct MaxSum {
  static double plus(double a, double b) { return a > b ? a : b; }
  static double times(double a, double b) { return a + b; }
};

template <class A>
void apply(const Moves& m, const double* weight, const double* from, double* to, ptrdiff_t stride, ptrdiff_t n) {
  for (ptrdiff_t t = 0; t < m.count;) {
    const int64_t end = m.end[t];
    double* __restrict x = to + end * stride;
    const double *y = from + m.begin[t] * stride, v = weight[m.kind[t]];
    if (++t < m.count && m.end[t] == end) {
      const double *z = from + m.begin[t] * stride, w = weight[m.kind[t]];
#pragma GCC ivdep
      for (ptrdiff_t i = 0; i < n; i++) x[i] = A::plus(A::times(v, y[i]), A::times(w, z[i]));
      t++;
    } else {
#pragma GCC ivdep
      for (ptrdiff_t i = 0; i < n; i++) x[i] = A::times(v, y[i]);
    }
    for (; t < m.count && m.end[t] == end; t++) {
      const double *z = from + m.begin[t] * stride, w = weight[m.kind[t]];
#pragma GCC ivdep
      for (ptrdiff_t i = 0; i < n; i++) x[i] = A::plus(x[i], A::times(w, z[i]));
    }
  }
}

}  // namespace

static void products(const Moves& m, const double* up, const double* after, ptrdiff_t stride, ptrdiff_t n, double* sums) {
  for (ptrdiff_t t = 0; t < m.count; t++) {
    const double *x = up + m.begin[t] * stride, *y = after + m.end[t] * stride;
    double part[8] = {};
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8)
      for (int j = 0; j < 8; j++) part[j] += x[i + j] * y[i + j];
    double sum = 0;
    for (; i < n; i++) sum += x[i] * y[i];
    for (int j = 0; j < 8; j++) sum += part[j];
    sums[m.kind[t]] += sum;
  }
}

static void extremes(const double* x, ptrdiff_t n, Extremes* seen) {
  const double none = __builtin_inf();
  double largest = seen->largest, smallest = seen->smallest;
#pragma GCC ivdep
  for (ptrdiff_t i = 0; i < n; i++) {
    largest = x[i] > largest ? x[i] : largest;
    const double positive = x[i] > 0 ? x[i] : none;
    smallest = positive < smallest ? positive : smallest;
  }
  *seen = {largest, smallest};
}

extern const FrontierKernels frontier_kernels;
const FrontierKernels frontier_kernels = {apply<SumProduct>, apply<MaxSum>, products, extremes};

}  // namespace tallytree::TT_LEVEL
