// Value and tangent of messages in plain numbers: what both directions of the pass need.
//
// Any multiple of a message's value may be taken off its tangent: that only changes how its scale depends on the
// direction, and no expectation depends on scales. Tangents are kept centred that way.
#pragma once
#include "base/real.hpp"
#include "base/elementary.hpp"
#include "base/fft_merge.hpp"
#include "tree/tangent_kernels.hpp"

namespace tallytree::TT_LEVEL {

constexpr double kLeastNumber = 1e-300;  // of the largest value of a message: what underflow may take from an entry

static inline double* tangent_scratch(const Worker& worker, int part) {
  return worker.scratch + (size_t)part * worker.scratch_stride;
}

// The up message of a node; a leaf's is (q, p) with derivative (-p q v, p q v), cut down to its possible states.
struct DualView {
  double pair[2], pair_change[2];
  const double *value, *change;
  int32_t lo, length;
  double sum, norm, change_sum, change_norm;

  DualView(const TangentItem& item, int32_t node) {
    const int32_t leaves = item.tree->leaves;
    if (node < leaves) {
      leaf(item.nu[node], item.v[node]);
      return;
    }
    const TangentNode& n = item.nodes[node - leaves];
    value = n.up.value;
    change = n.up.change;
    lo = n.up.lo;
    length = n.up.length;
    sum = n.sum;
    norm = n.norm;
    change_sum = n.change_sum;
    change_norm = n.change_norm;
  }
  DualView(const DualView&) = delete;

 private:
  void leaf(double x, double v) {
    const double e = real::exp(-real::fabs(x)), likely = 1 / (1 + e), rare = e * likely;
    const double q = x < 0 ? likely : rare, p = x < 0 ? rare : likely;
    const double moved = q * p > 0 ? q * p * v : 0.0;
    pair[0] = q;
    pair[1] = p;
    pair_change[0] = -moved;
    pair_change[1] = moved;
    lo = q > 0 ? 0 : 1;
    length = q > 0 && p > 0 ? 2 : 1;
    value = pair + lo;
    change = pair_change + lo;
    sum = norm = 1;
    change_sum = change_norm = 2 * real::fabs(moved);
  }
};

static inline double largest_value(const double* x, int n) {
  double top = 0;
  for (int k = 0; k < n; k++) top = max(top, x[k]);
  return top;
}

struct Norms {
  double one, two;
};
static inline Norms norms(const double* x, int n) {
  vec one = {}, two = {};
  int k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    const vec y = load(x + k);
    one += y < 0.0 ? -y : y;
    two += y * y;
  }
  double a = sum_lanes(one), b = sum_lanes(two);
  for (; k < n; k++) a += real::fabs(x[k]), b += x[k] * x[k];
  return {a, real::sqrt(b)};
}

static inline void add_multiple(double* x, const double* y, double factor, int n) {
  for (int k = 0; k < n; k++) x[k] += factor * y[k];
}

// out = (a b' + a' b) / M, or (a conj(b') + a' conj(b)) / M: see multiply_spectra.
template <bool conjugate>
static inline void multiply_spectra_tangent(const double* a, const double* a1, const double* b, const double* b1, int N,
                                            double* out) {
  const int M = N / 2;
  const vec factor = splat(1.0 / M);
  for (int j = 0; j < M; j += kLanes) {
    const Complex y = get(b, b + M, j), y1 = get(b1, b1 + M, j);
    const Complex x = get(a, a + M, j), x1 = get(a1, a1 + M, j);
    const Complex sum = conjugate ? times_conjugate(x, y1.re * factor, y1.im * factor) +
                                        times_conjugate(x1, y.re * factor, y.im * factor)
                                  : times(x, y1.re * factor, y1.im * factor) + times(x1, y.re * factor, y.im * factor);
    put(out, out + M, j, sum);
  }
}

}  // namespace tallytree::TT_LEVEL
