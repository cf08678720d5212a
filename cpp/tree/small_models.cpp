// Many small models on one tree: one model per lane, direct convolutions, no branches on the numbers.
//
// At every node the belief is up . down / <up, down>. A model for which underflow matters, or whose answer may be a zero, is
// left to the passes that work on one model at a time: its bound is infinite.
#include "tree/small_tree.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr double kSafe = 0x1p-700;  // smallest <up, down> of derivatives
constexpr double kHarmless = -200;  // log2 of an error as a share of <up, down>

template <class M>
struct SmallPass : SmallTree<M> {
  using Base = SmallTree<M>;
  using Base::counts, Base::down, Base::f, Base::in, Base::lost_down, Base::lost_up, Base::room, Base::table, Base::up;
  vec weakest = splat(1.0), worst_lost = splat(kUnderflow);
  vec log_mean;  // but for `scale`

  SmallPass(const TreeView& tree, const SmallModels& models, double* scratch) : Base(tree, models, scratch) {
    for (int32_t i = 0; i < f.inner; i++) this->merge(i, true);
    log_mean = this->log_tables;
    const M gradient = room.template take_message<M>(longest_message(f) + 2 * kLanePad);
    for (int32_t i = f.inner; i-- > 0;) go_down(i, gradient);
  }

  // <up, down>, and what was lost compared with it.
  vec overlap(int32_t v) {
    const vec *u = value_of(up[v]), *d = value_of(down[v]);
    vec sum = vec{};
    for (ptrdiff_t k = 0; k < counts(v); k++) sum += u[k] * d[k];
    weakest = min(weakest, sum);
    worst_lost = max(worst_lost, lost_in_merge(lost_up[v], lost_down[v], counts(v)) - exponent_of(sum));
    return sum;
  }

  // Scales a downward message and centres the belief's derivative.
  void settle(int32_t v, vec lost) {
    lost_down[v] = lost - rescale(down[v], counts(v));
    if constexpr (kCarriesChange<M>) {
      const M u = up[v], d = down[v];
      vec moved = vec{};
      for (ptrdiff_t k = 0; k < counts(v); k++) moved += u.value[k] * d.change[k] + u.change[k] * d.value[k];
      Base::take_off(d, counts(v), overlap(v), moved);
    }
  }

  void go_down(int32_t i, M gradient) {
    const int32_t v = f.leaves + i;
    const ptrdiff_t n = counts(v);
    if (f.parent[v] < 0) {
      down[v] = room.template take_message<M>(n + kLanes);
      clear(down[v], n);
      for (ptrdiff_t k = 0; k < n; k++) value_of(down[v])[k] = splat(1.0);
      settle(v, splat(kUnderflow));
      const vec sum = overlap(v);
      for (int l = 0; l < kLanes; l++) log_mean[l] += real::log((double)sum[l]);
    }
    if (table[i]) this->weigh(i, n, down[v], gradient);
    const M g = table[i] ? gradient : down[v];
    if (table[i]) put_beliefs(i);
    const int32_t child[2] = {f.left[i], f.right[i]};
    for (int side = 0; side < 2; side++) {
      const int32_t own = child[side], other = child[1 - side];
      down[own] = room.template take_message<M>(counts(own) + (own < f.leaves ? 0 : kLanes));
      correlate_any(g, up[other], counts(other), down[own], counts(own));
      settle(own, lost_in_merge(lost_down[v], lost_up[other], n));
    }
  }

  // Entries of all models to memory from a place on, where they are asked for.
  template <class Give>
  void put_rows(double* const* models, ptrdiff_t from, ptrdiff_t n, const Give& give) const {
    double* rows[8] = {};
    for (int l = 0; l < in.count; l++) rows[l] = models[l] + from;
    to_rows(rows, in.count, n, give);
  }

  void put_beliefs(int32_t i) {
    const int32_t v = f.leaves + i;
    const M u = up[v], d = down[v];
    if (!in.beliefs[0] && !in.belief_change[0]) return;
    const vec sum = overlap(v);
    if (in.beliefs[0])
      put_rows(in.beliefs, f.table_offset[i], counts(v), [&](ptrdiff_t k) { return value_of(u)[k] * value_of(d)[k] / sum; });
    if constexpr (kCarriesChange<M>)
      if (in.belief_change[0])
        put_rows(in.belief_change, f.table_offset[i], counts(v),
                 [&](ptrdiff_t k) { return (u.value[k] * d.change[k] + u.change[k] * d.value[k]) / sum; });
  }
};

// The change of P(y = 1); free leaves have no message from above.
vec leaf_change(const SmallPass<Dual>& s, ptrdiff_t d, vec direction) {
  const Leaf weight = leaf_at(s.up[d].value, 0);
  const bool free = s.f.parent[d] < 0;
  const Leaf down = free ? Leaf{splat(1.0), splat(1.0)} : leaf_at(s.down[d].value, 0);
  const Leaf change = free ? Leaf{vec{}, vec{}} : leaf_at(s.down[d].change, 0);
  return change_of_marginal(weight, down, change, weight.off * down.off + weight.on * down.on, direction);
}

}  // namespace

ptrdiff_t small_scratch(const TreeView& f, bool derivatives) {
  const ptrdiff_t nodes = (ptrdiff_t)f.leaves + f.inner, longest = longest_message(f), parts = derivatives ? 2 : 1;
  ptrdiff_t vectors = 3 * nodes + 2 * parts * (longest + 2 * kLanePad) + 16;
  for (int32_t v = 0; v < nodes; v++) vectors += (2 * parts + (v >= f.leaves)) * (f.size[v] + 1 + (v < f.leaves ? 0 : kLanes));
  return kLanes * vectors + 8 * nodes + longest + 64;  // and what draws and counts keep for every node
}

void small_messages(const TreeView& f, const SmallModels& in, double* scratch, double* log_mean, double* bound) {
  SmallPass<vec*> s(f, in, scratch);
  vec largest = vec{}, *message = s.room.take(f.leaves);
  for (int32_t v = 0; v < f.leaves && in.messages[0]; v++) {
    message[v] = vec{};
    if (f.parent[v] < 0) continue;
    const vec off = s.down[v][0], on = s.down[v][1], r = log(on) - log(off);
    s.weakest = min(s.weakest, min(off, on));
    s.worst_lost = max(s.worst_lost, s.lost_down[v] - exponent_of(min(off, on)));
    largest = max(largest, abs(r));
    message[v] = r;
  }
  if (in.messages[0]) to_rows(in.messages, in.count, f.leaves, [&](ptrdiff_t d) { return message[d]; });

  const double rounding = kUnitRoundoff * (8 * real::sqrt(s.variance) + 0.5 * f.leaves);
  for (int l = 0; l < in.count; l++) {
    log_mean[l] = s.log_mean[l] + s.scale[l] * kLn2;
    const double lost = real::exp2((double)s.worst_lost[l] + 2);
    const double total = 4 * rounding + 2 * kUnitRoundoff * largest[l] + lost;
    // A divisor of zero, or nearly so: impossible or lost, which this pass cannot tell.
    bound[l] = s.weakest[l] > 0x1p-900 && total < 1e-6 ? total : __builtin_inf();
  }
}

void small_tangents(const TreeView& f, const SmallModels& in, double* scratch, double* bound) {
  SmallPass<Dual> s(f, in, scratch);
  vec* direction = s.room.take(f.leaves);
  by_entry(in.v, kLanes, f.leaves, [&](ptrdiff_t d, vec v) { direction[d] = v; });
  if (in.change[0]) to_rows(in.change, in.count, f.leaves, [&](ptrdiff_t d) { return leaf_change(s, d, direction[d]); });
  for (int l = 0; l < in.count; l++)
    bound[l] = s.weakest[l] > kSafe && s.worst_lost[l] < kHarmless ? 0.0 : __builtin_inf();
}

}  // namespace tallytree::TT_LEVEL
