// (max, +) sums of rows of any lengths, on threads. Never included by kernel files.
#pragma once
#include "base/kernels.hpp"

namespace tallytree {

// Row by row, out[t] = max_i a[i] + b[start + t - i] for t < width; -inf where there is no such i. Rows have na, nb and width
// entries.
void max_plus_rows(const Kernels& kernels, ptrdiff_t rows, const double* a, ptrdiff_t na, const double* b, ptrdiff_t nb,
                   ptrdiff_t start, ptrdiff_t width, int threads, double* out);

}  // namespace tallytree
