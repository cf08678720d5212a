// The linear pass in plain numbers, upwards and (from down_domain on) downwards.
//
// Upwards: up_p = f_p . (up_l * up_r), with its record of what underflow and cut ends may have lost;
// and what a star asks about the messages of its children.
#include "base/fft_merge.hpp"
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
  EACH(linear_down) EACH(wide_up) EACH(wide_start_down) EACH(wide_down) EACH(tangent_up)                            \
  EACH(tangent_start_down) EACH(tangent_down)

TT_KERNEL_TABLE(TreeKernels, tree_kernels, TT_TREE_KERNELS)

// Downward linear pass: down_l(i) = sum_j (f_p down_p)(i+j) up_r(j), beliefs and leaf messages.
//
// Certificate of the "fft" method. An error e of a merge c shifts Z by <e, g>, where g = f . down is the derivative of
// Z by c; relative to Z that is <e, g> / <c, g>. Mass m cut off a child's message
// shifts it by at most m max(g) times the sum of its sibling. Those shares of Z add up over all nodes (`amplified`);
// transforms on the way down add theirs along one path (`path_error`).
//
// A share h of Z becomes an error h Z / up(k) of the down value at count k. For a leaf that would read h / P(y), far
// too pessimistic where P(y) is small, so the conversion is made at the top of small exact subtrees and the vector
// Z / up(k), the `probe`, is passed down to the leaves like a message. All counts k share one h, as the errors e(k)
// satisfy sum_k up(k) |e(k)| <= h Z, so on the first step down only the worst count matters, not their sum.

// Counts for which a node's down message is computed: its reach, or what is left of it where ends were cut.
static Interval down_domain(const TreeItem& item, int32_t node) {
  const Interval reach = item.reach[node];
  if (node < item.tree->leaves || !item.use_fft) return reach;
  const Message& up = item.up[node - item.tree->leaves];
  const Interval support = item.support[node];
  const int last = up.lo + up.length - 1;
  return {up.lo == support.lo ? reach.lo : up.lo - (reach.lo < support.lo),
          last == support.hi ? reach.hi : last + (reach.hi > support.hi)};
}

// <up, down> on their common counts.
static double overlap(const Message& u, const double* d, Interval domain) {
  const int lo = max(u.lo, domain.lo), hi = min(u.lo + u.length - 1, domain.hi);
  return hi < lo ? 0.0 : dot(u.value + (lo - u.lo), d + (lo - domain.lo), hi - lo + 1);
}

void linear_start_down(TreeItem& item, Worker& worker, int32_t i) {
  const Interval domain = down_domain(item, item.tree->leaves + i);
  const int n = domain.hi - domain.lo + 1;
  double* ones = arena_take(worker.arena, (size_t)(n + kLanes));
  fill(ones, n, 1.0);
  fill(ones + n, kLanes, 0.0);
  item.down[i] = {ones, nullptr, domain.lo, n, 0.0};
  NodeNotes& note = item.notes[i];
  note.lost_down = -__builtin_inf();
  note.overlap = note.sum;
  note.down_limit = 1;
  note.path_error = 0;
  note.amplified = note.trimmed / note.sum;
  note.transformed = 0;
  note.probe = nullptr;
}

// The message; what underflow may have done to it; and what an error relative to Z does to it.
static void finish_leaf(TreeItem& item, int32_t leaf, const double* d, const double* probe, double lost,
                        double path_error) {
  const Interval reach = item.reach[leaf];
  write_message(item, leaf, d);
  double bound = 0, amplification = 0;
  for (int y = reach.lo; y <= reach.hi; y++) {
    // A state outside the reach is impossible for certain; one inside that vanished may have been lost.
    if (lost > -__builtin_inf()) bound += real::exp2(lost - real::log2(d[y - reach.lo]));
    if (probe) amplification += probe[y - reach.lo] > 0 ? probe[y - reach.lo] / d[y - reach.lo] : 0.0;
  }
  if (path_error > 0) bound += amplification * path_error;
  item.leaf_bound[leaf] = bound >= 0 ? bound : __builtin_inf();
  item.leaf_amplification[leaf] = amplification >= 0 ? amplification : __builtin_inf();
}

// g = f . down of one node, ready to be correlated.
struct Gradient {
  const double* value;  // value[0] belongs to count lo
  const double* probe;  // the probe times f, laid out like value; or null
  int lo, length;
  double sum, norm2, smallest, largest, lost;
  double* spectrum;  // null: correlate directly
};

// Z / up(k): the down error that corresponds to an error of all of Z.
static void start_probe(const Message& u, Interval domain, double z, double* probe) {
  for (int k = domain.lo; k <= domain.hi; k++) {
    const int j = k - u.lo;
    const double up = j >= 0 && j < u.length ? u.value[j] : 0.0;
    probe[k - domain.lo] = up > 0 ? z / up : 0.0;
  }
}

// Scales the n down values of an inner node, drops those below 2^kTiny and makes its notes. `z` is <up, down> and
// `limit` a bound of the values at any count, both before the scaling.
static void store_down(TreeItem& item, int32_t child, double* out, Interval domain, double lost, double z, double limit,
                       double path_error, double* probe) {
  const int n = domain.hi - domain.lo + 1;
  fill(out + n, kLanes, 0.0);
  const double top = largest(out, n), shift = top > 0 ? exponent_of(top) : 0.0;
  const double factor = pow2(-shift), tiny = pow2(kTiny);
  ivec dropped = {};
  for (int j = 0; j < n; j += kLanes) {
    const vec before = load(out + j), x = before * factor;
    dropped |= (x < tiny) & (before > 0.0);
    store(out + j, x < tiny ? vec{} : x);
  }
  if (probe)
    for (int j = 0; j < n; j++) probe[j] *= factor;
  NodeNotes& note = item.notes[child];
  note.lost_down = lost - shift;
  if (any(dropped)) note.lost_down = log2_sum_above(note.lost_down, kTiny);
  item.down[child] = {out, nullptr, domain.lo, n, 0.0};
  if (!item.use_fft) return;
  note.overlap = z * factor;
  note.down_limit = limit * factor;
  note.path_error = path_error;
  note.probe = probe;
  note.amplified = note.trimmed > 0 ? note.trimmed * note.down_limit / note.overlap : 0.0;
  note.transformed = 0;
}

static void down_to_child(TreeItem& item, Worker& worker, const NodeNotes& above, int32_t child, const UpView& own,
                          const UpView& sibling, const double* sibling_spectrum, const Gradient& g) {
  const int32_t leaves = item.tree->leaves;
  const bool leaf = child < leaves;
  const Interval domain = down_domain(item, child);
  const int n = domain.hi - domain.lo + 1;
  const Message& s = sibling.message;
  double lost = -__builtin_inf();
  if (max(g.lost, sibling.lost_up) > lost)
    lost = log2_sum_above(g.lost + sibling.log2_total(), sibling.lost_up + log2_total(g.sum, g.lost, g.length));
  if (g.smallest * sibling.smallest < pow2(kTiny)) lost = log2_sum_above(lost, -1070.0 + real::log2((double)s.length));

  double pair[kTileOutputs], pair_probe[kTileOutputs];
  double *out = pair, *probe = nullptr, error = 0;
  const double* aligned = g.value + (domain.lo + s.lo - g.lo);
  if (g.spectrum) {
    const FftPlan& plan = *fft_plan(item.plans, above.transform, kLanes);
    double* whole = scratch_part(worker, 3);
    correlate_fft(g.spectrum, sibling_spectrum, aligned, s.value, s.length, n, whole, scratch_part(worker, 4), plan);
    out = arena_take(worker.arena, (size_t)(n + kTileOutputs));
    std::memcpy(out, whole, sizeof(double) * (size_t)n);
    error = transform_error(above.transform, g.norm2, sibling.norm2, own.sum, own.norm2);
  } else {
    if (!leaf) out = arena_take(worker.arena, (size_t)(n + kTileOutputs));
    correlate_direct(aligned, s.value, s.length, out, n);
  }
  double z = 0, path_error = 0;
  if (item.use_fft) {
    z = overlap(own.message, out, domain);
    path_error = above.path_error + (error > 0 ? error / z : 0.0);
    if (own.exact) {
      probe = leaf ? pair_probe : arena_take(worker.arena, (size_t)(n + kTileOutputs));
      const double* from = g.probe ? g.probe + (domain.lo + s.lo - g.lo) : nullptr;
      if (!from) start_probe(own.message, domain, z, probe);
      else if (above.probe_starts) worst_of(from, s.value, s.length, probe, n);
      else correlate_direct(from, s.value, s.length, probe, n);
    }
  }
  if (leaf) return finish_leaf(item, child, out, probe, lost, path_error);

  store_down(item, child - leaves, out, domain, lost, z, g.largest * sibling.sum, path_error, probe);
  item.notes[child - leaves].probe_starts = !g.probe;
}

static void multiply(double* x, const double* f, int n) {
  for (int j = 0; j < n; j++) x[j] *= f[j];
}

// Of values that are at most about 2; 2 if there is none.
static double smallest_positive(const double* x, int n) {
  double least = 2;
  for (int j = 0; j < n; j++) least = x[j] > 0 ? min(least, x[j]) : least;
  return least;
}

// Copies `from` to `to + skip`, zeros before and after it.
static void embed(const double* from, int n, int skip, int total, double* to) {
  fill(to, skip, 0.0);
  std::memcpy(to + skip, from, sizeof(double) * (size_t)n);
  fill(to + skip + n, total - skip - n + kPad, 0.0);
}

void linear_down(TreeItem& item, Worker& worker, int32_t i) {
  const TreeView& tree = *item.tree;
  NodeNotes& note = item.notes[i];
  const Message d = item.down[i];
  double* f = scratch_part(worker, 0);
  write_beliefs(item, i);

  const int32_t l = tree.left[i], r = tree.right[i];
  const UpView a(item, l), b(item, r);
  const Interval domain_l = down_domain(item, l), domain_r = down_domain(item, r);
  const int la = a.message.lo, lb = b.message.lo, na = a.message.length, nb = b.message.length;

  // g = f . down, with zeros at every count that a shift by a child's entry can touch.
  const int lo = min(d.lo, min(domain_l.lo + lb, domain_r.lo + la));
  const int end = max(d.lo + d.length, max(domain_l.hi + lb + nb, domain_r.hi + la + na));
  double *value = scratch_part(worker, 1), *probe = note.probe ? scratch_part(worker, 2) : nullptr;
  embed(d.value, d.length, d.lo - lo, end - lo, value);
  if (probe) embed(note.probe, d.length, d.lo - lo, end - lo, probe);
  Gradient g = {value, probe, lo, d.length, 0, 0, 0, 0, note.lost_down, nullptr};
  if (tree.table_offset[i] >= 0) {
    const double least_down = smallest_positive(d.value, d.length);
    const TableLoss table = scaled_table(item, i, d.lo, d.length, note.table_exponent, f);
    multiply(value + (d.lo - lo), f, d.length);
    if (probe) multiply(probe + (d.lo - lo), f, d.length);
    g.lost += 1;
    // A product of the two may vanish although neither factor does, and then `least` below does not see it.
    if (table.dropped || table.smallest * least_down < pow2(kTiny)) g.lost = log2_sum_above(g.lost, kTiny + 1);
  }
  vec sum = {}, squares = {}, least = splat(2.0), largest = {};
  for (int j = d.lo - lo; j < d.lo - lo + d.length; j += kLanes) {
    const vec x = load(value + j);
    sum += x;
    squares += x * x;
    least = x > 0.0 ? min(least, x) : least;
    largest = max(largest, x);
  }
  g.sum = sum_lanes(sum);
  g.norm2 = real::sqrt(sum_lanes(squares));
  g.smallest = min_lanes(least);
  g.largest = max(max_lanes(largest), note.outside_table * note.down_limit);
  if (g.smallest < pow2(kTiny)) g.lost = log2_sum_above(g.lost, kTiny);

  const bool same_domains =
      domain_l.lo == la && domain_l.hi == la + na - 1 && domain_r.lo == lb && domain_r.hi == lb + nb - 1;
  if (note.transform > 0) {
    // <c, g> = <up, down> 2^shift, as up = f c 2^-shift.
    const double error = transform_error(note.transform, a.norm2, b.norm2, g.sum, g.norm2);
    note.transformed = error / (note.overlap * pow2(note.shift));
    if (same_domains) {
      g.spectrum = scratch_part(worker, 5);
      correlate_fft_prepare(value + (la + lb - lo), na + nb - 1, g.spectrum, scratch_part(worker, 3),
                            *fft_plan(item.plans, note.transform, kLanes));
    }
  }
  down_to_child(item, worker, note, l, a, b, note.right_spectrum, g);
  down_to_child(item, worker, note, r, b, a, note.left_spectrum, g);
}

void wave_gradient(TreeItem& item, Worker& worker, int32_t i, double* g) {
  const Message d = item.down[i];
  NodeNotes& note = item.notes[i];
  embed(d.value, d.length, 0, d.length, g);
  if (item.tree->table_offset[i] >= 0) {
    double* f = scratch_part(worker, 1);
    scaled_table(item, i, d.lo, d.length, note.table_exponent, f);
    multiply(g, f, d.length);
  }
  vec sum = {};
  for (int j = 0; j < d.length; j += kLanes) sum += load(g + j);
  note.transformed = note.wave_error * sum_lanes(sum) / (note.overlap * pow2(note.shift));
}

Interval star_domain(const TreeItem& item, int32_t node) { return down_domain(item, item.tree->leaves + node); }

void star_child(TreeItem& item, Worker& worker, int32_t star, int32_t child, const double* value, double error,
                double down_limit, double lost) {
  const Interval domain = star_domain(item, child);
  const int n = domain.hi - domain.lo + 1;
  double* out = arena_take(worker.arena, (size_t)(n + kTileOutputs));
  for (int j = 0; j < n; j++) out[j] = max(value[j], 0.0);
  const NodeNotes& note = item.notes[child];
  const double z = overlap(item.up[child], out, domain);
  double* probe = nullptr;
  if (note.exact) {
    probe = arena_take(worker.arena, (size_t)(n + kTileOutputs));
    start_probe(item.up[child], domain, z, probe);
  }
  store_down(item, child, out, domain, lost, z, down_limit, item.notes[star].path_error + error * note.sum / z, probe);
  item.notes[child].probe_starts = true;
}

}  // namespace tallytree::TT_LEVEL
