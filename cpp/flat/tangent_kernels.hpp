// The kernels of directional derivatives of flat models. A direction is v in the log-odds and h in the log-table.
//
// With the joint law of a model, the derivative of P(y_i = 1) is Cov(y_i, s), s = v . y + h(z): expectations are
// differentiated, not their logarithms, so errors are absolute.
#pragma once
#include <cstddef>

#include "flat/kernels.hpp"

namespace tallytree {

constexpr int kMaxDirections = 16;  // solved together; more come in groups

// Rows of up to one register of models. `h`, `counts` and `count_change` may be null.
struct DirectTangent {
  int models;
  const double *nu[8], *log_f[8], *v[8], *h[8];
  double tilt[8];
  double *change[8];        // (n,): d P(y_i = 1)
  double *counts[8];        // (n + 1,): P(z = k)
  double *count_change[8];  // (n + 1,): d P(z = k)
};

// Sums over the logits, weighted by a direction.
struct WeightedSums {
  double on;                              // sum of v_i over the likely on
  double total;                           // sum of v_i
  double likely_on;
  double plain[kMaxChebyshev + 2];        // A_j
  double weighted[kMaxChebyshev + 2];     // sum_i v_i sign_i^j (1 - T_j(|x_i|))
};
struct WeightedPowers {
  double off[kPowers + 1], on[kPowers + 1];  // sums of v_i times powers of the small deviations
  double weight_on;                          // sum of v_i over the small deviations that are likely on
};

// G_m and, for every direction, dG_m, with bounds on their rounding errors; arrays of `padded` entries.
struct WavesView {
  int padded, directions;
  const double *cos_w, *sin_w, *re, *im, *error;
  const double *change_re, *change_im, *change_error;  // (directions, padded)
};
// At a leaf with probabilities q and p: F_b = sum_m Re G_m e^{ibw} / (q + p e^{iw}); the slope of log(F_1 / F_0) in
// t; A_b, the sums F_b over dG_m, per direction; and the errors of both.
struct NodeSums {
  double off, on, slope, error;
  double *change_off, *change_on, *change_error;  // (directions,)
};

// One piece of the posterior: log r, its slope in t and, per direction, its change a as Chebyshev series. A split piece
// has two series each (likely off, likely on) and the sum over frequencies for the others: see FlatPieceView.
struct TangentPieceView {
  double tilt, share;
  int split, terms;
  const double *log_ratio, *slope;  // (1 or 2, terms)
  const double* change;             // (directions, 1 or 2, terms)
  const double* shift;              // (directions,): the part of v that was moved into the table
  const double* drift;              // (directions,): d log share
  WavesView waves;                  // only when split
};
struct TangentView {
  int pieces, directions;
  const TangentPieceView* piece;
  double share_on;         // of "all on"
  const double* drift_on;  // (directions,)
};

struct FlatTangentKernels {
  ptrdiff_t (*direct_scratch)(ptrdiff_t n);  // doubles
  // Direct tree in lanes. `smallest` of the totals is Z, which must be far above underflow.
  void (*direct)(const DirectTangent& rows, ptrdiff_t n, double* scratch, DirectTotals* totals);

  void (*weighted_sums)(const double* nu, const double* v, ptrdiff_t n, double tilt, int count, WeightedSums* out);
  // p and v of large deviations go to the two arrays; returns how many.
  ptrdiff_t (*weighted_powers)(const double* nu, const double* v, ptrdiff_t n, double tilt, WeightedPowers* out,
                               double* large_p, double* large_v);
  void (*node)(const WavesView& waves, double p, double q, NodeSums* out);

  // d P(y_i = 1) for every direction: v and out hold one row per direction, `stride` apart.
  void (*apply)(const double* nu, ptrdiff_t n, const double* v, ptrdiff_t stride, const TangentView& view, double* out,
                ptrdiff_t out_stride);
  // The same for one piece that is not split.
  void (*apply_plain)(const double* nu, ptrdiff_t n, const double* v, ptrdiff_t stride, const TangentPieceView& piece,
                      int directions, double* out, ptrdiff_t out_stride);
};

}  // namespace tallytree
