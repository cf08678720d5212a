// Variables with infinite logits, which are excluded (-inf) or forced (+inf), among many without.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tallytree {

// Whether there is neither an infinity nor a NaN among n numbers; several sums at once hide the latency of one.
template <class T>
bool all_finite(const T* x, ptrdiff_t n) {
  constexpr int kAtOnce = 8;
  T sum[kAtOnce] = {};  // NaN where x is infinite
  ptrdiff_t i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce)
    for (int l = 0; l < kAtOnce; l++) sum[l] += x[i + l] - x[i + l];
  for (; i < n; i++) sum[0] += x[i] - x[i];
  for (int l = 1; l < kAtOnce; l++) sum[0] += sum[l];
  return sum[0] == 0;
}

// Logits as doubles, in `room` where they have to be made.
inline const double* widened(const double* nu, ptrdiff_t, double*) { return nu; }
inline const double* widened(const float* nu, ptrdiff_t n, double* room) {
  for (ptrdiff_t i = 0; i < n; i++) room[i] = nu[i];
  return room;
}

// Calls each(i) for every infinite logit and, before it and at the end, run(from, to) for the finite ones since the last.
template <class Each, class Run>
void around_infinities(const double* nu, ptrdiff_t n, const Each& each, const Run& run) {
  constexpr ptrdiff_t kBlock = 64;
  ptrdiff_t from = 0;
  for (ptrdiff_t block = 0; block < n; block += kBlock) {
    const ptrdiff_t end = std::min(n, block + kBlock);
    if (all_finite(nu + block, end - block)) continue;
    for (ptrdiff_t i = block; i < end; i++) {
      if (std::isfinite(nu[i])) continue;
      run(from, i);
      each(i);
      from = i + 1;
    }
  }
  run(from, n);
}

struct Split {
  std::vector<double> finite;
  ptrdiff_t excluded = 0, forced = 0;
};

inline Split split_infinite(const double* nu, ptrdiff_t n) {
  Split split;
  split.finite.reserve((size_t)n);
  around_infinities(
      nu, n, [&](ptrdiff_t i) { ++(nu[i] > 0 ? split.forced : split.excluded); },
      [&](ptrdiff_t from, ptrdiff_t to) { split.finite.insert(split.finite.end(), nu + from, nu + to); });
  return split;
}

}  // namespace tallytree
