// P(count) of models that are solved already: their tilts are known, and one spectrum for each gives the probabilities.
#include <algorithm>

#include "base/parallel.hpp"
#include "flat/tangent.hpp"

namespace tallytree {

bool row_counts(const FlatRows& rows, const double* nu, const double* log_f, ptrdiff_t table_stride, double* counts,
                double* bound) {
  const auto serves = [](const FlatSolution& s) {
    return s.kind == FlatKind::series && !s.any_infinite && s.bound < __builtin_inf();
  };
  if (std::none_of(rows.row.begin(), rows.row.end(), serves)) return false;
  const ptrdiff_t n = rows.n;
  const auto one = [&](ptrdiff_t b, int threads) {
    const FlatSolution& s = rows.row[(size_t)b];
    bound[b] = __builtin_inf();
    if (!serves(s)) return;
    const TangentOut out = {nullptr, 0, counts + b * (n + 1), nullptr, 0};
    const double found =
        series_tangent(*rows.kernels, threads, s, nu + b * n, n, log_f + b * table_stride, {0, nu, 0, nullptr, 0}, out);
    const double error = std::max(found, s.bound);
    if (error <= kCountsAccepted) bound[b] = error;
  };
  if (rows.batch >= 2 * rows.threads && rows.batch * n >= kRowsWorthThreads)
    parallel_for(rows.batch, rows.threads, [&](ptrdiff_t b) { one(b, 1); });
  else
    for (ptrdiff_t b = 0; b < rows.batch; b++) one(b, rows.threads);
  return true;
}

}  // namespace tallytree
