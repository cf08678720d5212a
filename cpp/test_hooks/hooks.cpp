// Convolution and correlation of plain vectors by each kernel, so that the tests can call them one by one.
#include "base/fft_merge.hpp"
#include "test_hooks/hook_kernels.hpp"
#include "tree/linear.hpp"
#include "base/wide.hpp"

namespace tallytree::TT_LEVEL {

struct WideVector {
  double *value, *exponent;
};

static WideVector to_wide(Worker& worker, const double* x, int n) {
  WideVector w = {arena_take(worker.arena, (size_t)(n + 2 * kPad)), arena_take(worker.arena, (size_t)(n + 2 * kPad))};
  fill(w.value, n + 2 * kPad, 0.0);
  fill(w.exponent, n + 2 * kPad, kZeroExponent);
  for (int j = 0; j < n; j += kLanes)
    store_wide(load_part(x + j, min(n - j, kLanes), 0.0), vec{}, w.value + j, w.exponent + j);
  return w;
}

static void from_wide(const WideVector& w, int n, double* out) {
  for (int j = 0; j < n; j++) out[j] = real::ldexp(w.value[j], (int)max(w.exponent[j], -3000.0));
}

static void convolve_by(KernelName kernel, const double* a, int na, const double* b, int nb, double* out, Worker& worker,
                 PlanCache* plans) {
  const int count = na + nb - 1;
  double* c = scratch_part(worker, 0);
  if (kernel == KernelName::direct) {
    convolve_direct(a, na, b, nb, c, scratch_part(worker, 1));
  } else if (kernel == KernelName::fft) {
    const int N = merge_length(na, nb);
    double *sa = arena_take(worker.arena, (size_t)N), *sb = arena_take(worker.arena, (size_t)N);
    convolve_fft(a, na, b, nb, c, sa, sb, scratch_part(worker, 1), *fft_plan(plans, N, kLanes));
  } else {
    const WideVector x = to_wide(worker, a, na), y = to_wide(worker, b, nb);
    double *value = scratch_part(worker, 0), *exponent = scratch_part(worker, 1);
    convolve_wide({x.value, x.exponent, na}, {y.value, y.exponent, nb}, 0, count, value, exponent,
                  scratch_part(worker, 2));
    return from_wide({value, exponent}, count, out);
  }
  std::memcpy(out, c, sizeof(double) * (size_t)count);
}

// out[k] = sum_j g[k+j] u[j], k < ng - nu + 1.
static void correlate_by(KernelName kernel, const double* g, int ng, const double* u, int nu, double* out, Worker& worker,
                  PlanCache* plans) {
  const int n = ng - nu + 1;
  double *padded = scratch_part(worker, 0), *c = scratch_part(worker, 1);
  std::memcpy(padded, g, sizeof(double) * (size_t)ng);
  fill(padded + ng, kPad, 0.0);
  if (kernel == KernelName::direct) {
    correlate_direct(padded, u, nu, c, n);
  } else if (kernel == KernelName::fft) {
    const int N = merge_length(n, nu);
    const FftPlan& plan = *fft_plan(plans, N, kLanes);
    double *sg = arena_take(worker.arena, (size_t)N), *su = arena_take(worker.arena, (size_t)N);
    padded_spectrum(u, nu, su, c, plan);
    correlate_fft_prepare(g, ng, sg, c, plan);
    correlate_fft(sg, su, g, u, nu, n, c, scratch_part(worker, 2), plan);
  } else {
    const WideVector x = to_wide(worker, g, ng), y = to_wide(worker, u, nu);
    double* exponent = scratch_part(worker, 2);
    correlate_wide(x.value, x.exponent, {y.value, y.exponent, nu}, c, exponent, n, scratch_part(worker, 3));
    return from_wide({c, exponent}, n, out);
  }
  std::memcpy(out, c, sizeof(double) * (size_t)n);
}

extern const HookKernels hook_kernels;
const HookKernels hook_kernels = {convolve_by, correlate_by};

}  // namespace tallytree::TT_LEVEL
