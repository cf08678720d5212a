// Tables and scales of messages that lie in lanes, one model per lane.
#pragma once
#include "base/elementary.hpp"
#include "base/exponent.hpp"
#include "base/transpose.hpp"

namespace tallytree::TT_LEVEL {

constexpr double kFaintTable = -690;  // logs of table entries, relative to the largest, below which they count as lost
constexpr double kFaintLost = -990;   // log2 of the error that this makes

// Scales n vectors so that the largest of each lane lies in [1, 2); returns the exponents. Zero lanes stay.
static inline vec rescale(vec* x, ptrdiff_t n) {
  vec top = vec{};
  for (ptrdiff_t k = 0; k < n; k++) top = max(top, x[k]);
  const vec shift = top > 0.0 ? exponent_of(top) : vec{}, factor = pow2(-shift);
  for (ptrdiff_t k = 0; k < n; k++) x[k] *= factor;
  return shift;
}

// exp(log f - its largest) in lanes; returns the largest, and raises `lost` where small entries vanished.
static inline vec weigh_table(const double* const* tables, bool shared, int64_t offset, ptrdiff_t n, vec* out,
                              vec* lost) {
  const double low = -__builtin_inf();
  if (shared) {
    const double* log_f = tables[0] + offset;
    double largest = low;
    for (ptrdiff_t k = 0; k < n; k++) largest = max(largest, log_f[k]);
    const double base = largest > low ? largest : 0.0;
    for (ptrdiff_t k = 0; k < n; k += kLanes) {
      const int valid = (int)(n - k < kLanes ? n - k : kLanes);
      const vec x = load_part(log_f + k, valid, low) - base, e = exp(x);
      for (int l = 0; l < valid; l++) {
        out[k + l] = splat(e[l]);
        if (x[l] < kFaintTable && x[l] > low) *lost = splat(kFaintLost);
      }
    }
    return splat(largest);
  }
  ptrdiff_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (int l = 0; l < kLanes; l++) out[k + l] = load(tables[l] + offset + k);
    transpose(out + k);
  }
  for (; k < n; k++)
    for (int l = 0; l < kLanes; l++) out[k][l] = tables[l][offset + k];
  vec top = splat(low);
  for (k = 0; k < n; k++) top = max(top, out[k]);
  const vec base = top > low ? top : vec{};
  for (k = 0; k < n; k++) {
    const vec x = out[k] - base;
    *lost = ((x < kFaintTable) & (x > low)) ? splat(kFaintLost) : *lost;
    out[k] = exp(x);
  }
  return top;
}

}  // namespace tallytree::TT_LEVEL
