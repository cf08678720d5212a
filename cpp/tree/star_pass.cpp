// What a star asks about the messages of its children.
#include "base/tails.hpp"
#include "tree/kernels.hpp"

namespace tallytree::TT_LEVEL {

// Counts k and k + shift are paired, every count at most once; a pair (a, b) overlaps by a b / (a + b).
static double paired_overlap(const double* p, int n, int shift) {
  double total = 0;
  if (shift < kLanes) {
    for (int k = 0; k + shift < n; k += 2 * shift)
      for (int j = k; j < k + shift && j + shift < n; j++) {
        const double sum = p[j] + p[j + shift];
        if (sum > 0) total += p[j] * p[j + shift] / sum;
      }
    return total;
  }
  vec lanes = {};
  for (int k = 0; k + shift < n; k += 2 * shift) {
    int j = k;
    for (; j + kLanes <= min(k + shift, n - shift); j += kLanes) {
      const vec a = load(p + j), b = load(p + j + shift), sum = a + b;
      lanes += sum > 0.0 ? a * b / sum : vec{};
    }
    for (; j < k + shift && j + shift < n; j++) {
      const double sum = p[j] + p[j + shift];
      if (sum > 0) total += p[j] * p[j + shift] / sum;
    }
  }
  return total + sum_lanes(lanes);
}

void child_shape(const double* value, int32_t length, double sum, ChildShape* shape) {
  const Moments m = moments(value, length, sum);
  shape->mean = m.mean;
  shape->variance = m.variance;
  for (int j = 0; j < kStarShiftCount; j++) shape->overlap[j] = paired_overlap(value, length, kStarShifts[j]) / sum;
}

double child_log_mgf(const double* value, int32_t length, double sum, double s, int32_t centre) {
  return log_mgf(value, length, sum, s, centre);
}

}  // namespace tallytree::TT_LEVEL
