// Rooted forests of pairs: marginals and best configurations without counts, derivatives with one count.
#pragma once
#include <complex>

#include "base/kernels.hpp"
#include "cluster/types.hpp"

namespace tallytree {

struct BeliefsOut {
  double* beliefs;  // (D, K), each sums to 1, or to 0 where everything underflowed
  // These may be null: log Z, log-messages to the vertices (D, K), log edge marginals (E, K, K).
  double *log_z, *messages, *log_edges;
};

// leaf (D, K) and edges (E, K, K) are plain numbers. False if a zero or an underflow may have spoilt the answer.
bool forest_means(const RootedForest& forest, const double* leaf, const double* edges, const BeliefsOut& out);

// The same model with other numbers: what a child sends moves from the rows of its edge's table to its parent's weights,
// so that no state of a vertex is improbable for anything but its weights. All logarithms, in place. `moved` (D, K) gains
// what was moved to each weight, also to a weight of zero: there it cannot be read off the weights.
void forest_gauge(const RootedForest& forest, double* log_leaf, double* log_edges, double* moved);

// A best configuration `states` (D) and its weight; all logarithms.
double forest_best(const RootedForest& forest, const double* log_leaf, const double* log_edges, int64_t* states);

// One direction. The count has `period` - 1 variables and frequencies 2 pi m / period, m < frequencies.
struct EdgeTangentInputs {
  CountedForest model;
  int64_t period;
  ptrdiff_t frequencies;
  const std::complex<double>*f, *h;  // transforms of f and f h, (frequencies,), the two halves of the circle added up
  bool everything;                   // no frequency may be left out
};

// marginals and change (D,); worst (2,): how much relative errors of all terms are amplified in the marginals, and the share of
// the weight that underflow may have taken; doubt (D,): their amplification in every change; the characteristic function and its derivative, (frequencies,), zero where
// left out.
void edge_tangent(const Kernels& kernels, const EdgeTangentInputs& in, double* marginals, double* change,
                  double* worst, double* doubt, std::complex<double>* law, std::complex<double>* law_change);

}  // namespace tallytree
