// What the direct trees of flat models share, with derivatives and without: the table at the root.
#pragma once
#include "base/lane_entries.hpp"
#include "base/lane_tree.hpp"

namespace tallytree::TT_LEVEL {

constexpr double kTiny = 1e-280;  // the smallest Z that has a logarithm

// The leaves as one message of two entries each.
static inline vec* pairs_of(Leaf* leaf) { return &leaf->off; }

// One number of every model; lanes without one repeat the first.
static inline vec in_lanes(const double* x, int models) {
  vec v = splat(x[0]);
  for (int l = 1; l < models; l++) v[l] = x[l];
  return v;
}

// The counts that some table allows, and the largest log f under the tilt.
struct LaneTables {
  ptrdiff_t first, last;
  vec top;
};

// log f under the tilt, to the root.
static inline LaneTables read_tables(const double* const* log_f, int models, ptrdiff_t n, vec slope, vec* root) {
  const double low = -__builtin_inf();
  vec top = splat(low), first = splat((double)n), last = vec{};
  by_entry(log_f, models, n + 1, [&](ptrdiff_t k, vec x) {
    const vec count = splat((double)k);
    root[k] = x - slope * count;
    top = max(top, root[k]);
    first = (x > low) & (count < first) ? count : first;
    last = x > low ? count : last;
  });
  return {(ptrdiff_t)min_lanes(first), (ptrdiff_t)max_lanes(last), top};
}

// Whether zeros are counted because these are fewer, and the leaf or message as the counted side sees it.
static inline bool counts_zeros(const LaneTables& tables, ptrdiff_t n) { return n - tables.first < tables.last; }
static inline Leaf sides(const Leaf& a, bool zeros) { return zeros ? Leaf{a.on, a.off} : a; }

static inline void reverse(vec* x, ptrdiff_t count) {
  for (ptrdiff_t k = 0, m = count - 1; k < m; k++, m--) {
    const vec held = x[k];
    x[k] = x[m];
    x[m] = held;
  }
}

// Counts above `last` are in nobody's message: the largest one of a message is a multiple of 8 that is not below it.
static inline ptrdiff_t largest_count(ptrdiff_t last, ptrdiff_t groups) {
  const ptrdiff_t whole = kGroup * groups, cut = (last + 7) / 8 * 8;
  return cut < 8 ? 8 : cut < whole ? cut : whole;
}

}  // namespace tallytree::TT_LEVEL
