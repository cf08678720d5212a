// Direct tree for small flat models, of messages alone or with their derivatives: the models of a batch lie side by side in
// the lanes of a register.
//
// Only positive terms are added, so every number is relatively accurate as long as it stays in range. Leaves
// are pairs (q, p) with q + p = 1 and the table is scaled to maximum 1; then every message is at most 1, all that
// underflow can do is an absolute error below n^3 1e-307, and it is harmless if and only if the
// smallest number that is used as a divisor is far above that. `smallest` reports it. Infinite logits are leaves (1, 0)
// and (0, 1) like others.
//
// Messages end at the largest count that a table allows. Where the counts of zeros are fewer than those of ones, zeros
// are counted: the leaves are swapped, the tables reversed, and the two sides of the answers swapped back.
//
// Along a direction the leaves have derivatives (-p q v, p q v). With the downward messages d(0), d(1) of a leaf and their
// derivatives, Z = q d(0) + p d(1) and
//   d P(y = 1) = p q (v d(0) d(1) + d'(1) d(0) - d'(0) d(1)) / Z^2.
// Only Z is divided by.
#include "base/simd_rows.hpp"
#include "base/simd_tree.hpp"
#include "flat/kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr ptrdiff_t kSafeFactors = 512;  // factors in (1, 2] that multiply without overflow
constexpr double kTiny = 1e-280;         // the smallest Z that has a logarithm

Leaf swapped(const Leaf& a, bool zeros) { return zeros ? Leaf{a.on, a.off} : a; }

// The messages of up to one register of models; M is vec* or Dual.
template <class M>
struct Tree {
  ptrdiff_t n, groups, doubles;
  int models;
  Leaf* weight;      // of the leaves
  vec* direction;    // of the leaves; only with derivatives
  M leaf;            // two entries each, as the counted side sees them; they become their downward messages
  M up, root, padded, buffer;
  vec slope, top;    // top: the largest log f under the tilt
  bool zeros;        // are counted, because these are fewer
  ptrdiff_t most;    // count in a message, a multiple of 8
  ptrdiff_t last;    // that matters

  Tree(ptrdiff_t variables, double* scratch) : n(variables), groups((n + kGroup - 1) / kGroup) {
    const ptrdiff_t leaves = kGroup * groups, counts = leaves + 1;
    LaneRoom room = {(vec*)scratch};
    weight = (Leaf*)room.take(2 * leaves);
    leaf = room.take_message<M>(2 * leaves);
    up = room.take_message<M>(tree_size(groups));
    root = room.take_message<M>(counts + kLanePad);
    padded = room.take_message<M>(counts + 2 * kLanePad);
    buffer = room.take_message<M>(2 * counts + 256);  // messages on a path take at most twice the root's length
    direction = room.take(leaves);
    doubles = room.doubles_from(scratch);
  }

  // Reads log f under the tilt to the root, and decides what is counted.
  void read_tables(const double* const* log_f, const double* tilt, int count) {
    const double low = -__builtin_inf();
    models = count;
    slope = splat(tilt[0]);
    for (int l = 1; l < models; l++) slope[l] = tilt[l];
    vec* f = value_of(root);
    vec first = splat((double)n), final = vec{};
    top = splat(low);
    by_entry(log_f, models, n + 1, [&](ptrdiff_t k, vec x) {
      const vec here = splat((double)k);
      f[k] = x - slope * here;
      top = max(top, f[k]);
      first = (x > low) & (here < first) ? here : first;
      final = x > low ? here : final;
    });
    const ptrdiff_t least = (ptrdiff_t)min_lanes(first), greatest = (ptrdiff_t)max_lanes(final);
    zeros = n - least < greatest;
    const ptrdiff_t whole = kGroup * groups, cut = ((zeros ? n - least : greatest) + 7) / 8 * 8;
    most = cut < 8 ? 8 : cut < whole ? cut : whole;
    last = n < most ? n : most;
    for (ptrdiff_t k = 0, m = n; zeros && k < m; k++, m--) {
      const vec held = f[k];
      f[k] = f[m];
      f[m] = held;
    }
  }
  ptrdiff_t place(ptrdiff_t count) const { return zeros ? n - count : count; }

  // Sets the leaves and calls also(t, deviation) for each.
  template <class Also>
  void read_leaves(const double* const* nu, const Also& also) {
    vec* pairs = value_of(leaf);
    by_entry(nu, models, n, [&](ptrdiff_t i, vec x) {
      const vec t = x + slope;
      const Deviation d = deviation(t);
      weight[i] = leaf_of(t, d);
      const Leaf own = swapped(weight[i], zeros);
      pairs[2 * i] = own.off;
      pairs[2 * i + 1] = own.on;
      also(i, t, d);
    });
    for (ptrdiff_t i = n; i < kGroup * groups; i++) pairs[2 * i] = splat(1.0), pairs[2 * i + 1] = vec{};
  }

  // All messages up, and f in place of log f; returns Z.
  vec pass_up() {
    lane_up(leaf, groups, most, up, padded);
    const vec base = top > -__builtin_inf() ? top : vec{};
    vec *f = value_of(root), *total = value_of(up), z = vec{};
    for (ptrdiff_t k = 0; k <= last; k++) {
      f[k] = exp(f[k] - base);
      z += f[k] * total[k];
    }
    for (ptrdiff_t k = last + 1; k <= kGroup * groups + kLanePad; k++) f[k] = vec{};
    return z;
  }
  void pass_down() { lane_down(leaf, groups, most, up, root, buffer); }
  Leaf message(const vec* pairs, ptrdiff_t i) const { return swapped(leaf_at(pairs, i), zeros); }
  double log_mean(vec z, int l) const { return (z[l] > kTiny ? real::log(z[l]) : -__builtin_inf()) + top[l]; }
};

// f' = f (h - the derivative of log Z) at the root. Impossible counts have no derivative, whatever h says of them.
void direct_root(const DirectRows& in, vec z, Tree<Dual>* s) {
  const Dual f = s->root;
  vec z_change = vec{};
  clear(f.change, kGroup * s->groups + kLanePad + 1);
  for (ptrdiff_t k = 0; k <= s->last; k++) z_change += f.value[k] * s->up.change[k];
  if (in.h[0])
    by_entry(in.h, in.models, s->n + 1, [&](ptrdiff_t count, vec h) {
      const ptrdiff_t k = s->place(count);
      if (k > s->last) return;
      f.change[k] = f.value[k] > 0.0 ? h * f.value[k] : vec{};
      z_change += f.change[k] * s->up.value[k];
    });
  const vec mean = z > kTiny ? z_change / z : vec{};
  for (ptrdiff_t k = 0; k <= s->last; k++) f.change[k] -= mean * f.value[k];
}

}  // namespace

// Doubles, for memory aligned to a register.
ptrdiff_t direct_scratch(ptrdiff_t n) { return Tree<vec*>(n, nullptr).doubles; }
ptrdiff_t tangent_direct_scratch(ptrdiff_t n) { return Tree<Dual>(n, nullptr).doubles; }

void direct(const DirectRows& in, ptrdiff_t n, double* scratch, DirectTotals* totals) {
  Tree<vec*> s(n, scratch);
  s.read_tables(in.log_f, in.tilt, in.models);
  const double inf = __builtin_inf();
  vec positive = vec{}, norm = splat(1.0), log_norm = vec{}, largest = vec{};
  s.read_leaves(in.nu, [&](ptrdiff_t i, vec t, const Deviation& d) {
    positive += ((t > 0.0) & (t < inf)) ? t : vec{};
    largest = max(largest, abs(t) < inf ? abs(t) : vec{});
    norm *= 1.0 + d.e;
    if (i % kSafeFactors == kSafeFactors - 1) {
      log_norm += log(norm);
      norm = splat(1.0);
    }
  });
  log_norm += log(norm);
  const vec z = s.pass_up();
  vec least = z;
  s.pass_down();
  to_rows(in.ratio, in.models, n, [&](ptrdiff_t i) {
    return s.leaf[2 * i] = leave_one_out_ratio(s.message(s.leaf, i), &least);
  });
  to_rows(in.marginal, in.models, n, [&](ptrdiff_t i) { return marginal_of(s.weight[i], s.leaf[2 * i]); });
  for (int l = 0; l < in.models; l++)
    totals[l] = {s.log_mean(z, l), least[l], positive[l] + log_norm[l], largest[l]};
}

void tangent_direct(const DirectRows& in, ptrdiff_t n, double* scratch, DirectTotals* totals) {
  Tree<Dual> s(n, scratch);
  s.read_tables(in.log_f, in.tilt, in.models);
  s.read_leaves(in.nu, [](ptrdiff_t, vec, const Deviation&) {});
  clear(s.leaf.change, 2 * kGroup * s.groups);
  by_entry(in.v, in.models, n, [&](ptrdiff_t i, vec v) {
    const vec spread = s.weight[i].off * s.weight[i].on, moved = spread > 0.0 ? spread * v : vec{};
    s.direction[i] = v;
    s.leaf.change[2 * i] = s.zeros ? moved : -moved;
    s.leaf.change[2 * i + 1] = s.zeros ? -moved : moved;
  });
  const vec z = s.pass_up(), inverse = 1.0 / z;
  direct_root(in, z, &s);
  const auto by_count = [&](double* const* out, const auto& entry) {
    to_rows(out, in.models, n + 1, [&](ptrdiff_t count) {
      const ptrdiff_t k = s.place(count);
      return k <= s.most ? entry(k) * inverse : vec{};
    });
  };
  if (in.counts[0]) by_count(in.counts, [&](ptrdiff_t k) { return s.root.value[k] * s.up.value[k]; });
  if (in.count_change[0])
    by_count(in.count_change, [&](ptrdiff_t k) {
      return s.root.change[k] * s.up.value[k] + s.root.value[k] * s.up.change[k];
    });
  if (in.change[0]) {
    s.pass_down();
    to_rows(in.change, in.models, n, [&](ptrdiff_t i) {
      return change_of_marginal(s.weight[i], s.message(s.leaf.value, i), s.message(s.leaf.change, i), z, s.direction[i]);
    });
  }
  for (int l = 0; l < in.models; l++) totals[l] = {s.log_mean(z, l), z[l], 0, 0};
}

void messages_from_ratio(const double* ratio, ptrdiff_t n, double tilt, double* out) {
  for (ptrdiff_t i = 0; i < n; i += kLanes)
    store_up_to(out + i, log(load_up_to(ratio + i, n - i, 1.0)) + tilt, n - i);
}

}  // namespace tallytree::TT_LEVEL
