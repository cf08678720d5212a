// Downward pass with derivatives: beliefs, their changes, and those of the variables.
//
// Certificate. Expectations are bounded functions of the joint law, so an error e of a merged message c shifts them by
// at most <|e|, g> / Z, g = f . down, and what it does to derivatives is <|e|, |g'|> / Z; an error e' of c' shifts
// derivatives by <|e'|, g> / Z. On the way down the roles of up and down are exchanged. Transforms err
// independently: their squares add up. Mass cut off, or lost by underflow, counts with the largest possible down value.
#include "tree/tangent.hpp"

namespace tallytree::TT_LEVEL {

namespace {

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
  Gradient g = {tangent_scratch(worker, 0), tangent_scratch(worker, 1), start, count, {}, {}, 0, 0};
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
  double* work = tangent_scratch(worker, 6);
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
  multiply_spectra_tangent<true>(g_spectrum, g_spectrum + N, c.other_spectrum, c.other_spectrum_change, N, work);
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
  const double top = largest_value(d, n), factor = top > 0 ? pow2(-exponent_of(top)) : 1.0;
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

// P(y = 1) = p d(1) / Z moves by p q (v d(0) d(1) + d'(1) d(0) - d'(0) d(1)) / Z^2; a fixed variable stays.
void finish_leaf(TangentItem& item, int32_t leaf, const DualView& own, const double* d, const double* d1,
                 double overlap) {
  if (!item.change) return;
  item.change[leaf] = 0;
  if (own.length < 2) return;
  const double inverse = 1 / overlap, on = own.value[1] * (d[1] * inverse), off = own.value[0] * (d[0] * inverse);
  const double cross = own.value[1] * (d1[1] * inverse) * off - own.value[0] * (d1[0] * inverse) * on;
  item.change[leaf] = (on * off > 0 ? on * off * item.v[leaf] : 0.0) + cross;
}

void down_to(TangentItem& item, Worker& worker, int32_t i, int32_t child, const Gradient& g, const Child& c,
             const double* g_spectrum) {
  const TangentNode& node = item.nodes[i];
  const int32_t leaves = item.tree->leaves;
  const bool inner = child >= leaves;
  const int n = c.own.length;
  const size_t room = (size_t)(n + kPad + (node.transform ? node.transform : 0));
  double* d = inner && !node.transform ? arena_take(worker.arena, 2 * room) : tangent_scratch(worker, 4);
  double* d1 = inner && !node.transform ? d + room : tangent_scratch(worker, 5);
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

void tree_tangent_down(TangentItem& item, Worker& worker, int32_t i) {
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
    g_spectrum = tangent_scratch(worker, 2);
    double* work = tangent_scratch(worker, 6);
    correlate_fft_prepare(g.value, g.count, g_spectrum, work, plan);
    correlate_fft_prepare(g.change, g.count, g_spectrum + N, work, plan);
  }
  const double* s = node.spectra;
  down_to(item, worker, i, tree.left[i], g, {a, b, s + 2 * N, s + 3 * N}, g_spectrum);
  down_to(item, worker, i, tree.right[i], g, {b, a, s, s + N}, g_spectrum);
}

void tree_tangent_start_down(TangentItem& item, Worker& worker, int32_t i) {
  TangentNode& node = item.nodes[i];
  const int n = node.up.length;
  double* value = arena_take(worker.arena, 2 * (size_t)(n + kPad));
  double* change = value + n + kPad;
  fill(value, n, 1.0);
  fill(change, n, 0.0);
  node.down = {value, change, node.up.lo, n};
  node.overlap = node.sum;
  node.down_limit = 1;
  node.down_change_limit = 0;
  node.path = node.change_path = 0;
}

}  // namespace tallytree::TT_LEVEL
