// Upward pass with derivatives: up = f . (up_l * up_r), up' = f . (up_l' * up_r + up_l * up_r' + h (up_l * up_r)).
#include "base/tails.hpp"
#include "tree/tangent.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr int kTrimFrom = 48;         // shorter messages are left whole
constexpr double kTangentTail = 1e4;  // tails of a tangent may be this much heavier than those of the value

// c = a * b and c' = a' * b + a * b', by transform where that pays.
void merge(TangentItem& item, Worker& worker, TangentNode& node, const DualView& a, const DualView& b, double* c,
           double* c1) {
  const int na = a.length, nb = b.length, N = merge_length(na, nb), count = na + nb - 1;
  double *work = tangent_scratch(worker, 2), *other = tangent_scratch(worker, 3);
  if (!item.use_fft || !fft_pays(na, nb, N)) {
    convolve_direct(a.value, na, b.value, nb, c, work);
    convolve_direct(a.change, na, b.value, nb, c1, work);
    convolve_direct(a.value, na, b.change, nb, other, work);
    add_multiple(c1, other, 1.0, count);
    return;
  }
  const FftPlan& plan = *fft_plan(item.plans, N, kLanes);
  node.transform = N;
  node.spectra = arena_take(worker.arena, 4 * (size_t)N);
  double *left = node.spectra, *left1 = left + N, *right = left1 + N, *right1 = right + N;
  convolve_fft(a.value, na, b.value, nb, c, left, right, work, plan);
  padded_spectrum(a.change, na, left1, c1, plan);
  padded_spectrum(b.change, nb, right1, c1, plan);
  multiply_spectra_tangent<false>(left, left1, right, right1, N, work);
  fft_backward(work, c1, plan);
  if (count == N + 1) {
    const double last = a.change[na - 1] * b.value[nb - 1] + a.value[na - 1] * b.change[nb - 1];
    c1[0] += last;
    c1[N] = last;
  }
}

// Multiplies by the table on the kept counts. The scale is the largest entry there.
void apply_table(const TangentItem& item, Worker& worker, int32_t i, Interval kept, TangentNode& node, double* c,
                 double* c1) {
  const int64_t offset = item.tree->table_offset[i];
  const int size = item.tree->size[item.tree->leaves + i], n = kept.hi - kept.lo + 1;
  const double low = -__builtin_inf(), *log_f = item.tables + offset;
  double top = low, all = low;
  for (int k = 0; k <= size; k++) all = max(all, log_f[k]);
  for (int k = kept.lo; k <= kept.hi; k++) top = max(top, log_f[k]);
  if (top == low) {
    fill(c, n, 0.0);
    fill(c1, n, 0.0);
    return;
  }
  node.log_top = top;
  node.table_limit = real::exp(min(all - top, 700.0));
  double* f = tangent_scratch(worker, 2);
  for (int k = 0; k < n; k += kLanes) store(f + k, exp(load_part(log_f + kept.lo + k, min(n - k, kLanes), low) - top));
  if (item.h) {
    const double* h = item.h + offset;
    for (int k = 0; k <= size; k++)
      if (log_f[k] > low) node.direction_limit = max(node.direction_limit, real::fabs(h[k]));
    for (int k = 0; k < n; k++)
      if (f[k] > 0) c1[k] += h[kept.lo + k] * c[k];
  }
  for (int k = 0; k < n; k++) {
    c[k] *= f[k];
    c1[k] *= f[k];
  }
}

// How many entries to cut, walking inwards from an end, without exceeding the budget of value + change * weight.
int entries_to_cut(const double* c, const double* c1, int step, int n, double weight, double budget, TangentNode& node) {
  double used = 0;
  int k = 0;
  for (; k < n - 1; k++, c += step, c1 += step) {
    used += *c + weight * real::fabs(*c1);
    if (used > budget) break;
    node.cut += *c;
    node.change_cut += real::fabs(*c1);
  }
  return k;
}

// Scales, centres and keeps the message.
void keep(Worker& worker, TangentNode& node, const double* c, const double* c1, int lo, int n) {
  const double top = largest_value(c, n);
  node.factor = top > 0 ? pow2(-exponent_of(top)) : 1.0;
  double* value = arena_take(worker.arena, 2 * (size_t)(n + kPad));
  double* change = value + n + kPad;
  double sum = 0, moved = 0;
  for (int k = 0; k < n; k++) {
    value[k] = c[k] * node.factor;
    change[k] = c1[k] * node.factor;
    sum += value[k];
    moved += change[k];
  }
  if (sum > 0) add_multiple(change, value, -moved / sum, n);
  fill(value + n, kPad, 0.0);
  fill(change + n, kPad, 0.0);
  const Norms a = norms(value, n), b = norms(change, n);
  node.up = {value, change, lo, n};
  node.sum = a.one;
  node.norm = a.two;
  node.change_sum = b.one;
  node.change_norm = b.two;
  node.cut *= node.factor;
  node.change_cut *= node.factor;
}

}  // namespace

void tree_tangent_up(TangentItem& item, Worker& worker, int32_t i) {
  const TreeView& tree = *item.tree;
  TangentNode& node = item.nodes[i];
  node = {};
  node.table_limit = 1;
  const DualView a(item, tree.left[i]), b(item, tree.right[i]);
  const int start = a.lo + b.lo, count = a.length + b.length - 1;
  double *c = tangent_scratch(worker, 0), *c1 = tangent_scratch(worker, 1);
  merge(item, worker, node, a, b, c, c1);
  Interval kept = {start, start + count - 1};
  // A table may lift again what underflow took, also beyond the counts that are left.
  double lost = kLeastNumber * (double)tree.size[tree.leaves + i], lost_change = lost * item.direction_limit;
  if (node.transform && item.trim) {
    const Interval entries = kept_by_chernoff(a.value, a.length, a.sum, b.value, b.length, b.sum);
    kept = {start + entries.lo, start + entries.hi};
    lost += kTrim * a.sum * b.sum;
    lost_change += kTrim * kTangentTail * (a.change_sum * b.sum + a.sum * b.change_sum);
  }
  c += kept.lo - start;
  c1 += kept.lo - start;
  if (tree.table_offset[i] >= 0) apply_table(item, worker, i, kept, node, c, c1);
  int n = kept.hi - kept.lo + 1;
  const double total = norms(c, n).one, total_change = norms(c1, n).one;
  const bool look = item.trim && !node.transform && n >= kTrimFrom && total > 0;
  const double weight = total_change > 0 ? total / total_change : 0.0, budget = look ? 0.5 * kTrim * total : 0.0;
  const int below = entries_to_cut(c, c1, 1, n, weight, budget, node);
  c += below;
  c1 += below;
  n -= below;
  n -= entries_to_cut(c + n - 1, c1 + n - 1, -1, n, weight, budget, node);
  node.cut += lost * node.table_limit;
  node.change_cut += (lost_change + lost * node.direction_limit) * node.table_limit;
  keep(worker, node, c, c1, kept.lo + below, n);
}

}  // namespace tallytree::TT_LEVEL
