#include "base/expectation_sums.hpp"

#include <cmath>

namespace tallytree {

namespace {

constexpr ptrdiff_t kBlock = 256;  // terms of a running sum: its rounding grows with their number
constexpr int kAtOnce = 4;         // sums under way at once hide the latency of an addition

// The sum of term(i) for first <= i < last, in blocks.
template <class Term>
double sum(ptrdiff_t first, ptrdiff_t last, const Term& term) {
  double total = 0;
  for (ptrdiff_t block = first; block < last; block += kBlock) {
    const ptrdiff_t end = last - block < kBlock ? last : block + kBlock;
    double part[kAtOnce] = {};
    ptrdiff_t i = block;
    for (; i + kAtOnce <= end; i += kAtOnce)
      for (int g = 0; g < kAtOnce; g++) part[g] += term(i + g);
    for (; i < end; i++) part[0] += term(i);
    total += (part[0] + part[1]) + (part[2] + part[3]);
  }
  return total;
}

}  // namespace

void expectation_sums(const double* nu, const double* on, ptrdiff_t n, const double* probs, const double* tables,
                      const int64_t* offset, ptrdiff_t sets, double* out) {
  const auto finite = [&](ptrdiff_t i) { return std::isfinite(nu[i]) ? nu[i] : 0.0; };
  const auto table = [&](ptrdiff_t k) { return std::isfinite(tables[k]) ? tables[k] : 0.0; };
  out[0] = sum(0, n, [&](ptrdiff_t i) { return finite(i) * on[i]; });
  out[1] = sum(0, n, [&](ptrdiff_t i) { return std::fabs(finite(i)); });
  for (int j = 2; j < kExpectationSums; j++) out[j] = 0;
  for (ptrdiff_t s = 0; s < sets; s++) {
    const ptrdiff_t first = offset[s], last = offset[s + 1];
    const double mean = sum(first, last, [&](ptrdiff_t k) { return probs[k] * table(k); });
    const auto gap = [&](ptrdiff_t k) { return std::isfinite(tables[k]) ? mean - tables[k] : 0.0; };
    out[2] += mean;
    out[3] += std::fabs(mean);
    out[4] += sum(first, last, [&](ptrdiff_t k) { return probs[k] * gap(k); });
    out[5] += sum(first, last, [&](ptrdiff_t k) { return std::fabs(probs[k] * gap(k)); });
    out[6] += sum(first, last, [&](ptrdiff_t k) { return probs[k] != 0 ? std::fabs(gap(k)) : 0.0; });
    for (ptrdiff_t k = first; k < last; k++) out[7] = std::fmax(out[7], std::fabs(gap(k)));
  }
}

}  // namespace tallytree
