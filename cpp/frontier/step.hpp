// One step of an elimination: states of the frontier of counts before and after a variable is read.
//
// The step touches a few axes of the frontier. Its transitions join a state of these axes to another and hold for every
// state of the rest: runs of axes between the touched ones, the last of which is contiguous before and after.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tallytree {

struct Extremes {
  double largest, smallest;  // of the positive numbers
};

// The kernels of a step, one table per instruction-set level.
struct FrontierKernels {
  // to[b] = sum of weight * from[a] over the transitions a -> b, which come in the order of their ends.
  void (*sums)(const int64_t* order, const int64_t* ends, const int64_t* begins, const double* weight, ptrdiff_t count,
               const double* from, double* to, ptrdiff_t n, Extremes* seen);
  // sums[t] += sum of up[a] * after[b] for every transition a -> b.
  void (*products)(const int64_t* begins, const int64_t* ends, ptrdiff_t count, const double* up, const double* after,
                   ptrdiff_t n, double* sums);
};

struct Run {
  ptrdiff_t size, stride_before, stride_after;
};

struct Transitions {
  // Offsets of the touched states before and after, and weights. `by_after` and `by_before` list them in the order of
  // these offsets; every touched state has at least one, of weight 0 if nothing leads there.
  const int64_t *before, *after;
  const double* weight;
  const int64_t *by_after, *by_before;
  ptrdiff_t count;
};

// after[b] = sum of weight * before[a] over the transitions a -> b.
Extremes step_forward(const FrontierKernels& k, const std::vector<Run>& rest, const Transitions& t, const double* before,
                      double* after, int threads);

// before[a] = sum of weight * after[b], and for every transition the sum of up[a] * after[b] over the rest.
Extremes step_backward(const FrontierKernels& k, const std::vector<Run>& rest, const Transitions& t, const double* up,
                       const double* after, double* before, double* sums, int threads);

}  // namespace tallytree
