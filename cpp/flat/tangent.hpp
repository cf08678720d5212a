// Derivatives of a flat model's expectations along directions in its log-odds and its log-table.
#pragma once
#include "flat/rows.hpp"
#include "flat/kernels.hpp"

namespace tallytree {

// Up to kMaxDirections directions of one model; row r starts at v + r * v_stride, h + r * h_stride. h may be null.
struct Directions {
  int count;
  const double* v;
  ptrdiff_t v_stride;
  const double* h;
  ptrdiff_t h_stride;
  const double* v_row(int r) const { return v + r * v_stride; }
  double table(int r, ptrdiff_t k) const { return h ? h[r * h_stride + k] : 0.0; }
};

// Where the answers of one model go; pointers may be null.
struct TangentOut {
  double* change;  // (n,) per direction: d P(y_i = 1)
  ptrdiff_t change_stride;
  double* counts;        // (n + 1,): P(z = k)
  double* count_change;  // (n + 1,) per direction: d P(z = k)
  ptrdiff_t count_stride;
};

// A solved model with finite logits, of kind `series` or `ends`. Returns a bound on the absolute error of every number,
// as a share of the size of its direction's answer (of 1 for P(z = k)); infinite where there is none.
double series_tangent(const Kernels& kernels, int threads, const FlatSolution& solution, const double* nu, ptrdiff_t n,
                      const double* log_f, const Directions& directions, const TangentOut& out);

// The characteristic function of one tilt, and its logarithmic derivative along every direction.
struct DirectedSpectrum {
  Spectrum spectrum;
  std::vector<double> shift;               // (directions,): the part of v that is counted in the table
  std::vector<double> mean;                // (directions,): sum of (v_i - shift) p_i
  std::vector<double> rate_re, rate_im;    // (directions, padded): S_m
  std::vector<double> rate_error;          // (directions, padded)
};
DirectedSpectrum directed_spectrum(const Kernels& kernels, const Logits& logits, const Directions& directions,
                                   const Piece& piece);

// P(z = k), (batch, n + 1), of solved rows, and the bounds of their errors, infinite for rows that are left to others;
// false if all of them are.
constexpr double kCountsAccepted = 1e-10;
bool row_counts(const FlatRows& rows, const double* nu, const double* log_f, ptrdiff_t table_stride, double* counts,
                double* bound);

// A batch: v is (directions, batch, n), h (directions, batch, n + 1) or null, likewise the answers; `bound` (batch,) is
// infinite for a model that is left to others.
struct TangentBatch {
  const Kernels* kernels;
  int threads;
  ptrdiff_t batch, n, directions;
  const double *nu, *log_f;
  ptrdiff_t table_stride;
  const double *v, *h;
  double *change, *counts, *count_change, *bound;
};
void tangent_rows(const TangentBatch& batch);

}  // namespace tallytree
