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

constexpr double kSmall = 1.0 / 1024;  // five terms of the series are right to 1e-15

// log(1 + e^x) = max(x, 0) + log(1 + e), e = e^-|x|. The factors 1 + e lie in (1, 2], so 512 of them multiply without
// overflow before a logarithm is due. Where e is small, 1 + e would lose most of it: a few terms of the series instead.
double softplus_sum(const double* x, ptrdiff_t n) {
  const double inf = __builtin_inf();
  double total = 0;
  for (ptrdiff_t block = 0; block < n; block += 512 * kLanes) {
    const ptrdiff_t end = n < block + 512 * kLanes ? n : block + 512 * kLanes;
    vec positive = vec{}, product = splat(1.0), small = vec{};
    for (ptrdiff_t i = block; i < end; i += kLanes) {
      vec t = load_up_to(x + i, end - i, -inf);
      positive += ((t > 0.0) & (t < inf)) ? t : vec{};
      const vec e = exp(-abs(t)), s = e < kSmall ? e : vec{};
      product *= 1.0 + (e < kSmall ? vec{} : e);
      small += s * (1.0 - s * (1.0 / 2 - s * (1.0 / 3 - s * (1.0 / 4 - s * (1.0 / 5)))));
    }
    for (int j = 0; j < kLanes; j++) total += positive[j] + (real::log(product[j]) + small[j]);
  }
  return total;
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
    TT_STRING(TT_LEVEL), TT_LANES, softplus_sum, copy_and_scan, posterior_marginals, max_plus, &flat_kernels,
    &tree_kernels, &cluster_kernels, &sample_kernels, &frontier_kernels,
    hooks,
};

}  // namespace tallytree::TT_LEVEL
