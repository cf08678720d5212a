// Derivatives in a pairwise forest with one count.
#pragma once
#include <complex>
#include <vector>

#include "cluster/edge_tangent_kernels.hpp"
#include "cluster/forest_means.hpp"
#include "base/kernels.hpp"

namespace tallytree {

// One model and one direction. The count has `period` - 1 variables and frequencies 2 pi m / period, m < frequencies.
struct EdgeTangentInputs {
  RootedForest forest;
  int32_t edges;
  const int8_t* counted;                // (D,)
  const double *leaf, *tables, *slope;  // (D, 2), (edges, 2, 2), (D, 2): see EdgeTree
  int64_t period;
  ptrdiff_t frequencies;
  const std::complex<double>*f, *h;  // transforms of f and f h, (frequencies,), the two halves of the circle added up
  bool everything;                   // no frequency may be left out
};

// marginals and change (D,); worst (3,): how much relative errors of all terms are amplified in them, and the share of
// the weight that underflow may have taken; the characteristic function and its derivative, (frequencies,), zero where
// left out.
void edge_tangent(const Kernels& kernels, const EdgeTangentInputs& in, double* marginals, double* change,
                  double* worst, std::complex<double>* law, std::complex<double>* law_change);

// The largest share of a vertex's weight at frequency 0 that products below the smallest number may have lost.
double edge_underflow(const EdgeTree& tree);

}  // namespace tallytree
