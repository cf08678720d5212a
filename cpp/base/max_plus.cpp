// (max, +) convolution, the definition in O(m width): a block of outputs stays in registers while the shorter side goes
// by. Nothing much faster is known for arbitrary sequences.
#include "base/simd.hpp"

namespace tallytree::TT_LEVEL {

namespace {

inline vec larger(vec x, vec y) { return x > y ? x : y; }

constexpr int kBlock = 4;  // vectors of outputs at a time

}  // namespace

// out[t] = max_{i < m} a[i] + c[m - 1 - i + t] for t < width.
void max_plus(const double* a, ptrdiff_t m, const double* c, ptrdiff_t width, double* out) {
  const double nothing = -__builtin_inf();
  ptrdiff_t t = 0;
  for (; t + kBlock * kLanes <= width; t += kBlock * kLanes) {
    vec best[kBlock];
    for (int j = 0; j < kBlock; j++) best[j] = splat(nothing);
    for (ptrdiff_t i = 0; i < m; i++) {
      const double* from = c + m - 1 - i + t;
      const vec x = splat(a[i]);
      for (int j = 0; j < kBlock; j++) best[j] = larger(best[j], x + load(from + j * kLanes));
    }
    for (int j = 0; j < kBlock; j++) store(out + t + j * kLanes, best[j]);
  }
  for (; t < width; t++) {
    double best = nothing;
    for (ptrdiff_t i = 0; i < m; i++) {
      const double x = a[i] + c[m - 1 - i + t];
      best = x > best ? x : best;
    }
    out[t] = best;
  }
}

}  // namespace tallytree::TT_LEVEL
