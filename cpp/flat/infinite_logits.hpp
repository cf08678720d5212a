// Variables with infinite logits, which are excluded (-inf) or forced (+inf), among many without.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tallytree {

// Calls each(i) for every infinite logit and, before it and at the end, run(from, to) for the finite ones since the last.
template <class Each, class Run>
void around_infinities(const double* nu, ptrdiff_t n, const Each& each, const Run& run) {
  constexpr ptrdiff_t kBlock = 64;
  ptrdiff_t from = 0;
  for (ptrdiff_t block = 0; block < n; block += kBlock) {
    const ptrdiff_t end = std::min(n, block + kBlock);
    double sum = 0;  // NaN if one is infinite
    for (ptrdiff_t i = block; i < end; i++) sum += nu[i] - nu[i];
    if (sum == 0) continue;
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

inline bool any_infinite(const double* nu, ptrdiff_t n) {
  bool any = false;
  around_infinities(nu, n, [&](ptrdiff_t) { any = true; }, [](ptrdiff_t, ptrdiff_t) {});
  return any;
}

}  // namespace tallytree
