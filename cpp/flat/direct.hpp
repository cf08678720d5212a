// What the direct trees of flat models share, with derivatives and without: the table at the root.
#pragma once
#include "tree/lane_entries.hpp"
#include "tree/lane_tree.hpp"

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

// log f under the tilt, to the root of `groups` groups; returns the largest. Counts above the last that a table allows are
// in nobody's message: `most`, a multiple of 8, is not below it.
static inline vec read_tables(const double* const* log_f, int models, ptrdiff_t n, vec slope, ptrdiff_t groups, vec* root,
                              ptrdiff_t* most) {
  const double low = -__builtin_inf();
  vec top = splat(low), last = vec{};
  by_entry(log_f, models, n + 1, [&](ptrdiff_t k, vec x) {
    root[k] = x - slope * (double)k;
    top = max(top, root[k]);
    last = x > low ? splat((double)k) : last;
  });
  const ptrdiff_t whole = kGroup * groups, cut = ((ptrdiff_t)max_lanes(last) + 7) / 8 * 8;
  *most = cut < 8 ? 8 : cut < whole ? cut : whole;
  return top;
}

}  // namespace tallytree::TT_LEVEL
