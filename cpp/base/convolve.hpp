// Direct convolution and correlation of doubles: only positive terms, so every entry is relatively accurate.
#pragma once
#include "base/exponent.hpp"
#include "base/worker.hpp"

namespace tallytree::TT_LEVEL {

constexpr int kRows = 4;                     // accumulators per tile of outputs
constexpr int kTileOutputs = kRows * kLanes;  // outputs per tile
constexpr int kBlock = 128;                  // terms added up before their sum joins the total: rounding stays small
constexpr int kPad = 40;                     // zeros kept on either side of a padded vector, >= kTileOutputs

static inline void fill(double* p, ptrdiff_t n, double x) {
  for (ptrdiff_t i = 0; i < n; i++) p[i] = x;
}

// Hears Ctrl-C between tiles of outputs, where a tile is a sum of so many terms that all tiles together take long.
static inline void let_signals_through_after(int terms) {
  if (terms > 1024) let_signals_through();
}

static inline double* scratch_part(const Worker& worker, int part) {
  return worker.scratch + (size_t)part * worker.scratch_stride;
}

// Calls tile<rows>(k) for outputs k .. k + rows * kLanes - 1 until `count` of them are met; each is a sum of so many terms.
template <class Tile>
static inline void in_output_tiles(int count, int terms, const Tile& tile) {
  int k = 0;
  for (; count - k > kTileOutputs - kLanes; k += kTileOutputs) {
    tile.template operator()<kRows>(k);
    let_signals_through_after(terms);
  }
  for (; k < count; k += kLanes) tile.template operator()<1>(k);
}

// out[t] = sum_{i0 <= i < i1} weight[i] * shifted[t + step * i], for rows * kLanes values of t.
template <int rows, int step>
static inline void accumulate_tile(const double* weight, int i0, int i1, const double* shifted, double* out) {
  vec total[rows] = {};
  for (int block = i0; block < i1; block += kBlock) {
    const int end = min(i1, block + kBlock);
    vec sum[rows] = {};
    for (int i = block; i < end; i++) {
      const vec w = splat(weight[i]);
      const double* p = shifted + (ptrdiff_t)step * i;
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) sum[r] += load(p + r * kLanes) * w;
    }
    for (int r = 0; r < rows; r++) total[r] += sum[r];
  }
  for (int r = 0; r < rows; r++) store(out + r * kLanes, total[r]);
}

// out[k] = sum_i a[i] b[k-i] for k = 0 .. na+nb-2. Writes up to kTileOutputs - 1 entries beyond;
// scratch holds max(na, nb) + 2 kPad doubles.
static inline void convolve_direct(const double* a, int na, const double* b, int nb, double* out, double* scratch) {
  if (na > nb) return convolve_direct(b, nb, a, na, out, scratch);
  fill(scratch, kPad, 0.0);
  std::memcpy(scratch + kPad, b, sizeof(double) * (size_t)nb);
  fill(scratch + kPad + nb, kPad, 0.0);
  const double* padded = scratch + kPad;
  in_output_tiles(na + nb - 1, na, [&]<int rows>(int k) {
    accumulate_tile<rows, -1>(a, max(0, k - nb + 1), min(na, k + rows * kLanes), padded + k, out + k);
  });
}

// sum_j g[j] u[j].
static inline double dot(const double* g, const double* u, int n) {
  vec sum0 = {}, sum1 = {};
  int j = 0;
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
    sum0 += load(g + j) * load(u + j);
    sum1 += load(g + j + kLanes) * load(u + j + kLanes);
  }
  for (; j + kLanes <= n; j += kLanes) sum0 += load(g + j) * load(u + j);
  double total = sum_lanes(sum0 + sum1);
  for (; j < n; j++) total += g[j] * u[j];
  return total;
}

static inline double total(const double* x, int n) {
  vec sum = {};
  int j = 0;
  for (; j + kLanes <= n; j += kLanes) sum += load(x + j);
  double all = sum_lanes(sum);
  for (; j < n; j++) all += x[j];
  return all;
}

// The largest of some numbers and 0.
static inline double largest(const double* x, int n) {
  vec top = {};
  int j = 0;
  for (; j + kLanes <= n; j += kLanes) top = max(top, load(x + j));
  double most = max_lanes(top);
  for (; j < n; j++) most = max(most, x[j]);
  return most;
}

// Sums of absolute values, and Euclidean norms.
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

// out[k] = sum_j g[k+j] u[j] for k = 0 .. count-1. Reads g, and writes out, up to kTileOutputs - 1 entries beyond.
static inline void correlate_direct(const double* g, const double* u, int nu, double* out, int count) {
  if (count <= 2) {
    for (int k = 0; k < count; k++) out[k] = dot(g + k, u, nu);
    return;
  }
  in_output_tiles(count, nu, [&]<int rows>(int k) { accumulate_tile<rows, 1>(u, 0, nu, g + k, out + k); });
}

}  // namespace tallytree::TT_LEVEL
