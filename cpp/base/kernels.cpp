// Kernels on plain arrays, and the table of all kernels of this level.
#include "base/kernels.hpp"

#include "base/deviation.hpp"

#define TT_STRING2(x) #x
#define TT_STRING(x) TT_STRING2(x)

namespace tallytree::TT_LEVEL {

// Copies that look at the numbers as they pass: a second reading would cost as much as the first.
void copy_and_scan(const double* from, ptrdiff_t n, double* to, double* smallest, double* largest) {
  const double inf = __builtin_inf();
  vec low = splat(inf), high = splat(-inf);
  ivec nan = {};
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    const vec x = load_up_to(from + i, n - i, from[i]);
    nan |= x != x;
    low = x < low ? x : low;
    high = x > high ? x : high;
    store_up_to(to + i, x, n - i);
  }
  *smallest = inf;
  *largest = -inf;
  for (int l = 0; l < kLanes; l++) {
    if (nan[l]) {
      *smallest = *largest = __builtin_nan("");
      return;
    }
    if (low[l] < *smallest) *smallest = low[l];
    if (high[l] > *largest) *largest = high[l];
  }
}

constexpr int kOutputVectors = 4;  // at a time

// (max, +) convolution, the definition in O(m width): a block of outputs stays in registers while the shorter side goes
// by. Nothing much faster is known for arbitrary sequences. out[t] = max_{i < m} a[i] + c[m - 1 - i + t] for t < width.
void max_plus(const double* a, ptrdiff_t m, const double* c, ptrdiff_t width, double* out) {
  ptrdiff_t t = 0;
  for (; t + kOutputVectors * kLanes <= width; t += kOutputVectors * kLanes) {
    vec best[kOutputVectors];
    for (int j = 0; j < kOutputVectors; j++) best[j] = splat(-__builtin_inf());
    for (ptrdiff_t i = 0; i < m; i++) {
      const double* from = c + m - 1 - i + t;
      const vec x = splat(a[i]);
      for (int j = 0; j < kOutputVectors; j++) best[j] = max(best[j], x + load(from + j * kLanes));
    }
    for (int j = 0; j < kOutputVectors; j++) store(out + t + j * kLanes, best[j]);
  }
  for (; t < width; t++) {
    double best = -__builtin_inf();
    for (ptrdiff_t i = 0; i < m; i++) best = max(a[i] + c[m - 1 - i + t], best);
    out[t] = best;
  }
}

// 1 / (1 + e^-(nu + message)); an infinite nu decides by itself.
void posterior_marginals(const double* nu, const double* message, ptrdiff_t n, double* out) {
  const double inf = __builtin_inf();
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    const vec x = load_up_to(nu + i, n - i, 0.0), m = load_up_to(message + i, n - i, 0.0);
    const vec t = abs(x) == inf ? x : x + m, e = exp(-abs(t)), p = (t < 0.0 ? e : splat(1.0)) / (1.0 + e);
    store_up_to(out + i, p, n - i);
  }
}

extern const FlatKernels flat_kernels;
extern const TreeKernels tree_kernels;
extern const ClusterKernels cluster_kernels;
extern const SampleKernels sample_kernels;
extern const FrontierKernels frontier_kernels;
#ifdef TT_TEST_HOOKS
extern const HookKernels hook_kernels;
constexpr const HookKernels* hooks = &hook_kernels;
#else
constexpr const HookKernels* hooks = nullptr;
#endif

extern const Kernels kernels;
const Kernels kernels = {
    TT_STRING(TT_LEVEL), TT_LANES, copy_and_scan, posterior_marginals, max_plus, &flat_kernels,
    &tree_kernels, &cluster_kernels, &sample_kernels, &frontier_kernels,
    hooks,
};

}  // namespace tallytree::TT_LEVEL
