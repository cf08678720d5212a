// Values and adjoints of clusters in rows of counts with exponents: relatively accurate entries, ranges far beyond a double.
//
// Tables and weights are logarithms here, and all scales are powers of two. Rows keep the counts that a model can have, all
// rows of a cluster in one window. Tilts are powers of two: weights get 2^(power score) and the tables of the sets that hold all
// others 2^(-power count), exactly. Tiles of counts share an exponent: what one cannot hold is bounded by the floors that travel
// with the rows (base/tiled.hpp); at a vertex they say what may be missing from each of its states. In wide rows every count has
// its own, and nothing is missing.
#include "cluster/wide_rows.hpp"

namespace tallytree::TT_LEVEL {

namespace {

template <class Row>
using Products = std::conditional_t<std::is_same_v<Row, Tiled>, TiledProducts, WideProducts>;

template <class Row>
Row* new_rows(Worker& w, int states) {
  return reinterpret_cast<Row*>(arena_take(w.arena, (size_t)states * ((sizeof(Row) + 7) / 8)));
}
template <class Row>
Row* zero_rows(Worker& w, int states, int width) {
  Row* rows = new_rows<Row>(w, states);
  for (int s = 0; s < states; s++) make_zero(w, width, rows[s]);
  return rows;
}
template <class Row>
Row one_row(Worker& w) {
  Row row;
  make_zero(w, 1, row);
  put_entry(row, 0, 1.0, 0.0);
  return row;
}

// Rows with the largest exponent taken out, moved to where they stay; returns it.
template <class Row>
double keep_rows(Worker& w, const Row* rows, int states, Row*& out) {
  double top = kZeroExponent;
  for (int s = 0; s < states; s++) top = max(top, scale_of(rows[s]));
  const double shift = top < kNothing ? 0.0 : top;
  out = new_rows<Row>(w, states);
  for (int s = 0; s < states; s++) take_out(out[s] = settled_copy(w, rows[s]), shift);
  return shift;
}

// The tilt of a vertex's state, and of the table of a set, as powers of two.
double state_power(const ClusterItem& item, int vertex, int state) {
  const int set = item.top_set[vertex];
  return set < 0 ? 0.0 : item.powers[set] * item.score[(ptrdiff_t)vertex * item.states + state];
}
double table_power(const ClusterItem& item, int set) { return item.program->top[set] ? item.powers[set] : 0.0; }

template <class Row>
Row* values(const Cluster& c) {
  return static_cast<Row*>(c.rows[0]);
}
template <class Row>
Row* adjoints(const Cluster& c) {
  return static_cast<Row*>(c.rows[1]);
}

template <class Row>
void finish(ClusterItem& item, Worker& kept, int node, const Row* rows, int states, int lo) {
  Cluster& c = item.clusters[node];
  Row* out;
  c.exponent = keep_rows(kept, rows, states, out);
  c.rows[0] = out;
  c.lo = lo;
  c.width = out[0].length;
}
template <class Row>
void settle(ClusterItem& item, Worker& kept, int node, const Row* rows, int states) {
  Row* out;
  keep_rows(kept, rows, states, out);
  item.clusters[node].rows[1] = out;
}

// The second operand behind its edge: rows in the operand's own window.
template <class Row>
struct Behind : Crossing {
  Row* rows;
};
template <class Row>
Behind<Row> behind(const ClusterItem& item, Worker& w, int node) {
  const Cluster& b = item.clusters[item.program->b[node]];
  Behind<Row> out = {crossing(*item.program, node, item.states, item.edges, item.identity), values<Row>(b)};
  if (!out.table) return out;
  out.rows = zero_rows<Row>(w, out.count, b.width);
  across(out, item.states, [&](int here, int from, double log_weight) { add_row(out.rows[here], values<Row>(b)[from], log_weight); });
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

template <class Row>
void product_up(ClusterItem& item, ClusterWorker& w, int node) {
  const Cluster &x = item.clusters[item.program->a[node]], &b = item.clusters[item.program->b[node]];
  const Behind<Row> y = behind<Row>(item, w.scratch, node);
  const Terms terms = terms_of(item, w.scratch, node);
  const int states = states_of(item.program->kind[node], item.states), start = x.lo + b.lo;
  const Interval window = item.windows[node];
  const int first = max(window.lo - start, 0), last = min(window.hi - start, x.width + b.width - 2);
  const Products<Row> room(w.scratch, x.width + b.width - 1);
  Row* rows = new_rows<Row>(w.scratch, states);
  for (int s = 0; s < states; s++) {
    bool begun = false;
    for (int i = 0; i < terms.count; i++) {
      const Term t = terms.list[i];
      if (t.out != s) continue;
      const Row one = room.product(w.scratch, values<Row>(x)[t.x], y.rows[t.y], first, last);
      if (begun) add_row(rows[s], one, 0.0);
      else rows[s] = one;
      begun = true;
    }
  }
  finish(item, w.kept, node, rows, states, start + room.begin(first));
}

template <class Row>
void leaf_up(ClusterItem& item, ClusterWorker& w, int node) {
  const int K = item.states, v = item.program->ref[node];
  const Interval window = item.windows[node];
  Row* rows = zero_rows<Row>(w.scratch, K, window.hi - window.lo + 1);
  for (int k = 0; k < K; k++) {
    const int at = (item.program->counted[v] ? item.score[(ptrdiff_t)v * K + k] : 0) - window.lo;
    if (at < 0 || at >= rows[k].length) continue;
    const Split weight = split(item.log_leaf[(ptrdiff_t)v * K + k]);
    if (weight.exponent < kNothing) continue;
    put_entry(rows[k], at, weight.value, weight.exponent + state_power(item, v, k));
  }
  finish(item, w.kept, node, rows, K, window.lo);
}

template <class Row>
void table_up(ClusterItem& item, ClusterWorker& w, int node) {
  const Cluster& x = item.clusters[item.program->a[node]];
  const int set = item.program->ref[node], states = states_of(item.program->kind[node], item.states);
  const double* log_f = item.tables + item.offset[set];
  Row* rows = new_rows<Row>(w.scratch, states);
  for (int s = 0; s < states; s++) {
    rows[s] = settled_copy(w.scratch, values<Row>(x)[s]);
    multiply_table(rows[s], log_f, x.lo, item.offset[set + 1] - item.offset[set], table_power(item, set));
    if (item.program->top[set]) collapse(w.scratch, rows[s]);
  }
  finish(item, w.kept, node, rows, states, item.program->top[set] ? 0 : x.lo);
}

template <class Row>
void single_up(ClusterItem& item, ClusterWorker& w, int node) {
  const ClusterView& view = *item.program;
  const int K = item.states, states = states_of(view.kind[node], K);
  if (view.op[node] == kTable) return table_up<Row>(item, w, node);
  if (view.op[node] == kOnes) {
    Row* rows = new_rows<Row>(w.scratch, K);
    for (int k = 0; k < K; k++) rows[k] = one_row<Row>(w.scratch);
    return finish(item, w.kept, node, rows, K, 0);
  }
  const Cluster& x = item.clusters[view.a[node]];
  Row* rows = zero_rows<Row>(w.scratch, states, x.width);
  link_rows(view, node, K, item.edges, 0.0,
            [&](int to, int from, double log_weight) { add_row(rows[to], values<Row>(x)[from], log_weight); });
  finish(item, w.kept, node, rows, states, x.lo);
}

// What a floor may be of a number of this exponent; both are powers of two.
double missing(double floor, double exponent) {
  if (floor < kNothing) return 0.0;
  return floor < exponent ? pow2(max(floor - exponent, -1022.0)) : __builtin_inf();
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

template <class Row>
void pair_up(const Row* g, const Row* x, int K, int columns, ScaledSum* pair) {
  for (int p = 0; p < K; p++)
    for (int q = 0; q < K; q++)
      for (int r = 0; r < columns; r++) add_inner_product(pair[p * K + q], g[p * columns + r], x[q * columns + r]);
}
ScaledSum* new_pair(Worker& w, int K) {
  ScaledSum* pair = reinterpret_cast<ScaledSum*>(arena_take(w.arena, (size_t)(K * K) * (sizeof(ScaledSum) / 8)));
  for (int i = 0; i < K * K; i++) pair[i] = ScaledSum();
  return pair;
}

template <class Row>
void second_down(ClusterItem& item, ClusterWorker& w, int node, const Behind<Row>& y, const Row* g) {
  const int K = item.states, b = item.program->b[node], states = states_of(item.program->kind[b], K);
  if (!y.table) return settle(item, w.kept, b, g, states);
  const Cluster& c = item.clusters[b];
  Row* rows = zero_rows<Row>(w.scratch, states, c.width);
  ScaledSum* pair = new_pair(w.scratch, K);
  across(y, K, [&](int here, int from, double log_weight) {
    add_row(rows[from], g[here], log_weight);
    if (y.spread) add_inner_product(pair[here], g[here], values<Row>(c)[from]);
  });
  if (!y.spread) pair_up(g, values<Row>(c), K, states / K, pair);
  read_pairs(item, node, pair, y.table, y.flip);
  settle(item, w.kept, b, rows, states);
}

template <class Row>
void product_down(ClusterItem& item, ClusterWorker& w, int node) {
  const int a = item.program->a[node];
  const Cluster &c = item.clusters[node], &x = item.clusters[a], &b = item.clusters[item.program->b[node]];
  const Behind<Row> y = behind<Row>(item, w.scratch, node);
  const Terms terms = terms_of(item, w.scratch, node);
  const int K = item.states, x_states = states_of(first_kind(item.program->op[node], item.program->kind[node]), K);
  const int out_states = states_of(item.program->kind[node], K);
  const int offset = x.lo + b.lo - c.lo, needed = x.width + b.width - 1;
  const Products<Row> room(w.scratch, needed);
  const bool in_one = room.in_one_tile(offset, c.width);
  Row* moved = new_rows<Row>(w.scratch, out_states);
  for (int s = 0; s < out_states; s++) moved[s] = room.moved(w.scratch, adjoints<Row>(c)[s], offset);
  Row *gx = zero_rows<Row>(w.scratch, x_states, x.width), *gy = zero_rows<Row>(w.scratch, y.count, b.width);
  const auto add = [&](Row& out, const Row& g, const Row& other) {
    add_row(out, room.adjoint(w.scratch, g, other, out.length, in_one), 0.0);
  };
  for (int i = 0; i < terms.count; i++) {
    const Term t = terms.list[i];
    add(gx[t.x], moved[t.out], y.rows[t.y]);
    add(gy[t.y], moved[t.out], values<Row>(x)[t.x]);
  }
  settle(item, w.kept, a, gx, x_states);
  second_down(item, w, node, y, gy);
}

// Messages relative to the largest, and what may be missing from any of them.
template <class Row>
void leaf_down(ClusterItem& item, int node) {
  const int K = item.states, v = item.program->ref[node];
  Cluster& c = item.clusters[node];
  double *out = item.messages + (ptrdiff_t)v * K, top = kZeroExponent;
  const auto count = [&](int k) { return (item.program->counted[v] ? item.score[(ptrdiff_t)v * K + k] : 0) - c.lo; };
  const auto power = [&](int k) {
    const int at = count(k);
    const Row& g = adjoints<Row>(c)[k];
    return at >= 0 && at < c.width && g.value[at] > 0 ? exponent_at(g, at) + exponent_of(g.value[at]) : kZeroExponent;
  };
  for (int k = 0; k < K; k++) top = max(top, power(k) + state_power(item, v, k));
  for (int k = 0; k < K; k++) {
    const int at = count(k);
    const double e = power(k);
    out[k] = -__builtin_inf();
    if (e > kNothing) {
      const double value = adjoints<Row>(c)[k].value[at];
      out[k] = (e + state_power(item, v, k) - top) * kLn2 + real::log(value * pow2(-exponent_of(value)));
    }
    if (at >= 0 && at < c.width) c.harm = max(c.harm, missing(floor_at(adjoints<Row>(c)[k], at), e));
  }
}

template <class Row>
void table_down(ClusterItem& item, ClusterWorker& w, int node) {
  const int a = item.program->a[node], set = item.program->ref[node];
  const Cluster &c = item.clusters[node], &x = item.clusters[a];
  const int states = states_of(item.program->kind[node], item.states);
  const double* log_f = item.tables + item.offset[set];
  const int64_t length = item.offset[set + 1] - item.offset[set];
  Row* rows = new_rows<Row>(w.scratch, states);
  for (int s = 0; s < states; s++) {
    const Row& g = adjoints<Row>(c)[s];
    rows[s] = item.program->top[set] ? spread_out(w.scratch, g, x.width) : settled_copy(w.scratch, g);
    multiply_table(rows[s], log_f, x.lo, length, table_power(item, set));
  }
  double top = -__builtin_inf(), total = 0, lost = kZeroExponent, *out = item.log_counts + item.offset[set];
  for (int j = 0; j < x.width && x.lo + j < length; j++) {
    ScaledSum belief;
    for (int s = 0; s < states; s++)
      belief.add(rows[s].value[j], values<Row>(x)[s].value[j], exponent_at(rows[s], j) + exponent_at(values<Row>(x)[s], j));
    out[x.lo + j] = belief.log();
    top = max(top, out[x.lo + j]);
  }
  if (top > -__builtin_inf()) {
    for (int j = 0; j < x.width && x.lo + j < length; j++) total += real::exp(out[x.lo + j] - top);
    for (int j = 0; j < x.width && x.lo + j < length; j++) out[x.lo + j] -= top + real::log(total);
  }
  // What floors may add to the weight of any count, as a share of all.
  for (int s = 0; s < states; s++) lost = max(lost, floor_of_products(values<Row>(x)[s], rows[s]));
  const double share = lost < kNothing ? kZeroExponent : top > -__builtin_inf() ? lost - top / kLn2 + real::log2(states) : __builtin_inf();
  item.clusters[node].vanished = share > 0 ? __builtin_inf() : pow2(real::ceil(max(share, -1023.0)));
  settle(item, w.kept, a, rows, states);
}

template <class Row>
void single_down(ClusterItem& item, ClusterWorker& w, int node) {
  const ClusterView& view = *item.program;
  const int K = item.states, op = view.op[node], a = view.a[node];
  if (op == kTable) return table_down<Row>(item, w, node);
  const Cluster &c = item.clusters[node], &x = item.clusters[a];
  const int states = states_of(first_kind(op, view.kind[node]), K);
  Row* rows = zero_rows<Row>(w.scratch, states, x.width);
  if (op == kThrough) {
    ScaledSum* pair = new_pair(w.scratch, K);
    pair_up(adjoints<Row>(c), values<Row>(x), K, 1, pair);
    read_pairs(item, node, pair, item.edges + (ptrdiff_t)view.edge[node] * K * K, view.flip[node]);
  }
  link_rows(view, node, K, item.edges, 0.0,
            [&](int from, int to, double log_weight) { add_row(rows[to], adjoints<Row>(c)[from], log_weight); });
  settle(item, w.kept, a, rows, states);
}

// Alternatives with their weights, of any size; one is drawn.
struct Choice {
  double *weight, *exponent;
  int n;
  double top = kZeroExponent;

  Choice(Worker& w, int room) : weight(arena_take(w.arena, (size_t)room)), exponent(arena_take(w.arena, (size_t)room)), n(0) {}
  void add(double x, double y, double e) {
    const bool possible = x > 0 && y > 0 && e > kNothing;
    const double ex = possible ? exponent_of(x) : 0.0, ey = possible ? exponent_of(y) : 0.0;
    weight[n] = possible ? (x * pow2(-ex)) * (y * pow2(-ey)) : 0.0;
    exponent[n] = possible ? e + ex + ey : kZeroExponent;
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

template <class Row>
double entry_of(const Row& x, int at) { return at >= 0 && at < x.length ? x.value[at] : 0.0; }
template <class Row>
double power_of(const Row& x, int at) { return at >= 0 && at < x.length ? exponent_at(x, at) : kZeroExponent; }

// States and counts of a cluster's operands, given its own.
template <class Row>
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
    if (t.exponent < kNothing) return;
    ways[n++] = {from, to};
    const Row &p = values<Row>(x)[from], &q = values<Row>(y)[to];
    for (int i = first; i <= last; i++)
      choice.add(p.value[i] * t.value, q.value[z - i], exponent_at(p, i) + exponent_at(q, z - i) + t.exponent);
  });
  const int drawn = choice.pick(uniform);
  state[a] = ways[drawn / width].x;
  state[b] = ways[drawn / width].y;
  count[a] = x.lo + first + drawn % width;
  count[b] = count[node] - count[a];
}

template <class Row>
void draw_single(const ClusterItem& item, Worker& w, int node, double uniform, int* state, int* count) {
  const ClusterView& view = *item.program;
  const int a = view.a[node], K = item.states;
  const Cluster& x = item.clusters[a];
  state[a] = state[node];
  count[a] = count[node];
  if (view.op[node] == kTable) {
    if (!view.top[view.ref[node]]) return;
    const Row& row = values<Row>(x)[state[node]];
    const double* log_f = item.tables + item.offset[view.ref[node]];
    Choice choice(w, x.width);
    for (int i = 0; i < x.width; i++) {
      const Split f = split(log_f[x.lo + i]);
      const double power = item.powers[view.ref[node]] * (x.lo + i);
      choice.add(row.value[i], f.value, exponent_at(row, i) + f.exponent - power);
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
    choice.add(entry_of(values<Row>(x)[from], at), t.value, power_of(values<Row>(x)[from], at) + t.exponent);
  });
  state[a] = from_of[choice.pick(uniform)];
}

}  // namespace

template <class Row>
void cluster_rows_up(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) {
    item.clusters[nodes[i]] = Cluster{};
    const int op = item.program->op[nodes[i]];
    if (op == kLeaf) leaf_up<Row>(item, w, nodes[i]);
    else if (op < kRake) single_up<Row>(item, w, nodes[i]);
    else product_up<Row>(item, w, nodes[i]);
    arena_forget(w.scratch.arena);
  }
}

// Log Z but for the powers of two that were taken out: the logarithm of a root's value, and what may be missing from it.
template <class Row>
double cluster_rows_root(ClusterItem& item, ClusterWorker& w, int32_t node) {
  Cluster& c = item.clusters[node];
  const Row& x = values<Row>(c)[0];
  Row* one = new_rows<Row>(w.kept, 1);
  one[0] = one_row<Row>(w.kept);
  c.rows[1] = one;
  c.harm = missing(floor_at(x, 0), x.value[0] > 0 ? exponent_at(x, 0) + exponent_of(x.value[0]) : kZeroExponent);
  return x.value[0] > 0 ? real::log(x.value[0]) + exponent_at(x, 0) * kLn2 : -__builtin_inf();
}

template <class Row>
void cluster_rows_down(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) {
    const int node = nodes[i], op = item.program->op[node];
    if (op == kLeaf) leaf_down<Row>(item, node);
    else if (op != kOnes && op < kRake) single_down<Row>(item, w, node);
    else if (op >= kRake) product_down<Row>(item, w, node);
    arena_forget(w.scratch.arena);
  }
}

// One sample, from the values: a uniform number for every cluster. `state` and `count` have room for one each.
template <class Row>
void cluster_rows_draw(ClusterItem& item, ClusterWorker& w, const int32_t* order, const double* uniform, int* state, int* count,
                        int64_t* drawn) {
  for (int32_t i = item.program->nodes; i-- > 0;) {
    const int node = order[i], op = item.program->op[node];
    if (op == kLeaf) drawn[item.program->ref[node]] = state[node];
    else if (op >= kRake) draw_product<Row>(item, w.scratch, node, uniform[node], state, count);
    else if (op != kOnes) draw_single<Row>(item, w.scratch, node, uniform[node], state, count);
    arena_forget(w.scratch.arena);
  }
}

#define TT_ROW_KERNELS(name, Row)                                                                                           \
  void name##_cluster_up(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {                      \
    cluster_rows_up<Row>(item, w, nodes, count);                                                                            \
  }                                                                                                                         \
  double name##_cluster_root(ClusterItem& item, ClusterWorker& w, int32_t node) { return cluster_rows_root<Row>(item, w, node); } \
  void name##_cluster_down(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {                    \
    cluster_rows_down<Row>(item, w, nodes, count);                                                                          \
  }                                                                                                                         \
  void name##_cluster_draw(ClusterItem& item, ClusterWorker& w, const int32_t* order, const double* uniform, int* state,    \
                           int* count, int64_t* drawn) {                                                                    \
    cluster_rows_draw<Row>(item, w, order, uniform, state, count, drawn);                                                   \
  }
TT_ROW_KERNELS(tiled, Tiled)
TT_ROW_KERNELS(wide, WideRow)

}  // namespace tallytree::TT_LEVEL
