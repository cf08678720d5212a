// P(count) of models that are solved already: their tilts are known, and one spectrum for each gives the probabilities.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/constants.hpp"
#include "flat/tangent.hpp"

namespace tallytree {

bool row_counts(const FlatRows& rows, const double* nu, const double* log_f, ptrdiff_t table_stride, double* counts,
                double* bound) {
  const auto serves = [](const FlatSolution& s) {
    return s.kind == FlatKind::series && !s.any_infinite && s.bound < kInfinity;
  };
  if (std::none_of(rows.row.begin(), rows.row.end(), serves)) return false;
  const ptrdiff_t n = rows.n;
  over_rows(rows.batch, rows.batch * n, rows.threads, [&](ptrdiff_t b, int threads) {
    const FlatSolution& s = rows.row[(size_t)b];
    bound[b] = kInfinity;
    if (!serves(s)) return;
    const TangentOut out = {nullptr, 0, counts + b * (n + 1), nullptr, 0};
    const double found =
        series_tangent(*rows.kernels, threads, s, nu + b * n, n, log_f + b * table_stride, {0, nu, 0, nullptr, 0}, out);
    // Beyond that a factor is uncertain: of one piece alone that is Z, as far as probabilities do not add up to one;
    // of several also their shares.
    const bool alone = s.pieces.size() == 1 && s.log_all_off == -kInfinity && s.log_all_on == -kInfinity;
    const double largest = *std::max_element(out.counts, out.counts + n + 1);
    const double factor = alone ? std::fabs(1 - std::accumulate(out.counts, out.counts + n + 1, 0.0)) : 2 * s.bound;
    if (std::max(found, s.bound) <= kCountsAccepted) bound[b] = found + factor * largest;
  });
  return true;
}

}  // namespace tallytree
