// Direct tree for small flat models: the models of a batch lie side by side in the lanes of a register.
//
// Only positive terms are added, so every number is relatively accurate as long as it stays in range. Leaves
// are pairs (q, p) with q + p = 1 and the table is scaled to maximum 1; then every message is at most 1, all that
// underflow can do is an absolute error below n^3 1e-307, and it is harmless if and only if the
// smallest number that is used as a divisor is far above that. `smallest` reports it. Infinite logits are leaves (1, 0)
// and (0, 1) like others.
//
// Messages end at the largest count that a table allows. Where the counts of zeros are fewer than those of ones, zeros
// are counted: the leaves are swapped, the tables reversed, and the two sides of the answers swapped back.
#include "base/real.hpp"
#include "flat/direct.hpp"
#include "flat/kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr ptrdiff_t kSafeFactors = 512;  // factors in (1, 2] that multiply without overflow

struct Layout {
  ptrdiff_t groups;
  Leaf *leaf, *weight;  // leaves become their downward messages; their weights are kept
  vec *tree, *root, *padded, *buffer;
  ptrdiff_t doubles;
};

Layout layout(ptrdiff_t n, double* scratch) {
  Layout s;
  s.groups = (n + kGroup - 1) / kGroup;
  const ptrdiff_t leaves = kGroup * s.groups, counts = leaves + 1;
  LaneRoom room = {(vec*)scratch};
  s.leaf = (Leaf*)room.take(2 * leaves);
  s.weight = (Leaf*)room.take(2 * leaves);
  s.tree = room.take(tree_size(s.groups));
  s.root = room.take(counts + kLanePad);
  s.padded = room.take(counts + 2 * kLanePad);
  s.buffer = room.take(2 * counts + 256);  // downward messages on a path take at most twice the root's length
  s.doubles = room.doubles_from(scratch);
  return s;
}

}  // namespace

// Doubles, for memory aligned to a register.
ptrdiff_t direct_scratch(ptrdiff_t n) { return layout(n, nullptr).doubles; }

void direct(const double* const* nu, const double* const* log_f, const double* tilt, int models, ptrdiff_t n,
            double* scratch, DirectTotals* totals, double* const* ratio, double* const* marginal) {
  const Layout s = layout(n, scratch);
  const double inf = __builtin_inf(), low = -inf;
  const vec slope = in_lanes(tilt, models);
  const LaneTables tables = read_tables(log_f, models, n, slope, s.root);
  const vec top = tables.top;
  const bool zeros = counts_zeros(tables, n);
  const ptrdiff_t most = largest_count(zeros ? n - tables.first : tables.last, s.groups), last = n < most ? n : most;
  if (zeros) reverse(s.root, n + 1);

  vec positive = vec{}, norm = splat(1.0), log_norm = vec{}, largest = vec{};
  by_entry(nu, models, n, [&](ptrdiff_t i, vec x) {
    const vec t = x + slope;
    const Deviation d = deviation(t);
    s.weight[i] = leaf_of(t, d);
    s.leaf[i] = sides(s.weight[i], zeros);
    positive += ((t > 0.0) & (t < inf)) ? t : vec{};
    largest = max(largest, abs(t) < inf ? abs(t) : vec{});
    norm *= 1.0 + d.e;
    if (i % kSafeFactors == kSafeFactors - 1) {
      log_norm += log(norm);
      norm = splat(1.0);
    }
  });
  log_norm += log(norm);
  for (ptrdiff_t i = n; i < kGroup * s.groups; i++) s.leaf[i] = {splat(1.0), vec{}};

  lane_up(pairs_of(s.leaf), s.groups, most, s.tree, s.padded);
  vec z = vec{};
  for (ptrdiff_t k = 0; k <= last; k++) {
    s.root[k] = exp(s.root[k] - top);
    z += s.root[k] * s.tree[k];
  }
  for (ptrdiff_t k = last + 1; k <= kGroup * s.groups + kLanePad; k++) s.root[k] = vec{};

  vec least = z;
  lane_down(pairs_of(s.leaf), s.groups, most, s.tree, s.root, s.buffer);
  ptrdiff_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    vec block[kLanes], on[kLanes];
    for (int j = 0; j < kLanes; j++) {
      block[j] = leave_one_out_ratio(sides(s.leaf[i + j], zeros), &least);
      on[j] = marginal_of(s.weight[i + j], block[j]);
    }
    transpose(block);
    transpose(on);
    for (int l = 0; l < models; l++) {
      store(ratio[l] + i, block[l]);
      store(marginal[l] + i, on[l]);
    }
  }
  for (; i < n; i++) {
    const vec r = leave_one_out_ratio(sides(s.leaf[i], zeros), &least), m = marginal_of(s.weight[i], r);
    for (int l = 0; l < models; l++) {
      ratio[l][i] = r[l];
      marginal[l][i] = m[l];
    }
  }
  for (int l = 0; l < models; l++)
    totals[l] = {(z[l] > kTiny ? real::log(z[l]) : low) + top[l], least[l], positive[l] + log_norm[l], largest[l]};
}

void messages_from_ratio(const double* ratio, ptrdiff_t n, double tilt, double* out) {
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    store_up_to(out + i, log(load_up_to(ratio + i, n - i, 1.0)) + tilt, n - i);
  }
}

}  // namespace tallytree::TT_LEVEL
