// Sums of an entropy: log-odds against marginals, log-tables against the probabilities of counts.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tallytree {

constexpr int kExpectationSums = 8;
// Of one model; the counts of set s are offset[s] .. offset[s + 1]. See the binding for what the sums are.
void expectation_sums(const double* nu, const double* on, ptrdiff_t n, const double* probs, const double* tables,
                      const int64_t* offset, ptrdiff_t sets, double* out);

}  // namespace tallytree
