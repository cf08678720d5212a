// One potential along a chain of partial sums:
//
//   prefix_{i+1}(c) = off_i prefix_i(c) + on_i prefix_i(c - 1)
//   suffix_i(c) = off_i suffix_{i+1}(c) + on_i suffix_{i+1}(c + 1)
//
// All prefixes are kept, as the method has it: O(n cap) of time and memory. Sums of positive terms.
#include "base/exponent.hpp"
#include "flat/kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

// next(c) = off last(c) + on last(c - 1) for c = 0 .. top + 1, of which the last only if there is room for it.
void extend(const double* last, ptrdiff_t top, double off, double on, bool grows, double* next) {
  const vec voff = splat(off), von = splat(on);
  next[0] = off * last[0];
  ptrdiff_t c = 1;
  for (; c + kLanes <= top + 1; c += kLanes) store(next + c, voff * load(last + c) + von * load(last + c - 1));
  for (; c <= top; c++) next[c] = off * last[c] + on * last[c - 1];
  if (grows) next[top + 1] = on * last[top];
}

// Products of a prefix (0 .. top) with the suffix behind variable i, off and on, and the suffix in front of it.
void retreat(const double* prefix, ptrdiff_t top, double off, double on, double* suffix, double* d0, double* d1,
             double* largest) {
  const vec voff = splat(off), von = splat(on);
  vec sum0 = {}, sum1 = {}, high = {};
  ptrdiff_t c = 0;
  for (; c + kLanes <= top + 1; c += kLanes) {
    const vec p = load(prefix + c), here = load(suffix + c), later = load(suffix + c + 1);
    sum0 += p * here;
    sum1 += p * later;
    const vec before = voff * here + von * later;
    high = max(high, before);
    store(suffix + c, before);
  }
  double s0 = sum_lanes(sum0), s1 = sum_lanes(sum1), most = max(*largest, max_lanes(high));
  for (; c <= top; c++) {
    s0 += prefix[c] * suffix[c];
    s1 += prefix[c] * suffix[c + 1];
    suffix[c] = off * suffix[c] + on * suffix[c + 1];
    most = max(most, suffix[c]);
  }
  *d0 = s0;
  *d1 = s1;
  *largest = most;
}

// Where numbers may have run out of range, no bound: an entry of a scaled suffix above 1e290 could meet a lost prefix.
double certificate(const double* nu, const double* d0, const double* d1, ptrdiff_t n, double value, double largest) {
  const double inf = __builtin_inf();
  if (!(value > 0)) return inf;
  double reach = 0, farthest = 0;
  for (ptrdiff_t i = 0; i < n; i++) {
    const double logit = real::fabs(nu[i]), message = real::fabs(real::log(d1[i]) - real::log(d0[i]));
    if (logit < inf && (!(d0[i] > 0) || !(d1[i] > 0))) return inf;
    if (message < inf && message > reach) reach = message;
    if (logit < inf && logit > farthest) farthest = logit;
  }
  const double steepest = reach + farthest, lost = (double)n * 1e-300 * largest * real::exp(steepest < 700 ? steepest : 700);
  const double bound = lost + 0x1p-53 * (16 * real::sqrt((double)n + 1) + 4 * reach);
  return bound == bound ? bound : inf;
}

}  // namespace

ptrdiff_t chain_scratch(ptrdiff_t n, ptrdiff_t cap) {
  // Rows 0 .. n of the prefixes, row i with min(i, cap) + 1 entries, the suffix with a zero behind it, and the numbers of the
  // variables and counts.
  const ptrdiff_t rising = min(n, cap);
  return (rising + 1) * (rising + 2) / 2 + (n - rising) * (cap + 1) + cap + 2 + 4 * n + cap + 1;
}

// Counts zeros instead of ones where `zeros`, up to `cap`.
void chain(const double* nu, const double* log_f, ptrdiff_t n, ptrdiff_t cap, bool zeros, double* scratch,
           double* messages, double* log_mean, double* bound) {
  double *off = scratch, *on = off + n, *d0 = on + n, *d1 = d0 + n, *f = d1 + n, *row = f + cap + 1;
  for (ptrdiff_t i = 0; i < n; i++) {
    const double e = real::exp(-real::fabs(nu[i])), likely = 1 / (1 + e), rare = e / (1 + e);
    const bool positive = (nu[i] > 0) != zeros;
    on[i] = positive ? likely : rare;
    off[i] = positive ? rare : likely;
  }
  double top = -__builtin_inf();
  for (ptrdiff_t c = 0; c <= cap; c++) {
    f[c] = log_f[zeros ? n - c : c];
    top = max(top, f[c]);
  }
  for (ptrdiff_t c = 0; c <= cap; c++) f[c] = real::exp(f[c] - top);
  row[0] = 1;
  for (ptrdiff_t i = 0; i < n; i++) {
    const ptrdiff_t top = min(i, cap);
    extend(row, top, off[i], on[i], top < cap, row + top + 1);
    row += top + 1;
  }
  const ptrdiff_t end = min(n, cap);
  double total = 0, largest = 0;
  for (ptrdiff_t c = 0; c <= end; c++) total += row[c] * f[c];
  double* suffix = row + end + 1;
  for (ptrdiff_t c = 0; c <= cap; c++) {
    // Scaled so that <prefix_i, suffix_i> = 1 at every i.
    suffix[c] = total > 0 ? f[c] / total : f[c];
    largest = max(largest, suffix[c]);
  }
  suffix[cap + 1] = 0;
  for (ptrdiff_t i = n - 1; i >= 0; i--) {
    const ptrdiff_t top = min(i, cap);
    row -= top + 1;
    retreat(row, top, off[i], on[i], suffix, d0 + i, d1 + i, &largest);
  }
  *bound = certificate(nu, d0, d1, n, total, largest);
  *log_mean = real::log(total) + top;
  for (ptrdiff_t i = 0; i < n; i++) messages[i] = (zeros ? -1 : 1) * (real::log(d1[i]) - real::log(d0[i]));
}

}  // namespace tallytree::TT_LEVEL
