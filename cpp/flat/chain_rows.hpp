// Batches of models along the chain of partial sums.
#pragma once
#include "flat/kernels.hpp"

namespace tallytree {

// nu is (batch, n); row b of the tables starts at log_f + b * table_stride. The bound is infinite where plain numbers run
// out of range. O(n k) time and memory for counts, of ones or of zeros, up to k.
void chain_rows(const FlatKernels& kernels, int threads, const double* nu, const double* log_f, ptrdiff_t table_stride,
                ptrdiff_t batch, ptrdiff_t n, double* log_mean, double* messages, double* bound);

}  // namespace tallytree
