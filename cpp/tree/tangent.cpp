// Up and down a tree with derivatives: up = f . (up_l * up_r), up' = f . (up_l' * up_r + up_l * up_r' + h (up_l * up_r));
// beliefs, their changes, and those of the variables.
//
// Any multiple of a message's value may be taken off its tangent: that only changes how its scale depends on the
// direction, and no expectation depends on scales. Tangents are kept centred that way.
//
// Certificate, made on the way down. Expectations are bounded functions of the joint law, so an error e of a merged message
// c shifts them by at most <|e|, g> / Z, g = f . down, and what it does to derivatives is <|e|, |g'|> / Z; an error e' of c' shifts
// derivatives by <|e'|, g> / Z. On the way down the roles of up and down are exchanged. Transforms err
// independently: their squares add up. Mass cut off, or lost by underflow, counts with the largest possible down value.
#include "base/deviation.hpp"
#include "base/fft_merge.hpp"
#include "tree/kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr double kLeastNumber = 1e-300;  // of the largest value of a message: what underflow may take from an entry

// The up message of a node; a leaf's is (q, p) with derivative (-p q v, p q v), cut down to its possible states.
struct DualView : DualUp {
  double pair[2], pair_change[2];

  DualView(const TangentItem& item, int32_t node) {
    const int32_t leaves = item.tree->leaves;
    if (node < leaves) leaf(item.nu[node], item.v[node]);
    else DualUp::operator=(item.nodes[node - leaves].up);
  }
  DualView(const DualView&) = delete;

 private:
  void leaf(double x, double v) {
    const double e = real::exp(-real::fabs(x)), likely = 1 / (1 + e), rare = e * likely;
    const double q = x < 0 ? likely : rare, p = x < 0 ? rare : likely;
    const double moved = q * p > 0 ? q * p * v : 0.0;
    pair[0] = q;
    pair[1] = p;
    pair_change[0] = -moved;
    pair_change[1] = moved;
    lo = q > 0 ? 0 : 1;
    length = q > 0 && p > 0 ? 2 : 1;
    value = pair + lo;
    change = pair_change + lo;
    sum = norm = 1;
    change_sum = change_norm = 2 * real::fabs(moved);
  }
};

void add_multiple(double* x, const double* y, double factor, int n) {
  for (int k = 0; k < n; k++) x[k] += factor * y[k];
}

constexpr double kTangentTail = 1e4;  // tails of a tangent may be this much heavier than those of the value

// c = a * b and c' = a' * b + a * b', by transform where that pays.
void merge(TangentItem& item, Worker& worker, TangentNode& node, const DualView& a, const DualView& b, double* c,
           double* c1) {
  const int na = a.length, nb = b.length, N = merge_length(na, nb), count = na + nb - 1;
  double *work = scratch_part(worker, 2), *other = scratch_part(worker, 3);
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
  multiply_spectra<false>(left, right1, N, work);
  multiply_spectra<false, true>(left1, right, N, work);
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
  double* f = scratch_part(worker, 2);
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

// Scales, centres and keeps the message.
void keep(Worker& worker, TangentNode& node, const double* c, const double* c1, int lo, int n) {
  const double top = largest(c, n);
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
  node.up = {{value, change, lo, n}, a.one, a.two, b.one, b.two};
  node.cut *= node.factor;
  node.change_cut *= node.factor;
}

double square(double x) { return x * x; }

// g and g' over all counts start .. start + count - 1 of the merge; zero where the node's message was cut.
struct Gradient {
  double *value, *change;
  int start, count;
  Norms value_norms, change_norms;
  double limit, change_limit;
};

Gradient gradient_of(const TangentItem& item, Worker& worker, int32_t i, int start, int count) {
  const TangentNode& node = item.nodes[i];
  const DualMessage& d = node.down;
  Gradient g = {scratch_part(worker, 0), scratch_part(worker, 1), start, count, {}, {}, 0, 0};
  fill(g.value, count + kPad, 0.0);
  fill(g.change, count + kPad, 0.0);
  double *value = g.value + (d.lo - start), *change = g.change + (d.lo - start);
  const int64_t offset = item.tree->table_offset[i];
  if (offset < 0) {
    std::memcpy(value, d.value, sizeof(double) * (size_t)d.length);
    std::memcpy(change, d.change, sizeof(double) * (size_t)d.length);
  } else {
    const double *log_f = item.tables + offset + d.lo, low = -__builtin_inf();
    for (int k = 0; k < d.length; k += kLanes) {
      const int valid = min(d.length - k, kLanes);
      const vec f = exp(load_part(log_f + k, valid, low) - node.log_top);
      for (int l = 0; l < valid; l++) {
        value[k + l] = f[l] * d.value[k + l];
        change[k + l] = f[l] * d.change[k + l];
        if (item.h && value[k + l] > 0) change[k + l] += item.h[offset + d.lo + k + l] * value[k + l];
      }
    }
  }
  g.value_norms = norms(g.value, count);
  g.change_norms = norms(g.change, count);
  g.limit = node.table_limit * node.down_limit;
  g.change_limit = node.table_limit * (node.down_change_limit + node.direction_limit * node.down_limit);
  return g;
}

// Errors of the node's own merge and of what it cut, now that g is known.
void judge(TangentNode& node, const DualView& a, const DualView& b, const Gradient& g, int size) {
  const double inverse = 1 / node.overlap, merged = node.factor * inverse;
  const double cut = node.cut + kLeastNumber * size, change_cut = node.change_cut + kLeastNumber * size;
  node.cut_error = cut * node.down_limit * inverse;
  node.cut_change_error = (change_cut * node.down_limit + cut * node.down_change_limit) * inverse;
  if (!node.transform) return;
  const auto error = [&](double x, double y, const Norms& weight) {
    return merged * transform_error(node.transform, x, y, weight.one, weight.two);
  };
  node.noise = square(error(a.norm, b.norm, g.value_norms));
  node.change_noise = square(error(a.change_norm, b.norm, g.value_norms) + error(a.norm, b.change_norm, g.value_norms) +
                             error(a.norm, b.norm, g.change_norms));
}

void write_beliefs(const TangentItem& item, int32_t i) {
  const TangentNode& node = item.nodes[i];
  const DualMessage &u = node.up, &d = node.down;
  const int64_t offset = item.tree->table_offset[i];
  const int size = item.tree->size[item.tree->leaves + i];
  const double inverse = 1 / node.overlap;
  if (item.beliefs) {
    double* out = item.beliefs + offset;
    fill(out, size + 1, 0.0);
    for (int k = 0; k < u.length; k++) out[u.lo + k] = u.value[k] * d.value[k] * inverse;
  }
  if (item.belief_change) {
    double* out = item.belief_change + offset;
    fill(out, size + 1, 0.0);
    for (int k = 0; k < u.length; k++)
      out[u.lo + k] = (u.value[k] * d.change[k] + u.change[k] * d.value[k]) * inverse;
  }
}

struct Child {
  const DualView &own, &other;
  const double *other_spectrum, *other_spectrum_change;
};

// d = sum_j g(k + j) u(j) and its derivative, for the counts of the child.
void correlate(TangentItem& item, Worker& worker, const TangentNode& node, const Gradient& g, const Child& c,
               const double* g_spectrum, double* d, double* d1) {
  const int n = c.own.length, nu = c.other.length;
  double* work = scratch_part(worker, 6);
  if (!node.transform) {
    correlate_direct(g.value, c.other.value, nu, d, n);
    correlate_direct(g.change, c.other.value, nu, d1, n);
    correlate_direct(g.value, c.other.change, nu, work, n);
    add_multiple(d1, work, 1.0, n);
    return;
  }
  const int N = node.transform;
  const FftPlan& plan = *fft_plan(item.plans, N, kLanes);
  correlate_fft(g_spectrum, c.other_spectrum, g.value, c.other.value, nu, n, d, work, plan);
  multiply_spectra<true>(g_spectrum, c.other_spectrum_change, N, work);
  multiply_spectra<true, true>(g_spectrum + N, c.other_spectrum, N, work);
  fft_backward(work, d1, plan);
  if (g.count == N + 1) {
    d1[0] += g.change[N] * c.other.value[0] + g.value[N] * c.other.change[0];
    d1[n - 1] += g.change[0] * c.other.value[nu - 1] + g.value[0] * c.other.change[nu - 1];
  }
}

// What the sums of a child's down message tell, scaled so that the largest value lies in [1, 2).
struct Settled {
  double overlap, factor;
};

Settled settle(const DualView& own, double* d, double* d1) {
  const int n = own.length;
  const double top = largest(d, n), factor = top > 0 ? pow2(-exponent_of(top)) : 1.0;
  double overlap = 0, moved = 0;
  for (int k = 0; k < n; k++) {
    d[k] *= factor;
    d1[k] *= factor;
    overlap += own.value[k] * d[k];
    moved += own.value[k] * d1[k] + own.change[k] * d[k];
  }
  if (overlap > 0) add_multiple(d1, d, -moved / overlap, n);
  return {overlap, factor};
}

// A fixed variable stays.
void finish_leaf(TangentItem& item, int32_t leaf, const DualView& own, const double* d, const double* d1,
                 double overlap) {
  if (!item.change) return;
  item.change[leaf] = 0;
  if (own.length < 2) return;
  item.change[leaf] = change_of_marginal<double>({own.value[0], own.value[1]}, {d[0], d[1]}, {d1[0], d1[1]}, overlap, item.v[leaf]);
}

void down_to(TangentItem& item, Worker& worker, int32_t i, int32_t child, const Gradient& g, const Child& c,
             const double* g_spectrum) {
  const TangentNode& node = item.nodes[i];
  const int32_t leaves = item.tree->leaves;
  const bool inner = child >= leaves;
  const int n = c.own.length;
  const size_t room = (size_t)(n + kPad + (node.transform ? node.transform : 0));
  double* d = inner && !node.transform ? arena_take(worker.arena, 2 * room) : scratch_part(worker, 4);
  double* d1 = inner && !node.transform ? d + room : scratch_part(worker, 5);
  correlate(item, worker, node, g, c, g_spectrum, d, d1);
  const Settled s = settle(c.own, d, d1);
  double path = node.path, change_path = node.change_path;
  if (node.transform) {
    const double share = s.factor / s.overlap;
    const auto error = [&](double x, double y, double one, double two) {
      return share * transform_error(node.transform, x, y, one, two);
    };
    const DualView &own = c.own, &other = c.other;
    path += square(error(g.value_norms.two, other.norm, own.sum, own.norm));
    change_path += square(error(g.change_norms.two, other.norm, own.sum, own.norm) +
                          error(g.value_norms.two, other.change_norm, own.sum, own.norm) +
                          error(g.value_norms.two, other.norm, own.change_sum, own.change_norm));
  }
  if (!inner) {
    item.leaf_path[2 * child] = s.overlap > 0 ? path : __builtin_inf();
    item.leaf_path[2 * child + 1] = change_path;
    return finish_leaf(item, child, c.own, d, d1, s.overlap);
  }
  TangentNode& to = item.nodes[child - leaves];
  if (node.transform) {
    double* kept = arena_take(worker.arena, 2 * (size_t)(n + kPad));
    std::memcpy(kept, d, sizeof(double) * (size_t)n);
    std::memcpy(kept + n + kPad, d1, sizeof(double) * (size_t)n);
    d = kept;
    d1 = kept + n + kPad;
  }
  to.down = {d, d1, c.own.lo, n};
  to.overlap = s.overlap;
  to.path = path;
  to.change_path = change_path;
  to.down_limit = g.limit * c.other.sum * s.factor;
  to.down_change_limit = (g.change_limit * c.other.sum + g.limit * c.other.change_sum) * s.factor;
}

}  // namespace

void tangent_up(TangentItem& item, Worker& worker, int32_t i) {
  const TreeView& tree = *item.tree;
  TangentNode& node = item.nodes[i];
  node = {};
  node.table_limit = 1;
  const DualView a(item, tree.left[i]), b(item, tree.right[i]);
  const int start = a.lo + b.lo, count = a.length + b.length - 1;
  double *c = scratch_part(worker, 0), *c1 = scratch_part(worker, 1);
  merge(item, worker, node, a, b, c, c1);
  Interval kept = {start, start + count - 1};
  // A table may lift again what underflow took, also beyond the counts that are left.
  double lost = kLeastNumber * (double)tree.size[tree.leaves + i], lost_change = lost * item.direction_limit;
  if (node.transform) {
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
  const bool look = item.use_fft && !node.transform && n >= kTrimFrom && total > 0;
  const double weight = total_change > 0 ? total / total_change : 0.0, budget = look ? 0.5 * kTrim * total : 0.0;
  const auto mass = [&](int k) { return c[k] + weight * real::fabs(c1[k]); };
  const int below = entries_to_cut(n, budget, mass);
  const int above = entries_to_cut(n - below, budget, [&](int k) { return mass(n - 1 - k); });
  const Interval ends[] = {{0, below}, {n - above, n}};
  for (const Interval cut : ends)
    for (int k = cut.lo; k < cut.hi; k++) node.cut += c[k], node.change_cut += real::fabs(c1[k]);
  c += below;
  c1 += below;
  n -= below + above;
  node.cut += lost * node.table_limit;
  node.change_cut += (lost_change + lost * node.direction_limit) * node.table_limit;
  keep(worker, node, c, c1, kept.lo + below, n);
}

void tangent_down(TangentItem& item, Worker& worker, int32_t i) {
  const TreeView& tree = *item.tree;
  TangentNode& node = item.nodes[i];
  const DualView a(item, tree.left[i]), b(item, tree.right[i]);
  const Gradient g = gradient_of(item, worker, i, a.lo + b.lo, a.length + b.length - 1);
  judge(node, a, b, g, tree.size[tree.leaves + i]);
  if (tree.table_offset[i] >= 0) write_beliefs(item, i);
  const int N = node.transform;
  double* g_spectrum = nullptr;
  if (N) {
    const FftPlan& plan = *fft_plan(item.plans, N, kLanes);
    g_spectrum = scratch_part(worker, 2);
    double* work = scratch_part(worker, 6);
    correlate_fft_prepare(g.value, g.count, g_spectrum, work, plan);
    correlate_fft_prepare(g.change, g.count, g_spectrum + N, work, plan);
  }
  const double* s = node.spectra;
  down_to(item, worker, i, tree.left[i], g, {a, b, s + 2 * N, s + 3 * N}, g_spectrum);
  down_to(item, worker, i, tree.right[i], g, {b, a, s, s + N}, g_spectrum);
}

void tangent_start_down(TangentItem& item, Worker& worker, int32_t i) {
  TangentNode& node = item.nodes[i];
  const int n = node.up.length;
  double* value = arena_take(worker.arena, 2 * (size_t)(n + kPad));
  double* change = value + n + kPad;
  fill(value, n, 1.0);
  fill(change, n, 0.0);
  node.down = {value, change, node.up.lo, n};
  node.overlap = node.up.sum;
  node.down_limit = 1;
  node.down_change_limit = 0;
  node.path = node.change_path = 0;
}

}  // namespace tallytree::TT_LEVEL
