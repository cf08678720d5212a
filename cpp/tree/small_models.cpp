// Up to one register of small models on one tree: the way up, on which everything else stands, messages and derivatives, the
// counts of a root, and samples.
//
// The way up: one model per lane, direct convolutions, all counts. Messages are plain (M is vec*) or carry their derivatives (Dual).
//
// Messages are scaled by powers of two, so that their largest entry lies in [1, 2). Only positive terms are added; what
// underflow may have taken is followed as one absolute error per message and lane ("lost", as its log2). A multiple of the
// value is taken off a derivative wherever that keeps it small, which changes no expectation.
#include "base/philox.hpp"
#include "base/simd_rows.hpp"
#include "base/simd_tree.hpp"
#include "tree/kernels.hpp"

namespace tallytree::TT_LEVEL {

constexpr double kUnderflow = -1060;  // log2 of an error that a product may make
constexpr double kFaintTable = -690;  // logs of table entries, relative to the largest, below which they count as lost
constexpr double kFaintLost = -990;   // log2 of the error that this makes

// Scales n vectors so that the largest of each lane lies in [1, 2); returns the exponents. Zero lanes stay.
static inline vec rescale(vec* x, ptrdiff_t n) {
  vec top = vec{};
  for (ptrdiff_t k = 0; k < n; k++) top = max(top, x[k]);
  const vec shift = top > 0.0 ? exponent_of(top) : vec{}, factor = pow2(-shift);
  for (ptrdiff_t k = 0; k < n; k++) x[k] *= factor;
  return shift;
}
static inline vec rescale(Dual x, ptrdiff_t n) {
  const vec shift = rescale(x.value, n), factor = pow2(-shift);
  for (ptrdiff_t k = 0; k < n; k++) x.change[k] *= factor;
  return shift;
}

// exp(log f - its largest) in lanes; returns the largest, and raises `lost` where small entries vanished.
static inline vec weigh_table(const double* const* tables, bool shared, int64_t offset, ptrdiff_t n, vec* out,
                              vec* lost) {
  const double low = -__builtin_inf();
  if (shared) {
    const double* log_f = tables[0] + offset;
    double largest = low;
    for (ptrdiff_t k = 0; k < n; k++) largest = max(largest, log_f[k]);
    const double base = largest > low ? largest : 0.0;
    for (ptrdiff_t k = 0; k < n; k += kLanes) {
      const int valid = (int)(n - k < kLanes ? n - k : kLanes);
      const vec x = load_part(log_f + k, valid, low) - base, e = exp(x);
      for (int l = 0; l < valid; l++) {
        out[k + l] = splat(e[l]);
        if (x[l] < kFaintTable && x[l] > low) *lost = splat(kFaintLost);
      }
    }
    return splat(largest);
  }
  const double* rows[8];
  for (int l = 0; l < 8; l++) rows[l] = tables[l] + offset;
  vec top = splat(low);
  by_entry(rows, kLanes, n, [&](ptrdiff_t k, vec x) {
    out[k] = x;
    top = max(top, x);
  });
  const vec base = top > low ? top : vec{};
  for (ptrdiff_t k = 0; k < n; k++) {
    const vec x = out[k] - base;
    *lost = ((x < kFaintTable) & (x > low)) ? splat(kFaintLost) : *lost;
    out[k] = exp(x);
  }
  return top;
}

// What a sum of n products of messages with these errors may have lost.
static inline vec lost_in_merge(vec a, vec b, ptrdiff_t n, double slack = 3.0) {
  return max(max(a, b), splat(kUnderflow)) + real::log2((double)n) + slack;
}

static inline ptrdiff_t longest_message(const TreeView& f) {
  ptrdiff_t longest = 2;
  for (int32_t v = 0; v < f.leaves + f.inner; v++) longest = f.size[v] + 1 > longest ? f.size[v] + 1 : longest;
  return longest;
}

template <class M>
struct SmallTree {
  const TreeView& f;
  const SmallModels& in;
  LaneRoom room;
  M *up, *down;              // of every node; `down` is for the way down
  vec** table;               // of every inner node; null without one
  vec *lost_up, *lost_down;  // of every node
  M padded;                  // room for the longest message and kLanePad on either side
  vec log_tables = vec{}, scale = vec{};  // what tables and messages were divided by: a logarithm, a power of two
  double variance;           // of the rounding errors, in squared unit round-offs

  SmallTree(const TreeView& tree, const SmallModels& models, double* scratch)
      : f(tree), in(models), room{(vec*)scratch}, variance(4.0 * tree.leaves) {
    const ptrdiff_t nodes = (ptrdiff_t)f.leaves + f.inner;
    up = room.take_other<M>(nodes);
    down = room.take_other<M>(nodes);
    table = room.take_other<vec*>(f.inner);
    lost_up = room.take(nodes);
    lost_down = room.take(nodes);
    padded = room.take_message<M>(longest_message(f) + 2 * kLanePad);
    for (int32_t d = 0; d < f.leaves; d++) {
      up[d] = room.take_message<M>(2);
      lost_up[d] = splat(kUnderflow);
    }
    by_entry(in.nu, kLanes, f.leaves, [&](ptrdiff_t d, vec x) {  // (q, p), q + p = 1
      const Leaf w = leaf_of(x, deviation(x));
      value_of(up[d])[0] = w.off;
      value_of(up[d])[1] = w.on;
    });
    if constexpr (kCarriesChange<M>) by_entry(in.v, kLanes, f.leaves, [&](ptrdiff_t d, vec v) {
      const vec spread = up[d].value[0] * up[d].value[1], moved = spread > 0.0 ? spread * v : vec{};
      up[d].change[0] = -moved;
      up[d].change[1] = moved;
    });
  }

  ptrdiff_t counts(int32_t node) const { return f.size[node] + 1; }

  // out = f . x and, of derivatives, f . (x' + h x).
  void weigh(int32_t i, ptrdiff_t n, M x, M out) const {
    const vec* t = table[i];
    for (ptrdiff_t k = 0; k < n; k++) value_of(out)[k] = value_of(x)[k] * t[k];
    if constexpr (kCarriesChange<M>) {
      for (ptrdiff_t k = 0; k < n; k++) out.change[k] = x.change[k] * t[k];
      if (!in.h[0]) return;
      const double* h[8];
      for (int l = 0; l < 8; l++) h[l] = in.h[l] + f.table_offset[i];
      by_entry(h, kLanes, n, [&](ptrdiff_t k, vec moved) {
        out.change[k] += out.value[k] > 0.0 ? moved * out.value[k] : vec{};
      });
    }
  }

  // Merges node i. Without `with_table` its own table stays out, and the message is scaled as it is.
  void merge(int32_t i, bool with_table) {
    const int32_t a = f.left[i], b = f.right[i], v = f.leaves + i;
    const ptrdiff_t na = counts(a), nb = counts(b), n = counts(v);
    const M c = up[v] = room.take_message<M>(n + kLanes);
    if (n == 3)
      convolve_fixed<2, 2>(up[a], up[b], c);
    else
      convolve_any(up[a], na, up[b], nb, c, padded);
    variance += (double)(na < nb ? na : nb) + 16;
    vec lost = lost_in_merge(lost_up[a], lost_up[b], n, kCarriesChange<M> ? 3.0 : 2.0);
    table[i] = nullptr;
    if (with_table && f.table_offset[i] >= 0) {
      vec faint = splat(kUnderflow);
      table[i] = room.take(n + kLanes);
      log_tables += weigh_table(in.tables, in.shared_tables, f.table_offset[i], n, table[i], &faint);
      weigh(i, n, c, c);
      lost = max(lost, faint) + 1.0;
    }
    const vec shift = rescale(c, n);
    scale += shift;
    lost_up[v] = lost - shift;
    if constexpr (kCarriesChange<M>) {
      vec sum = vec{}, moved = vec{};
      for (ptrdiff_t k = 0; k < n; k++) sum += c.value[k], moved += c.change[k];
      take_off(c, n, sum, moved);
    }
  }

  // Takes the multiple of the value off the derivative that makes its sum, `moved`, vanish.
  static void take_off(M x, ptrdiff_t n, vec sum, vec moved) {
    const vec mean = sum > 0.0 ? moved / sum : vec{};
    for (ptrdiff_t k = 0; k < n; k++) x.change[k] -= mean * x.value[k];
  }
};

// Many small models on one tree: one model per lane, direct convolutions, no branches on the numbers.
//
// At every node the belief is up . down / <up, down>. A model for which underflow matters, or whose answer may be a zero, is
// left to the passes that work on one model at a time: its bound is infinite.

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

// The count distribution at a root of many small models: the way up, and the logarithm of the root's message.
//
// The root's own table joins after the logarithm, so its range does not matter. An entry is right to 2^-40 where it is
// 2^40 times what underflow may have taken. A zero is the truth outside the counts that forced and excluded variables
// and the ends of tables leave, and where the root's own table has one; any other may be an underflow.

namespace {

constexpr double kSure = 40;

// The smallest and largest count that every node of a lane can have.
struct SmallSupport {
  int32_t *low, *high;

  void leaves(const TreeView& f, const double* nu) const {
    for (int32_t d = 0; d < f.leaves; d++) {
      low[d] = nu[d] == __builtin_inf();
      high[d] = nu[d] != -__builtin_inf();
    }
  }
  void merge(const TreeView& f, int32_t i, const double* tables, bool weigh) const {
    const int32_t v = f.leaves + i, a = f.left[i], b = f.right[i];
    low[v] = low[a] + low[b];
    high[v] = high[a] + high[b];
    if (!weigh || f.table_offset[i] < 0) return;
    const double* log_f = tables + f.table_offset[i];
    while (low[v] < high[v] && log_f[low[v]] == -__builtin_inf()) low[v]++;
    while (low[v] < high[v] && log_f[high[v]] == -__builtin_inf()) high[v]--;
  }
};

// Marks the nodes of the tree under `root`.
void mark_below(const TreeView& f, int32_t root, int32_t* marked) {
  for (int32_t i = root - f.leaves; i >= 0; i--) {
    const int32_t v = f.leaves + i, parent = f.parent[v];
    marked[i] = v == root || (parent >= 0 && parent <= root && marked[parent - f.leaves]);
  }
}

}  // namespace

void small_counts(const TreeView& f, const SmallModels& in, int32_t node, double* scratch, double* const* out,
                  bool* certain) {
  SmallTree<vec*> up(f, in, scratch);
  const int32_t root = node - f.leaves;
  int32_t* marked = up.room.take_other<int32_t>(f.inner);
  mark_below(f, node, marked);
  for (int32_t i = 0; i <= root; i++)
    if (marked[i]) up.merge(i, i != root);
  const ptrdiff_t n = f.size[node] + 1;
  vec* c = up.up[node];
  // A lane that lost everything has no certain entry, whatever is enough.
  const vec enough = pow2(min(max(up.lost_up[node] + kSure, splat(-1000.0)), splat(1000.0)));
  vec doubtful = vec{};  // how many entries of each lane
  SmallSupport support = {up.room.take_other<int32_t>((ptrdiff_t)f.leaves + f.inner),
                         up.room.take_other<int32_t>((ptrdiff_t)f.leaves + f.inner)};
  for (ptrdiff_t k = 0; k < n; k++) doubtful += c[k] > enough ? vec{} : splat(1.0);
  for (int l = 0; l < in.count; l++) {
    const double* log_f = in.tables[l] + f.table_offset[root];
    certain[l] = up.lost_up[node][l] < -kSure;
    if (!certain[l] || doubtful[l] == 0) continue;
    support.leaves(f, in.nu[l]);
    for (int32_t i = 0; i <= root; i++)
      if (marked[i]) support.merge(f, i, in.tables[l], i != root);
    for (ptrdiff_t k = support.low[node]; k <= support.high[node]; k++)
      certain[l] &= c[k][l] > enough[l] || (f.table_offset[root] >= 0 && log_f[k] == -__builtin_inf());
  }
  // log P = log c + log f, up to a constant that makes it a distribution.
  const double low = -__builtin_inf();
  vec top = splat(low);
  if (f.table_offset[root] >= 0) {
    const double* rows[8];
    for (int l = 0; l < 8; l++) rows[l] = in.tables[in.shared_tables ? 0 : l] + f.table_offset[root];
    by_entry(rows, kLanes, n, [&](ptrdiff_t k, vec x) { c[k] = c[k] > 0.0 ? log(c[k]) + x : splat(low); });
  } else {
    for (ptrdiff_t k = 0; k < n; k++) c[k] = c[k] > 0.0 ? log(c[k]) : splat(low);
  }
  for (ptrdiff_t k = 0; k < n; k++) top = max(top, c[k]);
  vec sum = vec{};
  for (ptrdiff_t k = 0; k < n; k++) sum += exp(c[k] - top);
  const vec norm = top + log(sum);
  to_rows(out, in.count, n, [&](ptrdiff_t k) { return c[k] - norm; });
  for (int l = 0; l < in.count; l++) certain[l] &= top[l] > low;
}

// Samples of many small models on one tree: up side by side, then down by one decision per merge, model by model.
//
// The count of the left child has weights up_l(i) up_r(z - i) given the parent's count z, a root's count those of its
// message. A weight that underflowed to zero is never chosen and the others keep their proportions, so samples follow
// the law given that nothing underflowed: all that can be wrong is the share of the weight that was lost.

namespace {

// Decisions of one sample: a split per inner node, a count per root, a state per free leaf. In whole calls of the
// generator, as words of 64 bits.
ptrdiff_t random_words(const TreeView& f) {
  ptrdiff_t decisions = f.inner;
  for (int32_t v = 0; v < f.leaves + f.inner; v++) decisions += f.parent[v] < 0;
  return (decisions + 2 * kCalls - 1) / (2 * kCalls) * (2 * kCalls);
}

// The first index at which the running sum of the weights exceeds its share `u` of the total: never one of weight 0.
ptrdiff_t choose_weight(double* weight, ptrdiff_t n, double u) {
  double total = 0;
  for (ptrdiff_t i = 0; i < n; i++) weight[i] = total += weight[i];
  const double reached = u * total;
  ptrdiff_t i = 0;
  while (i + 1 < n && !(weight[i] > reached)) i++;
  while (i > 0 && weight[i] == weight[i - 1]) i--;  // only if u * total was rounded up to the total
  return i;
}

struct SmallWalk {
  const SmallTree<vec*>& up;
  int lane;
  const uint64_t* words;
  int32_t* count;  // of every node
  double* weight;

  const double* message(int32_t node) const { return (const double*)up.up[node] + lane; }

  void root(int32_t node, uint64_t bits) const {
    const double* x = message(node);
    const ptrdiff_t n = up.f.size[node] + 1;
    for (ptrdiff_t k = 0; k < n; k++) weight[k] = x[k * kLanes];
    count[node] = (int32_t)choose_weight(weight, n, unit_interval(bits));
  }

  void split(int32_t i) const {
    const TreeView& f = up.f;
    const int32_t a = f.left[i], b = f.right[i], z = count[f.leaves + i];
    const int32_t low = z > f.size[b] ? z - f.size[b] : 0, high = z < f.size[a] ? z : f.size[a];
    int32_t chosen = low;
    if (high > low) {
      const double *x = message(a) + (ptrdiff_t)low * kLanes, *y = message(b) + (ptrdiff_t)(z - low) * kLanes;
      const ptrdiff_t n = high - low + 1;
      for (ptrdiff_t j = 0; j < n; j++) weight[j] = x[j * kLanes] * y[-j * kLanes];
      chosen = low + (int32_t)choose_weight(weight, n, unit_interval(words[i]));
    }
    count[a] = chosen;
    count[b] = z - chosen;
  }

  void run(uint8_t* out) const {
    const TreeView& f = up.f;
    const uint64_t* next = words + f.inner;
    for (int32_t i = f.inner; i-- > 0;) {
      if (f.parent[f.leaves + i] < 0) root(f.leaves + i, *next++);
      split(i);
    }
    for (int32_t d = 0; d < f.leaves; d++) {
      if (f.parent[d] < 0) root(d, *next++);
      out[d] = (uint8_t)count[d];
    }
  }
};

// Weight that underflow took from the roots, as a share of what is there.
vec lost_share(const SmallTree<vec*>& up) {
  vec lost = vec{};
  for (int32_t i = 0; i < up.f.inner; i++) {
    const int32_t v = up.f.leaves + i;
    if (up.f.parent[v] >= 0) continue;
    const ptrdiff_t n = up.f.size[v] + 1;
    vec sum = vec{};
    for (ptrdiff_t k = 0; k < n; k++) sum += up.up[v][k];
    for (int l = 0; l < kLanes; l++)
      lost[l] += sum[l] > 0 ? (double)n * real::exp2(up.lost_up[v][l]) / sum[l] : __builtin_inf();
  }
  return lost;
}

}  // namespace

void small_draws(const TreeView& f, const SmallModels& in, const SmallDraws& draws, double* scratch, double* lost) {
  SmallTree<vec*> up(f, in, scratch);
  for (int32_t i = 0; i < f.inner; i++) up.merge(i, true);
  const vec share = lost_share(up);
  for (int l = 0; l < in.count; l++) lost[l] = share[l];
  const ptrdiff_t words = random_words(f);
  uint64_t* random = up.room.take_other<uint64_t>(words);
  double* weight = up.room.take_other<double>(longest_message(f));
  int32_t* count = up.room.take_other<int32_t>((ptrdiff_t)f.leaves + f.inner);
  SampleKey key;
  std::memcpy(key.word, draws.key, sizeof key.word);
  for (int l = 0; l < in.count; l++) {
    if (!draws.out[l] || lost[l] == __builtin_inf()) continue;
    for (ptrdiff_t s = 0; s < draws.samples; s++) {
      philox(key, kTagLane, draws.model[l], (uint32_t)s, words / 2, random);
      SmallWalk{up, l, random, count, weight}.run(draws.out[l] + s * draws.stride);
    }
  }
}

}  // namespace tallytree::TT_LEVEL
