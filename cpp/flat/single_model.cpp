// Direct tree for one small flat model: its variables are dealt out to the lanes of a register, every lane sums its own,
// and the messages of the lanes are merged as plain vectors. The terms, and the reasons why they are accurate, are those
// of direct.cpp.
#include "base/convolve.hpp"
#include "base/simd_tree.hpp"
#include "base/real.hpp"
#include "flat/kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr int kRoom = 64;  // after every vector, for tiles that reach beyond its end
constexpr int kLevels = kLanes == 8 ? 4 : kLanes == 4 ? 3 : 2;  // of merged lanes, the lanes themselves included
constexpr int kTop = kLevels - 1;
constexpr double kTiny = 1e-280;  // the smallest Z that has a logarithm

// Leaf l of slot i is variable i kLanes + l, so a lane holds at most `slots` variables. On level j a message joins 2^j
// lanes and has 2^j slots + 1 entries.
struct Layout {
  ptrdiff_t slots, groups, doubles;
  Leaf *leaf, *weight;  // leaves become their downward messages; their weights are kept
  vec *tree, *lane_down, *padded, *buffer;
  double* up[kLevels];
  double* down[kLevels];
  double* shifted;
  int length(int level) const { return (int)(slots << level) + 1; }
  ptrdiff_t stride(int level) const { return (length(level) + kRoom + 7) / 8 * 8; }
};

Layout lay_out(ptrdiff_t n, double* scratch) {
  Layout a;
  a.slots = (n + kLanes - 1) / kLanes;
  a.groups = (a.slots + kGroup - 1) / kGroup;
  const ptrdiff_t counts = kGroup * a.groups + 1;
  LaneRoom room = {(vec*)scratch};
  a.leaf = (Leaf*)room.take(2 * kGroup * a.groups);
  a.weight = (Leaf*)room.take(2 * kGroup * a.groups);
  a.tree = room.take(tree_size(a.groups));
  a.lane_down = room.take(counts);
  a.padded = room.take(counts + 2 * kLanePad);
  a.buffer = room.take(2 * counts + 256);
  for (int level = 0; level < kLevels; level++) {
    a.up[level] = room.take_other<double>((kLanes >> level) * a.stride(level));
    a.down[level] = room.take_other<double>((kLanes >> level) * a.stride(level));
  }
  a.shifted = room.take_other<double>(a.stride(kTop) + 2 * kPad);
  a.doubles = room.doubles_from(scratch);
  return a;
}

struct LeafSums {
  double softplus, largest;
};

// Leaves under the tilt and all messages up; the root's is up[kTop].
LeafSums messages_up(const Layout& a, const double* nu, double tilt, ptrdiff_t n) {
  const double inf = __builtin_inf(), low = -inf;
  vec positive = vec{}, norm = splat(1.0), largest = vec{};
  for (ptrdiff_t i = 0; i < a.slots; i++) {
    const ptrdiff_t left = n - i * kLanes;
    const vec t = load_up_to(nu + i * kLanes, left, low) + tilt;
    const Deviation d = deviation(t);
    a.leaf[i] = a.weight[i] = leaf_of(t, d);
    positive += ((t > 0.0) & (t < inf)) ? t : vec{};
    largest = max(largest, abs(t) < inf ? abs(t) : vec{});
    norm *= 1.0 + d.e;  // at most 2^512 for the sizes that come here
  }
  for (ptrdiff_t i = a.slots; i < kGroup * a.groups; i++) a.leaf[i] = {splat(1.0), vec{}};
  lane_up(&a.leaf->off, a.groups, kGroup * a.groups, a.tree, a.padded);
  for (int k = 0; k < a.length(0); k++)
    for (int l = 0; l < kLanes; l++) a.up[0][l * a.stride(0) + k] = a.tree[k][l];
  for (int level = 1; level < kLevels; level++) {
    const double* below = a.up[level - 1];
    const int length = a.length(level - 1);
    const ptrdiff_t stride = a.stride(level - 1);
    for (int m = 0; m < kLanes >> level; m++)
      convolve_direct(below + 2 * m * stride, length, below + (2 * m + 1) * stride, length,
                      a.up[level] + m * a.stride(level), a.shifted);
  }
  return {sum_lanes(positive) + sum_lanes(log(norm)), max_lanes(largest)};
}

}  // namespace

ptrdiff_t single_scratch(ptrdiff_t n) { return lay_out(n, nullptr).doubles; }

double single_pmf(const double* nu, double tilt, ptrdiff_t n, double* scratch, double* log_pmf) {
  const Layout a = lay_out(n, scratch);
  const LeafSums sums = messages_up(a, nu, tilt, n);
  const double* p = a.up[kTop];
  for (ptrdiff_t k = 0; k <= n; k += kLanes) store_up_to(log_pmf + k, log(load(p + k)), n + 1 - k);
  for (ptrdiff_t k = 0; k <= n; k++)
    if (!(p[k] > 0)) log_pmf[k] = -__builtin_inf();
  return sums.softplus;
}

void single(const double* nu, const double* log_f, double tilt, ptrdiff_t n, double* scratch, DirectTotals* totals,
            double* ratio, double* marginal) {
  const Layout a = lay_out(n, scratch);
  const double low = -__builtin_inf();
  const LeafSums sums = messages_up(a, nu, tilt, n);

  double* root = a.down[kTop];
  double top = low;
  for (ptrdiff_t k = 0; k <= n; k++) {
    root[k] = log_f[k] - tilt * (double)k;
    top = root[k] > top ? root[k] : top;
  }
  for (ptrdiff_t k = n + 1; k < a.stride(kTop); k++) root[k] = low;
  for (ptrdiff_t k = 0; k < a.stride(kTop); k += kLanes) store(root + k, exp(load(root + k) - top));
  const double z = dot(root, a.up[kTop], (int)n + 1);
  for (int level = kTop - 1; level >= 0; level--) {
    const double* u = a.up[level];
    const int length = a.length(level);
    const ptrdiff_t stride = a.stride(level);
    for (int m = 0; m < kLanes >> (level + 1); m++) {
      const double* d = a.down[level + 1] + m * a.stride(level + 1);
      correlate_direct(d, u + (2 * m + 1) * stride, length, a.down[level] + 2 * m * stride, length);
      correlate_direct(d, u + 2 * m * stride, length, a.down[level] + (2 * m + 1) * stride, length);
    }
  }
  for (int k = 0; k < a.length(0); k++)
    for (int l = 0; l < kLanes; l++) a.lane_down[k][l] = a.down[0][l * a.stride(0) + k];
  for (ptrdiff_t k = a.length(0); k <= kGroup * a.groups; k++) a.lane_down[k] = vec{};
  lane_down(&a.leaf->off, a.groups, kGroup * a.groups, a.tree, a.lane_down, a.buffer);

  vec least = splat(z);
  for (ptrdiff_t i = 0; i < a.slots; i++) {
    Leaf d = a.leaf[i];
    const ptrdiff_t left = n - i * kLanes;
    for (ptrdiff_t l = left; l < kLanes; l++) d.off[l] = d.on[l] = z;
    const vec r = leave_one_out_ratio(d, &least), m = marginal_of(a.weight[i], r);
    store_up_to(ratio + i * kLanes, r, left);
    store_up_to(marginal + i * kLanes, m, left);
  }
  *totals = {(z > kTiny ? real::log(z) : low) + top, min_lanes(least), sums.softplus, sums.largest};
}

}  // namespace tallytree::TT_LEVEL
