// The kernels of the flat solver: one potential over all variables.
//
// Notation. t_i = nu_i + s is the tilted logit, p_i = sigmoid(t_i), q_i = 1 - p_i. Every variable has a likely
// state, given by the sign of t_i, and leaves it with probability delta_i / 2, delta_i = 2 e^-|t| / (1 + e^-|t|).
// All sums are sums of deviations from the likely state: they are small where the model is nearly
// deterministic, so that no large numbers cancel and errors scale with the variance, not with n.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tallytree {

constexpr int kMaxChebyshev = 24;        // deviation sums A_1 .. A_24 at most
constexpr int kSumCounts[] = {8, 10, 12, 14, 16, 18, 20, kMaxChebyshev};  // numbers of sums that kernels are compiled for
constexpr int kPowers = 25;              // power sums of small deviations, (2 * kLargeDeviation)^26 < 1e-18
constexpr int kPowerStep = 5;            // they are taken in steps of so many
constexpr int kWeightedPowers = kPowers + kPowerStep;
constexpr double kLargeDeviation = 0.1;  // deviations above it are treated one by one when the variance is small
constexpr int kMaxNodes = 96;            // interpolation nodes of the logarithm of a leave-one-out ratio
constexpr int kMoreNodes = 6;            // and so many more of the ratio itself

// What one pass over the logits returns, before the deviation sums.
struct FlatTotals {
  double log_norm;   // sum log(1 + e^-|t|)
  double positive;   // tilt 0: sum max(nu, 0); otherwise sum max(t, 0) - max(nu, 0), less the tilt for every t >= 0
  double negative;   // sum max(-nu, 0); only when the tilt is 0
  double likely_on;  // how many t are >= 0
  double infinite;   // how many nu are infinite; this and the extremes of the finite nu only when the tilt is 0
  double smallest, largest;
  double positive_lost;  // what rounding took from `positive`
};

// A part of the posterior solved under one tilt. The leave-one-out ratio r(p) = d_p(1) / d_p(0) is a smooth
// function of x = tanh(t / 2); its logarithm is a Chebyshev series in x, or, when the variance is small, one series
// in delta on [0, 2 kLargeDeviation] for each likely state, and the sum over frequencies for the few others.
struct FlatPieceView {
  double tilt;
  double log_weight;  // log share of this piece
  int split;
  int terms;              // length of each series
  const double* series;   // log r; when split, two series: likely off, likely on
  int frequencies;        // multiple of the lanes; zero terms as padding
  const double *wave_re, *wave_im, *cos_w, *sin_w;  // G_m and e^{i w_m}
};

constexpr int kMaxPieces = 64;

struct FlatMixtureView {
  int pieces;  // at most kMaxPieces
  const FlatPieceView* piece;
  double log_all_off, log_all_on;  // log shares of "every variable off" and "every variable on"; may be -inf
};

// The rotations that a sum over counts needs at every frequency w: by one count, by as many as there are lanes, and to
// the first count.
constexpr int kRotorRestart = 64;  // vectors after which sums over counts take up an exact rotation again
struct Turns {
  int count;
  double first;
  const double* w;
  const double *cos_w, *sin_w, *cos_lanes, *sin_lanes, *cos_first, *sin_first;
};

// What a direct tree returns besides the leave-one-out ratios.
struct DirectTotals {
  double log_mean;
  double smallest;  // of the numbers that were divided by: far above the range that underflow can have reached?
  double softplus;  // sum log(1 + e^t)
  double largest;   // of all |t|
};

// A potential sum_j a_j r_j^c. For variable i, with g_ij = 1 - p_i + p_i r_j: `on` and `off` are a_j r_j and a_j times
// the product of all g_j, so that sum_j on_j / g_ij and sum_j off_j / g_ij are what the others say of its two states.
constexpr int kMaxPowers = 8;
struct PowerForm {
  int terms;
  double rate[kMaxPowers], on[kMaxPowers], off[kMaxPowers];
};
constexpr double kSmallestFactor = 1e-70;  // four factors down to this, or up to its inverse, multiply safely
struct PowerSum {
  double log_size, lost;     // sum of log |g_i|, and what rounding took from it
  double negative;           // how many g_i are negative
  double smallest, largest;  // of the |g_i|
};
struct PowerSums {
  double softplus;  // sum of log(1 + e^nu) over the finite nu
  PowerSum term[kMaxPowers];
};

// Derivatives along a direction, v in the log-odds and h in the log-table. With the joint law of a model, the derivative of
// P(y_i = 1) is Cov(y_i, s), s = v . y + h(z): expectations are differentiated, not their logarithms, so errors are
// absolute.
constexpr int kMaxDirections = 16;  // of one piece; more come in groups

// Up to one register of models for a direct tree: the leave-one-out ratios and marginals of `direct`; or, for
// `tangent_direct`, directions and where their answers go, of which h, `counts` and `count_change` may be null.
struct DirectRows {
  int models;
  const double *nu[8], *log_f[8];
  double tilt[8];
  double *ratio[8], *marginal[8];  // (n,)
  const double *v[8], *h[8];
  double *change[8];               // (n,): d P(y_i = 1)
  double *counts[8];               // (n + 1,): P(z = k)
  double *count_change[8];         // (n + 1,): d P(z = k)
};

// Sums over the logits, weighted by a direction.
struct WeightedSums {
  double on;                              // sum of v_i over the likely on
  double likely_on;
  double plain[kMaxChebyshev + 2];        // A_j
  double weighted[kMaxChebyshev + 2];     // sum_i v_i sign_i^j (1 - T_j(|x_i|))
};
struct WeightedPowers {
  double off[kWeightedPowers], on[kWeightedPowers];  // sums of v_i times powers of the small deviations
  double weight_on;                          // sum of v_i over the small deviations that are likely on
};

// A piece with derivatives: behind the series of log r follow, `stride` apart, those of its slope in t and of its change
// along every direction.
struct TangentPieceView : FlatPieceView {
  double share;
  ptrdiff_t stride;
  const double *shift, *drift;          // (directions,): the part of v that was moved into the table; d log share
  const double *change_re, *change_im;  // (directions, frequencies): dG_m
};
struct TangentView {
  int pieces, directions;
  const TangentPieceView* piece;
  double share_on, share_off;           // of "all on" and "all off"
  const double *drift_on, *drift_off;  // (directions,)
};

struct FlatKernels {
  // totals, then out[j-1] = A_j = sum_i sign_i^j (1 - T_j(|x_i|)), j = 1 .. count
  void (*chebyshev_sums)(const double* nu, ptrdiff_t n, double tilt, int count, FlatTotals* totals, double* out);

  // Power sums of the deviations below kLargeDeviation, off[j-1] and on[j-1], j = 1 .. kPowers, by likely state.
  // p of the other variables goes to `large`; returns how many. likely_on counts the small deviations only.
  ptrdiff_t (*small_deviation_sums)(const double* nu, ptrdiff_t n, double tilt, double* off, double* on,
                                    double* likely_on, double* large);

  // (re, im)_m *= prod_i (q_i + p_i e^{i w_m}); `count_w` is a multiple of the lanes.
  void (*multiply_factors)(const double* p, ptrdiff_t count, const double* cos_w, const double* sin_w, int count_w,
                           double* re, double* im);

  // (re, im)_m = sum_{k < length} f[k] e^{-i w_m (first + k)}; f readable, and zero, up to a multiple of 8.
  void (*transform)(const Turns& turns, const double* f, ptrdiff_t length, double* re, double* im);

  // out[k] = sum_m Re (re, im)_m e^{-i w_m (first + k)}
  void (*inverse)(const Turns& turns, const double* re, const double* im, ptrdiff_t length, double* out);

  // For every node j < count (a multiple of the lanes): off_j = sum_m Re G_m / (q + p e^{iw}),
  // on_j = sum_m Re G_m e^{iw} / (q + p e^{iw}), error_j = sum_m E_m / |q + p e^{iw}|; unless it is null, the slope of
  // log(on_j / off_j) in t.
  void (*leave_one_out)(const double* p, const double* q, int count, const double* re, const double* im,
                        const double* error, const double* cos_w, const double* sin_w, int count_w, double* off,
                        double* on, double* out_error, double* slope);

  // P(y_i = 1), or the messages log(d_i(1) / d_i(0)).
  void (*mixture_answers)(const double* nu, ptrdiff_t n, const FlatMixtureView& mixture, bool marginals, double* out);

  // Of one piece that is not split: marginals, given the series of r itself; messages, given that of log r.
  void (*marginals_plain)(const double* nu, ptrdiff_t n, double tilt, const double* series, int terms, double* out);
  void (*messages_plain)(const double* nu, ptrdiff_t n, double tilt, const double* series, int terms, double* out);

  // K'(s), K''(s) and, unless `spread` is null, an upper bound of K(s) for weighted logits with second moments inside
  // their bins.
  void (*tilted_moments)(const double* value, const double* weight, const double* spread, ptrdiff_t count,
                         double growth, double tilt, double* out);

  // exp((log_f[k] - base) - slope (first + k) - scale) for k < length
  void (*exp_table)(const double* log_f, ptrdiff_t length, double slope, double first, double base, double scale, double* out);
  double (*max_table)(const double* log_f, ptrdiff_t length, double slope, double first);

  // Direct tree, one model per lane (direct.cpp), or one model in all lanes (single_model.cpp): leave-one-out ratios
  // and marginals, n of each for every model.
  ptrdiff_t (*direct_scratch)(ptrdiff_t n);  // doubles
  void (*direct)(const DirectRows& rows, ptrdiff_t n, double* scratch, DirectTotals* totals);
  ptrdiff_t (*single_scratch)(ptrdiff_t n);  // doubles
  void (*single)(const double* nu, const double* log_f, double tilt, ptrdiff_t n, double* scratch, DirectTotals* totals,
                double* ratio, double* marginal);
  // The log of P(k) under a tilt, n + 1 of them, one model in all lanes; returns K(s). Where P(k) is below 1e-290 it may
  // be wrong or -inf.
  double (*single_pmf)(const double* nu, double tilt, ptrdiff_t n, double* scratch, double* log_pmf);
  void (*messages_from_ratio)(const double* ratio, ptrdiff_t n, double tilt, double* out);

  // Sums of powers; infinite logits are welcome.
  void (*power_sums)(const double* nu, ptrdiff_t n, const double* rate, int terms, PowerSums* out);
  void (*power_answers)(const double* nu, ptrdiff_t n, const PowerForm& powers, bool marginals, double* out);

  // The chain of partial sums, counting ones or zeros up to `cap`: messages, log E f and a bound of the error, infinite
  // where plain numbers run out of range. Scratch in doubles.
  ptrdiff_t (*chain_scratch)(ptrdiff_t n, ptrdiff_t cap);
  void (*chain)(const double* nu, const double* log_f, ptrdiff_t n, ptrdiff_t cap, bool zeros, double* scratch,
                double* messages, double* log_mean, double* bound);

  ptrdiff_t (*tangent_direct_scratch)(ptrdiff_t n);  // doubles
  // Direct tree in lanes. `smallest` of the totals is Z, which must be far above underflow.
  void (*tangent_direct)(const DirectRows& rows, ptrdiff_t n, double* scratch, DirectTotals* totals);

  void (*weighted_sums)(const double* nu, const double* v, ptrdiff_t n, double tilt, int count, WeightedSums* out);
  // p and v of large deviations go to the two arrays; returns how many.
  ptrdiff_t (*weighted_powers)(const double* nu, const double* v, ptrdiff_t n, double tilt, WeightedPowers* out,
                               double* large_p, double* large_v);

  // d P(y_i = 1) for every direction: v and out hold one row per direction, `stride` apart.
  void (*tangent_apply)(const double* nu, ptrdiff_t n, const double* v, ptrdiff_t stride, const TangentView& view, double* out,
                ptrdiff_t out_stride);
  // The same for one piece that is not split.
  void (*tangent_apply_plain)(const double* nu, ptrdiff_t n, const double* v, ptrdiff_t stride, const TangentPieceView& piece,
                      int directions, double* out, ptrdiff_t out_stride);
};

}  // namespace tallytree
