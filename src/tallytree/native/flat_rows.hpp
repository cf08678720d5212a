// Batches of flat models: infinite logits, small models side by side, threads over rows.
#pragma once
#include <cstddef>
#include <vector>

#include "flat.hpp"

namespace tallytree {

struct FlatRows {
  const Kernels* kernels = nullptr;
  int threads = 1;
  ptrdiff_t batch = 0, n = 0;
  std::vector<FlatSolution> row;
};

// nu is (batch, n); row b of the tables starts at log_f + b * table_stride.
void solve_rows(const double* nu, const double* log_f, ptrdiff_t table_stride, FlatRows* rows);
void row_marginals(const FlatRows& rows, const double* nu, double* out);
void row_messages(const FlatRows& rows, const double* nu, double* out);
void log_pmf_rows(const Kernels& kernels, int threads, const double* nu, ptrdiff_t batch, ptrdiff_t n, double* out);

}  // namespace tallytree
