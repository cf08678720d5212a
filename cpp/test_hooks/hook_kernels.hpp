// Kernels that only the tests call by themselves.
#pragma once
#include "tree/kernels.hpp"

namespace tallytree {

using HookKernel = void (*)(KernelName kernel, const double* a, int na, const double* b, int nb, double* out, Worker& worker,
                            PlanCache* plans);
struct HookKernels {
  HookKernel convolve, correlate;
};

}  // namespace tallytree
