// Values and adjoints of clusters in rows with one exponent per entry: relatively accurate, whatever the range.
//
// Tables and weights are logarithms here, and all scales are powers of two. Rows keep the counts that a model can have, all
// rows of a cluster in one window. Tilts are powers of two: weights get 2^(power score) and the tables of the sets that hold all
// others 2^(-power count), exactly.
#include "base/wide.hpp"
#include "cluster/types.hpp"

namespace tallytree::TT_LEVEL {

namespace {

// Rows of one window, side by side: first all values, then all exponents.
struct Rows {
  double *value, *exponent;
  int count, width, stride;

  Wide operator[](int s) const { return {value + (ptrdiff_t)s * stride, exponent + (ptrdiff_t)s * stride, width}; }
  double* values(int s) const { return value + (ptrdiff_t)s * stride; }
  double* exponents(int s) const { return exponent + (ptrdiff_t)s * stride; }
  // x 2^e at one place, x zero or positive and of any size.
  void set(int s, int at, double x, double e) const {
    const double ex = x > 0 ? exponent_of(x) : 0.0;
    values(s)[at] = x * pow2(-ex);
    exponents(s)[at] = x > 0 ? e + ex : kZeroExponent;
  }
};
// Zeros, with room behind every row for the vectors of a product.
Rows zero_rows(Worker& w, int count, int width) {
  const ptrdiff_t stride = width + kPad, all = count * stride;
  const Rows rows = {arena_take(w.arena, (size_t)all), arena_take(w.arena, (size_t)all), count, width, (int)stride};
  fill(rows.value, all, 0.0);
  fill(rows.exponent, all, kZeroExponent);
  return rows;
}
Rows rows_of(const ClusterItem& item, int node, double* kept) {
  const int count = states_of(item.program->kind[node], item.states), width = item.clusters[node].width;
  return {kept, kept + (ptrdiff_t)count * width, count, width, width};
}
Rows values(const ClusterItem& item, int node) { return rows_of(item, node, item.clusters[node].value); }
Rows adjoints(const ClusterItem& item, int node) { return rows_of(item, node, item.clusters[node].adjoint); }

// A logarithm as value times a power of two.
struct Split {
  double value, exponent;
};
Split split(double log_weight) {
  vec e;
  const vec v = exp_split_or_zero(splat(log_weight), e);
  return {v[0], e[0]};
}

// out = change(value, exponent) of every vector, at places j, j + 1, ...
template <class Change>
void for_vectors(const Wide& x, double* out, double* out_exponent, const Change& change) {
  for (int j = 0; j < x.length; j += kLanes) {
    vec value = load_up_to(x.value + j, x.length - j, 0.0), exponent = load_up_to(x.exponent + j, x.length - j, kZeroExponent);
    change(j, value, exponent);
    store_wide(value, exponent, out + j, out_exponent + j);
  }
}

// Row `to` of out += e^log_weight x.
void add_row(const Rows& out, int to, const Wide& x, double log_weight) {
  const Split weight = split(log_weight);
  double *own = out.values(to), *own_exponent = out.exponents(to);
  if (weight.exponent < kZeroExponent / 2) return;
  for_vectors(x, own, own_exponent, [&](int j, vec& value, vec& exponent) {
    const vec e = exponent + weight.exponent, before = load(own_exponent + j);
    exponent = max(e, before);
    value = value * weight.value * pow2(e - exponent) + load(own + j) * pow2(before - exponent);
  });
}

// Rows with the largest exponent taken out, moved to where they stay; returns it.
double keep_rows(Worker& w, const Rows& rows, double*& out) {
  double top = kZeroExponent;
  for (int s = 0; s < rows.count; s++)
    for (int j = 0; j < rows.width; j++) top = max(top, rows.exponents(s)[j]);
  const double shift = top < kZeroExponent / 2 ? 0.0 : top;
  const ptrdiff_t all = (ptrdiff_t)rows.count * rows.width;
  out = arena_take(w.arena, (size_t)(2 * all));
  for (int s = 0; s < rows.count; s++) {
    double *value = out + (ptrdiff_t)s * rows.width, *exponent = value + all;
    std::memcpy(value, rows.values(s), sizeof(double) * (size_t)rows.width);
    for (int j = 0; j < rows.width; j++) exponent[j] = rows.exponents(s)[j] - (value[j] > 0 ? shift : 0.0);
  }
  return shift;
}

// A sum of positive terms x y 2^e of any size.
struct ScaledSum {
  double value = 0, exponent = kZeroExponent;

  void add(double x, double y, double e) {
    if (!(x > 0 && y > 0)) return;
    const double both = max(e, exponent);
    value = value * pow2(exponent - both) + x * y * pow2(e - both);
    exponent = both;
  }
  void add(const Wide& x, const Wide& y) {
    for (int k = 0; k < x.length; k++) add(x.value[k], y.value[k], x.exponent[k] + y.exponent[k]);
  }
  double log() const { return value > 0 ? exponent * kLn2High + (exponent * kLn2Low + real::log(value)) : -__builtin_inf(); }
};

// Row s of out = x(k) f(lo + k) 2^(-power (lo + k)), f given by its logarithms.
void times_table(const Rows& out, int s, const Wide& x, const double* log_f, int lo, int64_t length, double power) {
  const ptrdiff_t end = length - lo < x.length ? length - lo : x.length;
  for_vectors(x, out.values(s), out.exponents(s), [&](int j, vec& value, vec& exponent) {
    vec e;
    value *= exp_split_or_zero(load_up_to(log_f + lo + j, end - j, -__builtin_inf()), e);
    for (int l = 0; l < kLanes; l++) exponent[l] += e[l] - power * (double)(lo + j + l);
  });
}

// The tilt of a vertex's state, and of the table of a set, as powers of two.
double state_power(const ClusterItem& item, int vertex, int state) {
  const int set = item.top_set[vertex];
  return set < 0 ? 0.0 : item.powers[set] * item.score[(ptrdiff_t)vertex * item.states + state];
}
double table_power(const ClusterItem& item, int set) { return item.program->top[set] ? item.powers[set] : 0.0; }

void finish(ClusterItem& item, Worker& kept, int node, const Rows& rows, int lo) {
  Cluster& c = item.clusters[node];
  c.exponent = keep_rows(kept, rows, c.value);
  c.lo = lo;
  c.width = rows.width;
}
void settle(ClusterItem& item, Worker& kept, int node, const Rows& rows) { keep_rows(kept, rows, item.clusters[node].adjoint); }

// The second operand behind its edge: rows in the operand's own window.
struct Behind : Crossing {
  Rows rows;
};
Behind behind(const ClusterItem& item, Worker& w, int node) {
  const int b = item.program->b[node];
  Behind out = {crossing(*item.program, node, item.states, item.edges, item.identity), values(item, b)};
  if (!out.table) return out;
  out.rows = zero_rows(w, out.count, item.clusters[b].width);
  across(out, item.states,
         [&](int here, int from, double log_weight) { add_row(out.rows, here, values(item, b)[from], log_weight); });
  return out;
}

struct Terms {
  Term* list;
  int count;
};
Terms terms_of(const ClusterItem& item, Worker& w, int node) {
  const int K = item.states;
  Term* list = reinterpret_cast<Term*>(arena_take(w.arena, (size_t)(2 * K * K * K + 8)));
  return {list, list_terms(item.program->op[node], K, list)};
}

void product_up(ClusterItem& item, ClusterWorker& w, int node) {
  const int a = item.program->a[node];
  const Cluster &x = item.clusters[a], &b = item.clusters[item.program->b[node]];
  const Behind y = behind(item, w.scratch, node);
  const Terms terms = terms_of(item, w.scratch, node);
  const int states = states_of(item.program->kind[node], item.states), start = x.lo + b.lo;
  const Interval window = item.windows[node];
  // Sets that contradict one another may leave no count: one stays, which a table excludes.
  const int most = x.width + b.width - 2, first = min(max(window.lo - start, 0), most), last = min(max(window.hi - start, first), most);
  const Rows rows = zero_rows(w.scratch, states, last - first + 1), one = zero_rows(w.scratch, 1, rows.width);
  double* room = arena_take(w.scratch.arena, (size_t)wide_room(x.width, b.width));
  for (int i = 0; i < terms.count; i++) {
    const Term t = terms.list[i];
    convolve_wide(values(item, a)[t.x], y.rows[t.y], first, last + 1, one.value, one.exponent, room);
    add_row(rows, t.out, one[0], 0.0);
  }
  finish(item, w.kept, node, rows, start + first);
}

void leaf_up(ClusterItem& item, ClusterWorker& w, int node) {
  const int K = item.states, v = item.program->ref[node];
  const Interval window = item.windows[node];
  const Rows rows = zero_rows(w.scratch, K, window.hi - window.lo + 1);
  for (int k = 0; k < K; k++) {
    const int at = (item.program->counted[v] ? item.score[(ptrdiff_t)v * K + k] : 0) - window.lo;
    if (at < 0 || at >= rows.width) continue;
    const Split weight = split(item.log_leaf[(ptrdiff_t)v * K + k]);
    rows.set(k, at, weight.value, weight.exponent + state_power(item, v, k));
  }
  finish(item, w.kept, node, rows, window.lo);
}

void table_up(ClusterItem& item, ClusterWorker& w, int node) {
  const int a = item.program->a[node], set = item.program->ref[node], lo = item.clusters[a].lo;
  const Rows x = values(item, a), rows = zero_rows(w.scratch, x.count, x.width), ends = zero_rows(w.scratch, x.count, 1);
  for (int s = 0; s < x.count; s++) {
    times_table(rows, s, x[s], item.tables + item.offset[set], lo, item.offset[set + 1] - item.offset[set],
                table_power(item, set));
    ScaledSum sum;
    for (int j = 0; j < x.width && item.program->top[set]; j++) sum.add(rows[s].value[j], 1.0, rows[s].exponent[j]);
    ends.set(s, 0, sum.value, sum.exponent);
  }
  if (item.program->top[set]) finish(item, w.kept, node, ends, 0);
  else finish(item, w.kept, node, rows, lo);
}

void single_up(ClusterItem& item, ClusterWorker& w, int node) {
  const ClusterView& view = *item.program;
  const int K = item.states, a = view.a[node];
  if (view.op[node] == kTable) return table_up(item, w, node);
  const Rows rows = zero_rows(w.scratch, states_of(view.kind[node], K), view.op[node] == kOnes ? 1 : item.clusters[a].width);
  if (view.op[node] == kOnes) {
    for (int k = 0; k < K; k++) rows.set(k, 0, 1.0, 0.0);
    return finish(item, w.kept, node, rows, 0);
  }
  link_rows(view, node, K, item.edges, 0.0,
            [&](int to, int from, double log_weight) { add_row(rows, to, values(item, a)[from], log_weight); });
  finish(item, w.kept, node, rows, item.clusters[a].lo);
}

// log_edges from <g[p], x[q]> and the logarithms of the table.
void read_pairs(const ClusterItem& item, int node, const ScaledSum* pair, const double* table, bool flip) {
  const int K = item.states, e = item.program->edge[node];
  if (e < 0) return;
  double* out = item.log_edges + (ptrdiff_t)e * K * K;
  double top = -__builtin_inf(), total = 0;
  for (int p = 0; p < K; p++)
    for (int q = 0; q < K; q++) {
      double& place = out[flip ? q * K + p : p * K + q];
      const double weight = entry(table, flip, K, p, q);
      place = weight == -__builtin_inf() ? weight : pair[p * K + q].log() + weight;
      top = max(top, place);
    }
  if (top == -__builtin_inf()) return;
  for (int i = 0; i < K * K; i++) total += real::exp(out[i] - top);
  for (int i = 0; i < K * K; i++) out[i] -= top + real::log(total);
}

void pair_up(const Rows& g, const Rows& x, int K, int columns, ScaledSum* pair) {
  for (int p = 0; p < K; p++)
    for (int q = 0; q < K; q++)
      for (int r = 0; r < columns; r++) pair[p * K + q].add(g[p * columns + r], x[q * columns + r]);
}
ScaledSum* new_pair(Worker& w, int K) {
  ScaledSum* pair = reinterpret_cast<ScaledSum*>(arena_take(w.arena, (size_t)(K * K) * (sizeof(ScaledSum) / 8)));
  for (int i = 0; i < K * K; i++) pair[i] = ScaledSum();
  return pair;
}

void second_down(ClusterItem& item, ClusterWorker& w, int node, const Behind& y, const Rows& g) {
  const int K = item.states, b = item.program->b[node];
  if (!y.table) return settle(item, w.kept, b, g);
  const Rows x = values(item, b), rows = zero_rows(w.scratch, x.count, x.width);
  ScaledSum* pair = new_pair(w.scratch, K);
  across(y, K, [&](int here, int from, double log_weight) {
    add_row(rows, from, g[here], log_weight);
    if (y.spread) pair[here].add(g[here], x[from]);
  });
  if (!y.spread) pair_up(g, x, K, x.count / K, pair);
  read_pairs(item, node, pair, y.table, y.flip);
  settle(item, w.kept, b, rows);
}

void product_down(ClusterItem& item, ClusterWorker& w, int node) {
  const int a = item.program->a[node], b = item.program->b[node];
  const Behind y = behind(item, w.scratch, node);
  const Terms terms = terms_of(item, w.scratch, node);
  const Rows x = values(item, a), adjoint = adjoints(item, node);
  const int shift = item.clusters[node].lo - item.clusters[a].lo - item.clusters[b].lo, width = y.rows.width;
  // Zeros at every count that the operands have and the product does not keep.
  const Rows moved = zero_rows(w.scratch, adjoint.count, x.width + width - 1);
  for (int s = 0; s < adjoint.count; s++) {
    std::memcpy(moved.values(s) + shift, adjoint.values(s), sizeof(double) * (size_t)adjoint.width);
    std::memcpy(moved.exponents(s) + shift, adjoint.exponents(s), sizeof(double) * (size_t)adjoint.width);
  }
  const Rows gx = zero_rows(w.scratch, x.count, x.width), gy = zero_rows(w.scratch, y.count, width);
  const Rows one = zero_rows(w.scratch, 1, max(x.width, width));
  double* room = arena_take(w.scratch.arena, (size_t)wide_room(moved.width, moved.width));
  const auto add = [&](const Rows& out, int to, const Wide& g, const Wide& other) {
    correlate_wide(g.value, g.exponent, other, one.value, one.exponent, out.width, room);
    add_row(out, to, {one.value, one.exponent, out.width}, 0.0);
  };
  for (int i = 0; i < terms.count; i++) {
    const Term t = terms.list[i];
    add(gx, t.x, moved[t.out], y.rows[t.y]);
    add(gy, t.y, moved[t.out], x[t.x]);
  }
  settle(item, w.kept, a, gx);
  second_down(item, w, node, y, gy);
}

double entry_of(const Wide& x, int at) { return at >= 0 && at < x.length ? x.value[at] : 0.0; }
double power_of(const Wide& x, int at) { return at >= 0 && at < x.length ? x.exponent[at] : kZeroExponent; }

// Messages relative to the largest.
void leaf_down(ClusterItem& item, int node) {
  const int K = item.states, v = item.program->ref[node];
  const Rows g = adjoints(item, node);
  double *out = item.messages + (ptrdiff_t)v * K, top = kZeroExponent;
  const auto place = [&](int k) { return (item.program->counted[v] ? item.score[(ptrdiff_t)v * K + k] : 0) - item.clusters[node].lo; };
  for (int k = 0; k < K; k++) {
    const double e = power_of(g[k], place(k)) + state_power(item, v, k);
    if (entry_of(g[k], place(k)) > 0) top = max(top, e);
  }
  for (int k = 0; k < K; k++) {
    const double value = entry_of(g[k], place(k)), e = power_of(g[k], place(k)) + state_power(item, v, k);
    out[k] = value > 0 ? (e - top) * kLn2 + real::log(value) : -__builtin_inf();
  }
}

void table_down(ClusterItem& item, ClusterWorker& w, int node) {
  const int a = item.program->a[node], set = item.program->ref[node], lo = item.clusters[a].lo;
  const Rows x = values(item, a), g = adjoints(item, node), rows = zero_rows(w.scratch, x.count, x.width);
  const int64_t length = item.offset[set + 1] - item.offset[set];
  for (int s = 0; s < x.count; s++) {
    if (item.program->top[set]) {
      fill(rows.values(s), x.width, g[s].value[0]);
      fill(rows.exponents(s), x.width, g[s].exponent[0]);
    }
    times_table(rows, s, item.program->top[set] ? rows[s] : g[s], item.tables + item.offset[set], lo, length,
                table_power(item, set));
  }
  double top = -__builtin_inf(), total = 0, *out = item.log_counts + item.offset[set] + lo;
  const int end = (int)min((ptrdiff_t)x.width, (ptrdiff_t)(length - lo));
  for (int j = 0; j < end; j++) {
    ScaledSum belief;
    for (int s = 0; s < x.count; s++)
      belief.add(rows[s].value[j], x[s].value[j], rows[s].exponent[j] + x[s].exponent[j]);
    out[j] = belief.log();
    top = max(top, out[j]);
  }
  if (top > -__builtin_inf()) {
    for (int j = 0; j < end; j++) total += real::exp(out[j] - top);
    for (int j = 0; j < end; j++) out[j] -= top + real::log(total);
  }
  settle(item, w.kept, a, rows);
}

void single_down(ClusterItem& item, ClusterWorker& w, int node) {
  const ClusterView& view = *item.program;
  const int K = item.states, a = view.a[node];
  if (view.op[node] == kTable) return table_down(item, w, node);
  const Rows x = values(item, a), g = adjoints(item, node), rows = zero_rows(w.scratch, x.count, x.width);
  if (view.op[node] == kThrough) {
    ScaledSum* pair = new_pair(w.scratch, K);
    pair_up(g, x, K, 1, pair);
    read_pairs(item, node, pair, item.edges + (ptrdiff_t)view.edge[node] * K * K, view.flip[node]);
  }
  link_rows(view, node, K, item.edges, 0.0,
            [&](int from, int to, double log_weight) { add_row(rows, to, g[from], log_weight); });
  settle(item, w.kept, a, rows);
}

// Alternatives with their weights, of any size; one is drawn.
struct Choice {
  double *weight, *exponent;
  int n;
  double top = kZeroExponent;

  Choice(Worker& w, int room) : weight(arena_take(w.arena, (size_t)room)), exponent(arena_take(w.arena, (size_t)room)), n(0) {}
  void add(double x, double y, double e) {
    const bool possible = x > 0 && y > 0;
    weight[n] = possible ? x * y : 0.0;
    exponent[n] = possible ? e : kZeroExponent;
    top = max(top, exponent[n++]);
  }
  // The first alternative at which the sum of the weights exceeds a share of them all: never one without weight.
  int pick(double uniform) {
    double total = 0;
    for (int i = 0; i < n; i++) total += weight[i] *= pow2(max(exponent[i] - top, -1023.0));
    const double threshold = uniform * total;
    double sum = 0;
    int last = 0;
    for (int i = 0; i < n; i++) {
      if (!(weight[i] > 0)) continue;
      last = i;
      sum += weight[i];
      if (sum > threshold) break;
    }
    return last;
  }
};

// States and counts of a cluster's operands, given its own.
void draw_product(const ClusterItem& item, Worker& w, int node, double uniform, int* state, int* count) {
  const ClusterView& view = *item.program;
  const int a = view.a[node], b = view.b[node], K = item.states;
  const Cluster &x = item.clusters[a], &y = item.clusters[b];
  const Terms terms = terms_of(item, w, node);
  const Crossing edge = crossing(view, node, K, item.edges, item.identity);
  const int z = count[node] - x.lo - y.lo, first = max(0, z - y.width + 1), last = min(x.width - 1, z), width = last - first + 1;
  struct Way {
    int x, y;
  };
  Way* ways = reinterpret_cast<Way*>(arena_take(w.arena, (size_t)(K * K * K + 1)));
  int n = 0;
  Choice choice(w, width * K * K + 1);
  each_way(edge, K, terms.list, terms.count, state[node], 0.0, [&](int from, int to, double log_weight) {
    const Split t = split(log_weight);
    if (t.exponent < kZeroExponent / 2) return;
    ways[n++] = {from, to};
    const Wide p = values(item, a)[from], q = values(item, b)[to];
    for (int i = first; i <= last; i++)
      choice.add(p.value[i] * t.value, q.value[z - i], p.exponent[i] + q.exponent[z - i] + t.exponent);
  });
  const int drawn = choice.pick(uniform);
  state[a] = ways[drawn / width].x;
  state[b] = ways[drawn / width].y;
  count[a] = x.lo + first + drawn % width;
  count[b] = count[node] - count[a];
}

void draw_single(const ClusterItem& item, Worker& w, int node, double uniform, int* state, int* count) {
  const ClusterView& view = *item.program;
  const int a = view.a[node], K = item.states;
  const Cluster& x = item.clusters[a];
  state[a] = state[node];
  count[a] = count[node];
  if (view.op[node] == kTable) {
    if (!view.top[view.ref[node]]) return;
    const Wide row = values(item, a)[state[node]];
    const double* log_f = item.tables + item.offset[view.ref[node]];
    Choice choice(w, x.width);
    for (int i = 0; i < x.width; i++) {
      const Split f = split(log_f[x.lo + i]);
      const double power = item.powers[view.ref[node]] * (x.lo + i);
      choice.add(row.value[i], f.value, row.exponent[i] + f.exponent - power);
    }
    count[a] = x.lo + choice.pick(uniform);
    return;
  }
  Choice choice(w, K * K);
  int* from_of = reinterpret_cast<int*>(arena_take(w.arena, (size_t)(K * K)));
  const int at = count[node] - x.lo;
  link_rows(view, node, K, item.edges, 0.0, [&](int to, int from, double log_weight) {
    if (to != state[node]) return;
    const Split t = split(log_weight);
    from_of[choice.n] = from;
    choice.add(entry_of(values(item, a)[from], at), t.value, power_of(values(item, a)[from], at) + t.exponent);
  });
  state[a] = from_of[choice.pick(uniform)];
}

}  // namespace

void wide_cluster_up(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) {
    item.clusters[nodes[i]] = Cluster{};
    const int op = item.program->op[nodes[i]];
    if (op == kLeaf) leaf_up(item, w, nodes[i]);
    else if (op < kRake) single_up(item, w, nodes[i]);
    else product_up(item, w, nodes[i]);
    arena_forget(w.scratch.arena);
  }
}

// Log Z but for the powers of two that were taken out: the logarithm of a root's value.
double wide_cluster_root(ClusterItem& item, ClusterWorker& w, int32_t node) {
  const Wide x = values(item, node)[0];
  double* one = item.clusters[node].adjoint = arena_take(w.kept.arena, 2);
  one[0] = 1;
  one[1] = 0;
  return x.value[0] > 0 ? real::log(x.value[0]) + x.exponent[0] * kLn2 : -__builtin_inf();
}

void wide_cluster_down(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) {
    const int node = nodes[i], op = item.program->op[node];
    if (op == kLeaf) leaf_down(item, node);
    else if (op != kOnes && op < kRake) single_down(item, w, node);
    else if (op >= kRake) product_down(item, w, node);
    arena_forget(w.scratch.arena);
  }
}

// One sample, from the values: a uniform number for every cluster. `state` and `count` have room for one each.
void wide_cluster_draw(ClusterItem& item, ClusterWorker& w, const int32_t* order, const double* uniform, int* state, int* count,
                        int64_t* drawn) {
  for (int32_t i = item.program->nodes; i-- > 0;) {
    const int node = order[i], op = item.program->op[node];
    if (op == kLeaf) drawn[item.program->ref[node]] = state[node];
    else if (op >= kRake) draw_product(item, w.scratch, node, uniform[node], state, count);
    else if (op != kOnes) draw_single(item, w.scratch, node, uniform[node], state, count);
    arena_forget(w.scratch.arena);
  }
}

}  // namespace tallytree::TT_LEVEL
