// Upward linear pass: up_p = f_p . (up_l * up_r), with its record of what underflow and cut ends may have lost;
// and what a star asks about the messages of its children.
#include "base/fft_merge.hpp"
#include "base/kernel_table.hpp"
#include "base/tails.hpp"
#include "tree/linear.hpp"

namespace tallytree::TT_LEVEL {

static void store_zero(TreeItem& item, Worker& worker, int32_t i, int lo, double lost) {
  item.up[i] = {arena_take(worker.arena, kLanes), nullptr, lo, 1, 0.0};
  fill(item.up[i].value, kLanes, 0.0);
  NodeNotes& note = item.notes[i];
  note.sum = note.norm2 = 0;
  note.smallest = 1;
  note.lost_up = lost;
}

// Largest scaled table value on the parts of `whole` outside lo..hi.
static double table_outside(const TreeItem& item, int32_t i, Interval whole, int lo, int hi, double top) {
  if (item.tree->table_offset[i] < 0) return 1.0;
  double e = kZeroExponent;
  if (whole.lo < lo) e = max(e, table_exponent(item, i, whole.lo, lo - whole.lo));
  if (whole.hi > hi) e = max(e, table_exponent(item, i, hi + 1, whole.hi - hi));
  return 1.5 * pow2(max(e - top, -1022.0));
}

// Scales the n values so that the largest lies in [1, 2), drops those below 2^kTiny and keeps the result.
static void normalise_and_store(TreeItem& item, Worker& worker, int32_t i, double* c, int lo, int n, double scale,
                                double lost) {
  fill(c + n, kLanes, 0.0);
  const double top = largest(c, n);
  if (!(top > 0)) return store_zero(item, worker, i, lo, lost);
  NodeNotes& note = item.notes[i];
  note.shift = exponent_of(top);
  const double factor = pow2(-note.shift), tiny = pow2(kTiny);
  double* out = arena_take(worker.arena, (size_t)(n + kLanes));
  vec sum = {}, squares = {}, least = splat(2.0);
  ivec dropped = {};
  for (int j = 0; j < n; j += kLanes) {
    const vec before = load(c + j);
    vec x = before * factor;
    const auto small = x < tiny;
    dropped |= small & (before > 0.0);
    x = small ? vec{} : x;
    least = small ? least : min(least, x);
    sum += x;
    squares += x * x;
    store(out + j, x);
  }
  note.sum = sum_lanes(sum);
  note.norm2 = real::sqrt(sum_lanes(squares));
  note.smallest = min_lanes(least);
  note.trimmed *= factor;
  note.lost_up = lost - note.shift;
  if (any(dropped)) note.lost_up = log2_sum_above(note.lost_up, kTiny);
  item.up[i] = {out, nullptr, lo, n, scale + note.shift};
}

// c = a * b, by transform where that is allowed and pays.
static void merge(TreeItem& item, Worker& worker, NodeNotes& note, const UpView& a, const UpView& b, double* c) {
  const int na = a.message.length, nb = b.message.length, N = merge_length(na, nb);
  if (!item.use_fft || !fft_pays(na, nb, N))
    return convolve_direct(a.message.value, na, b.message.value, nb, c, scratch_part(worker, 1));
  note.transform = N;
  note.left_spectrum = arena_take(worker.arena, (size_t)N);
  note.right_spectrum = arena_take(worker.arena, (size_t)N);
  convolve_fft(a.message.value, na, b.message.value, nb, c, note.left_spectrum, note.right_spectrum,
               scratch_part(worker, 1), *fft_plan(item.plans, N, kLanes));
}

// What is known before the table comes in: values at the counts start, start + 1, ..., of which `kept` are kept.
struct Merged {
  double* value;
  int start;
  Interval kept;
  double scale;
  double sum, smallest;  // bounds of the sum and of the smallest positive value
  double lost;           // log2 of what underflow took
  double cut;            // mass outside `kept`
  bool exact_ends;       // small values are as accurate as large ones
};

static void apply_table_and_store(TreeItem& item, Worker& worker, int32_t i, Merged m) {
  const TreeView& tree = *item.tree;
  NodeNotes& note = item.notes[i];
  const Interval s = item.support[tree.leaves + i];
  Interval kept = m.kept;
  double* c = m.value + (kept.lo - m.start);
  if (tree.table_offset[i] >= 0) {
    const Interval reach = item.reach[tree.leaves + i];
    const int n = kept.hi - kept.lo + 1, first = min(reach.lo, s.lo), last = max(reach.hi, s.hi);
    note.table_exponent = table_exponent(item, i, first, last - first + 1);
    double* f = scratch_part(worker, 1);
    const TableLoss table = scaled_table(item, i, kept.lo, n, note.table_exponent, f);
    for (int j = 0; j < n; j += kLanes) store(c + j, load(c + j) * load(f + j));
    m.lost += 1;
    if (table.dropped) m.lost = log2_sum_above(m.lost, kTiny + real::log2(m.sum + 1.0));
    if (m.smallest * table.smallest < pow2(kTiny)) m.lost = log2_sum_above(m.lost, -1070.0);
  }
  if (item.use_fft && m.exact_ends && kept.hi - kept.lo + 1 >= kTrimFrom) {
    // The values are accurate up to the ends, so these can be judged by looking.
    const int n = kept.hi - kept.lo + 1;
    const double budget = 0.5 * kTrim * total(c, n);
    const int below = entries_to_cut(n, budget, [&](int k) { return c[k]; });
    const int above = entries_to_cut(n - below, budget, [&](int k) { return c[n - 1 - k]; });
    note.trimmed += total(c, below) + total(c + n - above, above);
    kept.hi -= above;
    kept.lo += below;
    c += below;
  }
  if (kept.lo > s.lo || kept.hi < s.hi) {
    note.outside_table = table_outside(item, i, s, kept.lo, kept.hi, note.table_exponent);
    note.trimmed += m.cut * note.outside_table;
  }
  note.exact = note.exact && note.trimmed == 0;
  normalise_and_store(item, worker, i, c, kept.lo, kept.hi - kept.lo + 1, m.scale + note.table_exponent, m.lost);
}

void linear_up(TreeItem& item, Worker& worker, int32_t i) {
  const TreeView& tree = *item.tree;
  NodeNotes& note = item.notes[i];
  const UpView a(item, tree.left[i]), b(item, tree.right[i]);
  const int start = a.message.lo + b.message.lo, count = a.message.length + b.message.length - 1;
  const int terms = min(a.message.length, b.message.length);
  note = {};
  note.rounding = terms + 16.0;
  const Interval s = item.support[tree.leaves + i];
  Interval kept = {max(start, s.lo), min(start + count - 1, s.hi)};
  if (kept.hi < kept.lo) return store_zero(item, worker, i, s.lo, __builtin_inf());

  double* c = scratch_part(worker, 0);
  merge(item, worker, note, a, b, c);
  double cut_before_table = 0;
  if (note.transform > 0) {
    const Interval entries = kept_by_chernoff(a.message.value, a.message.length, a.sum, b.message.value,
                                              b.message.length, b.sum);
    kept = {max(kept.lo, start + entries.lo), min(kept.hi, start + entries.hi)};
    if (entries.lo > 0 || entries.hi < count - 1) cut_before_table = kTrim * a.sum * b.sum;
    if (kept.hi < kept.lo) return store_zero(item, worker, i, s.lo, __builtin_inf());
  }
  double lost = -__builtin_inf();
  if (max(a.lost_up, b.lost_up) > lost) lost = log2_sum_above(a.lost_up + b.log2_total(), b.lost_up + a.log2_total());
  if (a.smallest * b.smallest < pow2(kTiny)) lost = log2_sum_above(lost, -1070.0 + real::log2((double)terms));

  note.exact = a.exact && b.exact && note.transform == 0 && tree.size[tree.leaves + i] <= kProbeSize;
  apply_table_and_store(item, worker, i,
                        {c, start, kept, a.message.scale + b.message.scale, a.sum * b.sum, a.smallest * b.smallest, lost,
                         cut_before_table, note.transform == 0});
}

void wave_up(TreeItem& item, Worker& worker, int32_t i, const WaveMessage& wave) {
  NodeNotes& note = item.notes[i];
  note = {};
  note.rounding = 16;
  note.wave_error = wave.error;
  fill(wave.value + wave.length, kLanes, 0.0);
  apply_table_and_store(item, worker, i,
                        {wave.value, wave.lo, {wave.lo, wave.lo + wave.length - 1}, wave.scale, wave.sum, 1e-100,
                         -__builtin_inf(), wave.outside, false});
}

// Counts k and k + shift are paired, every count at most once; a pair (a, b) overlaps by a b / (a + b).
static double paired_overlap(const double* p, int n, int shift) {
  double total = 0;
  if (shift < kLanes) {
    for (int k = 0; k + shift < n; k += 2 * shift)
      for (int j = k; j < k + shift && j + shift < n; j++) {
        const double sum = p[j] + p[j + shift];
        if (sum > 0) total += p[j] * p[j + shift] / sum;
      }
    return total;
  }
  vec lanes = {};
  for (int k = 0; k + shift < n; k += 2 * shift) {
    int j = k;
    for (; j + kLanes <= min(k + shift, n - shift); j += kLanes) {
      const vec a = load(p + j), b = load(p + j + shift), sum = a + b;
      lanes += sum > 0.0 ? a * b / sum : vec{};
    }
    for (; j < k + shift && j + shift < n; j++) {
      const double sum = p[j] + p[j + shift];
      if (sum > 0) total += p[j] * p[j + shift] / sum;
    }
  }
  return total + sum_lanes(lanes);
}

void child_shape(const double* value, int32_t length, double sum, ChildShape* shape) {
  const Moments m = moments(value, length, sum);
  shape->mean = m.mean;
  shape->variance = m.variance;
  for (int j = 0; j < kStarShiftCount; j++) shape->overlap[j] = paired_overlap(value, length, kStarShifts[j]) / sum;
}

double child_log_mgf(const double* value, int32_t length, double sum, double s, int32_t centre) {
  return log_mgf(value, length, sum, s, centre);
}

#define TT_TREE_KERNELS(EACH)                                                                                      \
  EACH(tree_leaves) EACH(block_up) EACH(block_down) EACH(wave_up) EACH(wave_gradient) EACH(child_shape)             \
  EACH(child_log_mgf) EACH(star_child) EACH(star_domain) EACH(small_scratch) EACH(small_messages)                   \
  EACH(small_tangents) EACH(small_draws) EACH(small_counts) EACH(linear_up) EACH(linear_start_down)                 \
  EACH(linear_down) EACH(tiled_up) EACH(tiled_start_down) EACH(tiled_down) EACH(wide_up) EACH(wide_start_down)      \
  EACH(wide_down) EACH(tangent_up) EACH(tangent_start_down) EACH(tangent_down)

TT_KERNEL_TABLE(TreeKernels, tree_kernels, TT_TREE_KERNELS)

}  // namespace tallytree::TT_LEVEL
