// Values and adjoints of clusters in exponent-tiled rows: relatively accurate entries, ranges far beyond a double.
//
// Tables and weights are logarithms here, and all scales are powers of two. Rows keep the counts that a model can have, all
// rows of a cluster in one window. Tilts are powers of two: weights get 2^(power score) and the tables of the sets that hold all
// others 2^(-power count), exactly. What one tile cannot hold is bounded by the floors that travel with the rows (base/tiled.hpp):
// at a vertex they say what may be missing from each of its states.
#include "base/tiled.hpp"
#include "cluster/types.hpp"

namespace tallytree::TT_LEVEL {

namespace {

Tiled* new_rows(Worker& w, int states) {
  return reinterpret_cast<Tiled*>(arena_take(w.arena, (size_t)states * ((sizeof(Tiled) + 7) / 8)));
}
Tiled zero_row(Worker& w, int width) {
  Tiled out = new_tiled(w, width);
  fill(out.value, (ptrdiff_t)out.tiles() * kTile, 0.0);
  fill(out.exponent, out.tiles(), kZeroExponent);
  fill(out.floor, 2 * (ptrdiff_t)out.tiles(), kZeroExponent);
  fill(out.least, out.tiles(), 0.0);
  return out;
}
Tiled* zero_rows(Worker& w, int states, int width) {
  Tiled* rows = new_rows(w, states);
  for (int s = 0; s < states; s++) rows[s] = zero_row(w, width);
  return rows;
}

// A logarithm as value times a power of two.
struct Split {
  double value, exponent;
};
Split split(double log_weight) {
  vec e;
  const vec v = exp_split_or_zero(splat(log_weight), e);
  return {v[0], e[0]};
}

TileSide side(const Tiled& x, int tile, Split weight) {
  TileSide out;
  for (int r = 0; r < kTileRows; r++) out.value[r] = load(x.value + (ptrdiff_t)tile * kTile + r * kLanes) * weight.value;
  const bool nothing = weight.exponent < kNothing;
  out.exponent = nothing || x.exponent[tile] < kNothing ? kZeroExponent : x.exponent[tile] + weight.exponent;
  out.floor = nothing || x.floor[tile] < kNothing ? kZeroExponent : x.floor[tile] + weight.exponent + 2;
  return out;
}

// out += e^log_weight x, tile by tile, in place.
void add_row(Tiled& out, const Tiled& x, double log_weight) {
  const Split weight = split(log_weight);
  for (int t = 0; t < out.tiles(); t++) {
    const TileSide more = side(x, t, weight);
    if (more.exponent < kNothing && more.floor < kNothing) continue;
    const TileSide own = side(out, t, {1.0, 0.0});
    combine_pieces(out, t, own, more);
  }
}

// Rows with the largest exponent taken out, moved to where they stay; returns it.
double keep_rows(Worker& w, const Tiled* rows, int states, Tiled*& out) {
  double top = kZeroExponent;
  for (int s = 0; s < states; s++) top = max(top, scale_of(rows[s]));
  const double shift = top < kNothing ? 0.0 : top;
  out = new_rows(w, states);
  for (int s = 0; s < states; s++) take_out(out[s] = settled_copy(w, rows[s]), shift);
  return shift;
}

void add_inner_product(ScaledSum& sum, const Tiled& x, const Tiled& y) {
  for (int t = 0; t < x.tiles(); t++) {
    const double e = x.exponent[t] + y.exponent[t];
    if (e < kNothing || e + 2 * kCentre + 8 < sum.exponent - 80) continue;  // a tile adds less than 2^(e + 2 kCentre + 6)
    for (int k = t * kTile; k < (t + 1) * kTile; k++) sum.add(x.value[k], y.value[k], e);
  }
}

// x(k) *= f(lo + k) 2^(-power (lo + k)), f given by its logarithms.
void multiply_table(Tiled& x, const double* log_f, int lo, int64_t length, double power) {
  const ptrdiff_t end = length - lo < x.length ? length - lo : x.length;
  multiply_by(x, [&](int j, vec& e) {
    const vec f = exp_split_or_zero(load_up_to(log_f + lo + j, end - j, -__builtin_inf()), e);
    for (int l = 0; l < kLanes; l++) e[l] -= e[l] > kNothing ? power * (double)(lo + j + l) : 0.0;
    return f;
  });
}

// The tilt of a vertex's state, and of the table of a set, as powers of two.
double state_power(const ClusterItem& item, int vertex, int state) {
  const int set = item.top_set[vertex];
  return set < 0 ? 0.0 : item.powers[set] * item.score[(ptrdiff_t)vertex * item.states + state];
}
double table_power(const ClusterItem& item, int set) { return item.program->top[set] ? item.powers[set] : 0.0; }

Tiled* values(const Cluster& c) { return static_cast<Tiled*>(c.rows[0]); }
Tiled* adjoints(const Cluster& c) { return static_cast<Tiled*>(c.rows[1]); }

void finish(ClusterItem& item, Worker& kept, int node, const Tiled* rows, int states, int lo) {
  Cluster& c = item.clusters[node];
  Tiled* out;
  c.exponent = keep_rows(kept, rows, states, out);
  c.rows[0] = out;
  c.lo = lo;
  c.width = out[0].length;
}
void settle(ClusterItem& item, Worker& kept, int node, const Tiled* rows, int states) {
  Tiled* out;
  keep_rows(kept, rows, states, out);
  item.clusters[node].rows[1] = out;
}

// The second operand behind its edge: rows in the operand's own window.
struct Behind : Crossing {
  Tiled* rows;
};
Behind behind(const ClusterItem& item, Worker& w, int node) {
  const Cluster& b = item.clusters[item.program->b[node]];
  Behind out = {crossing(*item.program, node, item.states, item.edges, item.identity), values(b)};
  if (!out.table) return out;
  out.rows = zero_rows(w, out.count, b.width);
  across(out, item.states, [&](int here, int from, double log_weight) { add_row(out.rows[here], values(b)[from], log_weight); });
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

// Room for the pairs of tiles of a product: segments, and what else convolve_tiled wants.
struct PairRoom {
  double *segments, *small;
  PairRoom(Worker& w, int a, int b) {
    const size_t tiles = (size_t)(max(a, b) / kTile + 4);
    segments = arena_take(w.arena, 34 * tiles + 256);
    small = arena_take(w.arena, 10 * tiles + 256);
  }
};

void product_up(ClusterItem& item, ClusterWorker& w, int node) {
  const Cluster &x = item.clusters[item.program->a[node]], &b = item.clusters[item.program->b[node]];
  const Behind y = behind(item, w.scratch, node);
  const Terms terms = terms_of(item, w.scratch, node);
  const int states = states_of(item.program->kind[node], item.states), start = x.lo + b.lo;
  const Interval window = item.windows[node];
  const int first = max(window.lo - start, 0), last = min(window.hi - start, x.width + b.width - 2);
  const PairRoom room(w.scratch, x.width + kTile, b.width + kTile);
  Tiled* rows = new_rows(w.scratch, states);
  for (int s = 0; s < states; s++) {
    bool begun = false;
    for (int i = 0; i < terms.count; i++) {
      const Term t = terms.list[i];
      if (t.out != s) continue;
      const Tiled one = convolve_tiled(w.scratch, values(x)[t.x], y.rows[t.y], first, last, room.segments, room.small);
      if (begun) add_row(rows[s], one, 0.0);
      else rows[s] = one;
      begun = true;
    }
  }
  finish(item, w.kept, node, rows, states, start + (x.width + b.width - 1 <= kTile ? 0 : first / kTile * kTile));
}

void leaf_up(ClusterItem& item, ClusterWorker& w, int node) {
  const int K = item.states, v = item.program->ref[node];
  const Interval window = item.windows[node];
  Tiled* rows = zero_rows(w.scratch, K, window.hi - window.lo + 1);
  for (int k = 0; k < K; k++) {
    const int at = (item.program->counted[v] ? item.score[(ptrdiff_t)v * K + k] : 0) - window.lo;
    if (at < 0 || at >= rows[k].length) continue;
    const Split weight = split(item.log_leaf[(ptrdiff_t)v * K + k]);
    if (weight.exponent < kNothing) continue;
    vec tile[kTileRows] = {};
    tile[at % kTile / kLanes][at % kLanes] = weight.value;
    settle_tile(rows[k], at / kTile, tile, weight.exponent + state_power(item, v, k), Loss());
  }
  finish(item, w.kept, node, rows, K, window.lo);
}

void table_up(ClusterItem& item, ClusterWorker& w, int node) {
  const Cluster& x = item.clusters[item.program->a[node]];
  const int set = item.program->ref[node], states = states_of(item.program->kind[node], item.states);
  const double* log_f = item.tables + item.offset[set];
  Tiled* rows = new_rows(w.scratch, states);
  for (int s = 0; s < states; s++) {
    rows[s] = settled_copy(w.scratch, values(x)[s]);
    multiply_table(rows[s], log_f, x.lo, item.offset[set + 1] - item.offset[set], table_power(item, set));
    if (!item.program->top[set]) continue;
    ScaledSum sum;
    Loss loss;
    for (int t = 0; t < rows[s].tiles(); t++) {
      if (rows[s].floor[t] > kNothing) loss.floor = max(loss.floor, rows[s].floor[t] + 4 + real::ceil(real::log2(rows[s].tiles())));
      for (int k = t * kTile; k < (t + 1) * kTile; k++) sum.add(rows[s].value[k], 1.0, rows[s].exponent[t]);
    }
    rows[s] = zero_row(w.scratch, 1);
    vec tile[kTileRows] = {};
    tile[0][0] = sum.value;
    settle_tile(rows[s], 0, tile, sum.value > 0 ? sum.exponent : 0.0, loss);
  }
  finish(item, w.kept, node, rows, states, item.program->top[set] ? 0 : x.lo);
}

void single_up(ClusterItem& item, ClusterWorker& w, int node) {
  const ClusterView& view = *item.program;
  const int K = item.states, states = states_of(view.kind[node], K);
  if (view.op[node] == kTable) return table_up(item, w, node);
  if (view.op[node] == kOnes) {
    Tiled* rows = new_rows(w.scratch, K);
    for (int k = 0; k < K; k++) rows[k] = tiled_of(w.scratch, 1, [](int) { return 1.0; });
    return finish(item, w.kept, node, rows, K, 0);
  }
  const Cluster& x = item.clusters[view.a[node]];
  Tiled* rows = zero_rows(w.scratch, states, x.width);
  link_rows(view, node, K, item.edges, 0.0,
            [&](int to, int from, double log_weight) { add_row(rows[to], values(x)[from], log_weight); });
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

void pair_up(const Tiled* g, const Tiled* x, int K, int columns, ScaledSum* pair) {
  for (int p = 0; p < K; p++)
    for (int q = 0; q < K; q++)
      for (int r = 0; r < columns; r++) add_inner_product(pair[p * K + q], g[p * columns + r], x[q * columns + r]);
}
ScaledSum* new_pair(Worker& w, int K) {
  ScaledSum* pair = reinterpret_cast<ScaledSum*>(arena_take(w.arena, (size_t)(K * K) * (sizeof(ScaledSum) / 8)));
  for (int i = 0; i < K * K; i++) pair[i] = ScaledSum();
  return pair;
}

void second_down(ClusterItem& item, ClusterWorker& w, int node, const Behind& y, const Tiled* g) {
  const int K = item.states, b = item.program->b[node], states = states_of(item.program->kind[b], K);
  if (!y.table) return settle(item, w.kept, b, g, states);
  const Cluster& c = item.clusters[b];
  Tiled* rows = zero_rows(w.scratch, states, c.width);
  ScaledSum* pair = new_pair(w.scratch, K);
  across(y, K, [&](int here, int from, double log_weight) {
    add_row(rows[from], g[here], log_weight);
    if (y.spread) add_inner_product(pair[here], g[here], values(c)[from]);
  });
  if (!y.spread) pair_up(g, values(c), K, states / K, pair);
  read_pairs(item, node, pair, y.table, y.flip);
  settle(item, w.kept, b, rows, states);
}

void product_down(ClusterItem& item, ClusterWorker& w, int node) {
  const int a = item.program->a[node];
  const Cluster &c = item.clusters[node], &x = item.clusters[a], &b = item.clusters[item.program->b[node]];
  const Behind y = behind(item, w.scratch, node);
  const Terms terms = terms_of(item, w.scratch, node);
  const int K = item.states, x_states = states_of(first_kind(item.program->op[node], item.program->kind[node]), K);
  const int out_states = states_of(item.program->kind[node], K);
  const int offset = x.lo + b.lo - c.lo, needed = x.width + b.width - 1;
  const bool small = needed <= kTile && offset == 0 && c.width <= kTile;
  Tiled* moved = new_rows(w.scratch, out_states);
  for (int s = 0; s < out_states; s++) moved[s] = small ? adjoints(c)[s] : shifted(w.scratch, adjoints(c)[s], offset, needed);
  const PairRoom room(w.scratch, needed + 2 * kTile, needed + 2 * kTile);
  Tiled *gx = zero_rows(w.scratch, x_states, x.width), *gy = zero_rows(w.scratch, y.count, b.width);
  const auto add = [&](Tiled& out, const Tiled& g, const Tiled& other) {
    const Tiled one = small ? correlate_small(w.scratch, g, other, out.length)
                            : correlate_tiled(w.scratch, g, other, out.length, room.segments, room.small);
    add_row(out, one, 0.0);
  };
  for (int i = 0; i < terms.count; i++) {
    const Term t = terms.list[i];
    add(gx[t.x], moved[t.out], y.rows[t.y]);
    add(gy[t.y], moved[t.out], values(x)[t.x]);
  }
  settle(item, w.kept, a, gx, x_states);
  second_down(item, w, node, y, gy);
}

// Messages relative to the largest, and what may be missing from any of them.
void leaf_down(ClusterItem& item, int node) {
  const int K = item.states, v = item.program->ref[node];
  Cluster& c = item.clusters[node];
  double *out = item.messages + (ptrdiff_t)v * K, top = kZeroExponent;
  const auto count = [&](int k) { return (item.program->counted[v] ? item.score[(ptrdiff_t)v * K + k] : 0) - c.lo; };
  const auto power = [&](int k) {
    const int at = count(k);
    const Tiled& g = adjoints(c)[k];
    return at >= 0 && at < c.width && g.value[at] > 0 ? g.exponent[at / kTile] + exponent_of(g.value[at]) : kZeroExponent;
  };
  for (int k = 0; k < K; k++) top = max(top, power(k) + state_power(item, v, k));
  for (int k = 0; k < K; k++) {
    const int at = count(k);
    const double e = power(k);
    out[k] = -__builtin_inf();
    if (e > kNothing) {
      const double value = adjoints(c)[k].value[at];
      out[k] = (e + state_power(item, v, k) - top) * kLn2 + real::log(value * pow2(-exponent_of(value)));
    }
    if (at >= 0 && at < c.width) c.harm = max(c.harm, missing(adjoints(c)[k].floor[at / kTile], e));
  }
}

void table_down(ClusterItem& item, ClusterWorker& w, int node) {
  const int a = item.program->a[node], set = item.program->ref[node];
  const Cluster &c = item.clusters[node], &x = item.clusters[a];
  const int states = states_of(item.program->kind[node], item.states);
  const double* log_f = item.tables + item.offset[set];
  const int64_t length = item.offset[set + 1] - item.offset[set];
  Tiled* rows = new_rows(w.scratch, states);
  for (int s = 0; s < states; s++) {
    const Tiled& g = adjoints(c)[s];
    rows[s] = item.program->top[set] ? tiled_of(w.scratch, x.width, [](int) { return 1.0; }) : settled_copy(w.scratch, g);
    if (item.program->top[set])
      for (int t = 0; t < rows[s].tiles(); t++) {
        if (g.exponent[0] < kNothing) rows[s].exponent[t] = kZeroExponent, fill(rows[s].value + t * kTile, kTile, 0.0);
        else {
          rows[s].exponent[t] += g.exponent[0] + kCentre;
          for (int k = 0; k < kTile; k++) rows[s].value[t * kTile + k] *= g.value[0] * pow2(-kCentre);
        }
        rows[s].floor[t] = g.floor[0] > kNothing ? g.floor[0] + 1 : kZeroExponent;
        rows[s].lossy = g.lossy;
      }
    multiply_table(rows[s], log_f, x.lo, length, table_power(item, set));
  }
  double top = -__builtin_inf(), total = 0, lost = kZeroExponent, *out = item.log_counts + item.offset[set];
  for (int j = 0; j < x.width && x.lo + j < length; j++) {
    ScaledSum belief;
    for (int s = 0; s < states; s++)
      belief.add(rows[s].value[j], values(x)[s].value[j], rows[s].exponent[j / kTile] + values(x)[s].exponent[j / kTile]);
    out[x.lo + j] = belief.log();
    top = max(top, out[x.lo + j]);
  }
  if (top > -__builtin_inf()) {
    for (int j = 0; j < x.width && x.lo + j < length; j++) total += real::exp(out[x.lo + j] - top);
    for (int j = 0; j < x.width && x.lo + j < length; j++) out[x.lo + j] -= top + real::log(total);
  }
  // What floors may add to the weight of any count, as a share of all.
  for (int s = 0; s < states; s++)
    for (int t = 0; t < rows[s].tiles(); t++) {
      const Tiled& v = values(x)[s];
      const double size_v = max(v.exponent[t] + kCentre + 1, v.floor[t]), size_g = max(rows[s].exponent[t] + kCentre + 1, rows[s].floor[t]);
      lost = max(lost, 1 + max(v.floor[t] + size_g, rows[s].floor[t] + size_v));
    }
  const double share = lost < kNothing ? kZeroExponent : top > -__builtin_inf() ? lost - top / kLn2 + real::log2(states) : __builtin_inf();
  item.clusters[node].vanished = share > 0 ? __builtin_inf() : pow2(real::ceil(max(share, -1023.0)));
  settle(item, w.kept, a, rows, states);
}

void single_down(ClusterItem& item, ClusterWorker& w, int node) {
  const ClusterView& view = *item.program;
  const int K = item.states, op = view.op[node], a = view.a[node];
  if (op == kTable) return table_down(item, w, node);
  const Cluster &c = item.clusters[node], &x = item.clusters[a];
  const int states = states_of(first_kind(op, view.kind[node]), K);
  Tiled* rows = zero_rows(w.scratch, states, x.width);
  if (op == kThrough) {
    ScaledSum* pair = new_pair(w.scratch, K);
    pair_up(adjoints(c), values(x), K, 1, pair);
    read_pairs(item, node, pair, item.edges + (ptrdiff_t)view.edge[node] * K * K, view.flip[node]);
  }
  link_rows(view, node, K, item.edges, 0.0,
            [&](int from, int to, double log_weight) { add_row(rows[to], adjoints(c)[from], log_weight); });
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

double entry_of(const Tiled& x, int at) { return at >= 0 && at < x.length ? x.value[at] : 0.0; }
double power_of(const Tiled& x, int at) { return at >= 0 && at < x.length ? x.exponent[at / kTile] : kZeroExponent; }

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
    if (t.exponent < kNothing) return;
    ways[n++] = {from, to};
    const Tiled &p = values(x)[from], &q = values(y)[to];
    for (int i = first; i <= last; i++)
      choice.add(p.value[i] * t.value, q.value[z - i], p.exponent[i / kTile] + q.exponent[(z - i) / kTile] + t.exponent);
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
    const Tiled& row = values(x)[state[node]];
    const double* log_f = item.tables + item.offset[view.ref[node]];
    Choice choice(w, x.width);
    for (int i = 0; i < x.width; i++) {
      const Split f = split(log_f[x.lo + i]);
      const double power = item.powers[view.ref[node]] * (x.lo + i);
      choice.add(row.value[i], f.value, row.exponent[i / kTile] + f.exponent - power);
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
    choice.add(entry_of(values(x)[from], at), t.value, power_of(values(x)[from], at) + t.exponent);
  });
  state[a] = from_of[choice.pick(uniform)];
}

}  // namespace

void tiled_cluster_up(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) {
    item.clusters[nodes[i]] = Cluster{};
    const int op = item.program->op[nodes[i]];
    if (op == kLeaf) leaf_up(item, w, nodes[i]);
    else if (op < kRake) single_up(item, w, nodes[i]);
    else product_up(item, w, nodes[i]);
    arena_forget(w.scratch.arena);
  }
}

// Log Z but for the powers of two that were taken out: the logarithm of a root's value, and what may be missing from it.
double tiled_cluster_root(ClusterItem& item, ClusterWorker& w, int32_t node) {
  Cluster& c = item.clusters[node];
  const Tiled& x = values(c)[0];
  Tiled* one = new_rows(w.kept, 1);
  one[0] = tiled_of(w.kept, 1, [](int) { return 1.0; });
  c.rows[1] = one;
  c.harm = missing(x.floor[0], x.value[0] > 0 ? x.exponent[0] + exponent_of(x.value[0]) : kZeroExponent);
  return x.value[0] > 0 ? real::log(x.value[0]) + x.exponent[0] * kLn2 : -__builtin_inf();
}

void tiled_cluster_down(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) {
    const int node = nodes[i], op = item.program->op[node];
    if (op == kLeaf) leaf_down(item, node);
    else if (op != kOnes && op < kRake) single_down(item, w, node);
    else if (op >= kRake) product_down(item, w, node);
    arena_forget(w.scratch.arena);
  }
}

// One sample, from the values: a uniform number for every cluster. `state` and `count` have room for one each.
void tiled_cluster_draw(ClusterItem& item, ClusterWorker& w, const int32_t* order, const double* uniform, int* state, int* count,
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
