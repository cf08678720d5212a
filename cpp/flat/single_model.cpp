// One flat model by itself, in plain numbers: by a direct tree, or along the chain of partial sums (at the end of the file).
//
// The direct tree of one small model: its variables are dealt out to the lanes of a register, every lane sums its own,
// and the messages of the lanes are merged as plain vectors. The terms, and the reasons why they are accurate, are those
// of direct.cpp.
#include "base/convolve.hpp"
#include "base/simd_tree.hpp"
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

// One potential along a chain of partial sums:
//
//   prefix_{i+1}(c) = off_i prefix_i(c) + on_i prefix_i(c - 1)
//   suffix_i(c) = off_i suffix_{i+1}(c) + on_i suffix_{i+1}(c + 1)
//
// All prefixes are kept, as the method has it: O(n cap) of time and memory. Sums of positive terms.

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
