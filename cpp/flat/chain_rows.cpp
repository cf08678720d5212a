// Batches of models along the chain of partial sums: which state is counted, scales, messages and their certificate.
#include "flat/rows.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/constants.hpp"
#include "base/parallel.hpp"

namespace tallytree {

namespace {

// The model with zeros counted instead of ones, if that leaves fewer counts.
struct Counted {
  bool zeros;
  ptrdiff_t cap;  // largest possible count; -1 if there is none
};

Counted counted(const double* log_f, ptrdiff_t n) {
  ptrdiff_t low = 0, high = n;
  while (low <= n && log_f[low] == -kInfinity) low++;
  while (high >= 0 && log_f[high] == -kInfinity) high--;
  if (low > n) return {false, -1};
  return n - low < high ? Counted{true, n - low} : Counted{false, high};
}

// Where numbers may have run out of range, no bound: an entry of a scaled suffix above 1e290 could meet a lost prefix.
double certificate(const double* nu, const double* d0, const double* d1, ptrdiff_t n, double value, double largest) {
  if (!(value > 0)) return kInfinity;
  double reach = 0, farthest = 0;
  for (ptrdiff_t i = 0; i < n; i++) {
    const bool finite = std::isfinite(nu[i]);
    if (finite && (!(d0[i] > 0) || !(d1[i] > 0))) return kInfinity;
    const double message = std::log(d1[i]) - std::log(d0[i]);
    if (std::isfinite(message)) reach = std::max(reach, std::fabs(message));
    if (finite) farthest = std::max(farthest, std::fabs(nu[i]));
  }
  const double lost = (double)n * 1e-300 * largest * std::exp(std::min(reach + farthest, 700.0));
  const double bound = lost + kUnitRoundoff * (16 * std::sqrt((double)n + 1) + 4 * reach);
  return std::isnan(bound) ? kInfinity : bound;
}

void one_model(const FlatKernels& k, const double* nu, const double* log_f, ptrdiff_t n, double* log_mean,
               double* messages, double* bound) {
  const Counted c = counted(log_f, n);
  if (c.cap < 0) {
    *log_mean = -kInfinity;
    *bound = 0;
    std::fill(messages, messages + n, 0.0);
    return;
  }
  const std::unique_ptr<double[]> memory(new double[(size_t)(4 * n + c.cap + 1 + k.chain_scratch(n, c.cap))]);
  double *off = memory.get(), *on = off + n, *d0 = on + n, *d1 = d0 + n, *f = d1 + n, *scratch = f + c.cap + 1;
  for (ptrdiff_t i = 0; i < n; i++) {
    const double e = std::exp(-std::fabs(nu[i])), likely = 1 / (1 + e), rare = e / (1 + e);
    const bool positive = (nu[i] > 0) != c.zeros;
    on[i] = positive ? likely : rare;
    off[i] = positive ? rare : likely;
  }
  const auto entry = [&](ptrdiff_t count) { return log_f[c.zeros ? n - count : count]; };
  double top = -kInfinity;
  for (ptrdiff_t j = 0; j <= c.cap; j++) top = std::max(top, entry(j));
  for (ptrdiff_t j = 0; j <= c.cap; j++) f[j] = std::exp(entry(j) - top);
  double value, largest;
  k.chain(off, on, f, n, c.cap, scratch, d0, d1, &value, &largest);
  *bound = certificate(nu, d0, d1, n, value, largest);
  *log_mean = std::log(value) + top;
  for (ptrdiff_t i = 0; i < n; i++)
    messages[i] = (c.zeros ? -1 : 1) * (std::log(d1[i]) - std::log(d0[i]));
}

}  // namespace

void chain_rows(const FlatKernels& kernels, int threads, const double* nu, const double* log_f, ptrdiff_t table_stride,
                ptrdiff_t batch, ptrdiff_t n, double* log_mean, double* messages, double* bound) {
  parallel_for(batch, threads, [&](ptrdiff_t b) {
    one_model(kernels, nu + b * n, log_f + b * table_stride, n, log_mean + b, messages + b * n, bound + b);
  });
}

}  // namespace tallytree
