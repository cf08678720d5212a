// Kernels that only the tests call by themselves.
#pragma once
#include "tree/kernels.hpp"

namespace tallytree {

struct HookKernels {
  void (*convolve)(KernelName kernel, const double* a, int na, const double* b, int nb, double* out, Worker& worker,
                   PlanCache* plans);
  void (*correlate)(KernelName kernel, const double* g, int ng, const double* u, int nu, double* out, Worker& worker,
                    PlanCache* plans);
};

}  // namespace tallytree
