// Consecutive steps of an elimination, done together: states of the frontier of counts before and after some variables
// are read.
//
// The steps touch a few axes of the frontier, whose states are the local ones; their moves from one local state to
// another hold for every state of the rest. A piece of the rest goes through all steps while it is in the cache.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tallytree {

struct Extremes {
  double largest, smallest;  // of the positive numbers
};

// Moves begin -> end of one step in the order of their ends; every local state is the end of at least one, of weight zero
// if nothing leads there. Moves of one kind share their weight.
struct Moves {
  const int64_t *begin, *end, *kind;
  ptrdiff_t count;
};

// The kernels of a step, one table per instruction-set level. Local state s of a piece is n numbers at s * stride.
struct FrontierKernels {
  // to[b] = sum of weight * from[a] over the moves a -> b; or the maximum of weight + from[a].
  void (*sums)(const Moves& moves, const double* weight, const double* from, double* to, ptrdiff_t stride, ptrdiff_t n);
  void (*maxima)(const Moves& moves, const double* weight, const double* from, double* to, ptrdiff_t stride, ptrdiff_t n);
  // sums[kind] += up[a] * after[b] for every move a -> b.
  void (*products)(const Moves& moves, const double* up, const double* after, ptrdiff_t stride, ptrdiff_t n, double* sums);
  void (*extremes)(const double* x, ptrdiff_t n, Extremes* seen);
};

struct Run {
  ptrdiff_t size, stride_before, stride_after;
};

struct Steps {
  std::vector<Run> rest;                    // runs of axes that the steps leave alone
  const int64_t *before, *after;            // places of the local states before the first step and after the last one
  std::vector<ptrdiff_t> states;            // numbers of local states: before the first step, after it, ...
  std::vector<Moves> forward, backward;     // of each step; the second ones lead from ends to beginnings
  const double* weight;                     // of each kind
  ptrdiff_t kinds;
};

// The frontier after the steps from `before` times 2^exponent; with `maxima` numbers are logarithms.
Extremes steps_forward(const FrontierKernels& k, const Steps& steps, bool maxima, const double* before, int exponent,
                       double* after, int threads);

// The derivatives in the frontier before the steps, from those in the one after them times 2^down_exponent, and for every
// kind of moves the sum of up[a] * after[b] over the rest, with up times 2^up_exponent.
Extremes steps_backward(const FrontierKernels& k, const Steps& steps, const double* up, int up_exponent,
                        const double* after, int down_exponent, double* before, double* sums, int threads);

}  // namespace tallytree
