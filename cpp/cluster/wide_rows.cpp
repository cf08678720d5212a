// Values and adjoints of clusters in rows with one exponent per entry: relatively accurate, whatever the range.
//
// Tables and weights are logarithms here, and all scales are powers of two. Rows keep the counts that a model can have, all
// rows of a cluster in one window. Tilts are powers of two: weights get 2^(power score) and the tables of the sets that hold all
// others 2^(-power count), exactly.
#include "base/wide.hpp"
#include "cluster/program_pass.hpp"

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
struct Sum {
  double value = 0, exponent = kZeroExponent;

  void add(double x, double y, double e) {
    if (!(x > 0 && y > 0)) return;
    const double both = max(e, exponent);
    value = value * pow2(exponent - both) + x * y * pow2(e - both);
    exponent = both;
  }
  void add(const Rows& g, int s, const Rows& x, int t, int from, int n) {
    const Wide a = g[s], b = x[t];
    for (int k = from; k < from + n; k++) add(a.value[k], b.value[k], a.exponent[k] + b.exponent[k]);
  }
  void add(const Sum& x) { add(x.value, 1.0, x.exponent); }
  Sum times(double log_weight) const {
    const Split weight = split(log_weight);
    return {value * weight.value, exponent + weight.exponent};
  }
  double log_share(const Sum& total) const {
    return value > 0 ? (exponent - total.exponent) * kLn2 + real::log(value / total.value) : -__builtin_inf();
  }
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

struct WideNumbers : ProgramNumbers {
  using Rows = TT_LEVEL::Rows;
  using Sum = TT_LEVEL::Sum;
  static constexpr double kOne = 0;  // a logarithm

  Rows zero(int count, int width) { return zero_rows(w.scratch, count, width); }
  Rows values(int node) const { return rows_of(item, node, item.clusters[node].value); }
  void add(const Rows& out, int to, const Rows& x, int from, double log_weight) { add_row(out, to, x[from], log_weight); }

  Interval counts_of_leaf(int node) const { return item.windows[node]; }
  Interval counts_of_product(int node, int start, int n) const {
    // Sets that contradict one another may leave no count: one stays, which a table excludes.
    const int first = min(max(item.windows[node].lo - start, 0), n - 1);
    return {first, min(max(item.windows[node].hi - start, first), n - 1)};
  }
  // The tilt of a vertex's state, and of the table of a set, as powers of two.
  double state_power(int vertex, int state) const {
    const int set = item.top_set[vertex];
    return set < 0 ? 0.0 : item.powers[set] * item.score[(ptrdiff_t)vertex * item.states + state];
  }
  void set_leaf(const Rows& rows, int state, int at, int vertex) const {
    const Split weight = split(log_weight(vertex, state));
    rows.set(state, at, weight.value, weight.exponent + state_power(vertex, state));
  }
  void set_one(const Rows& rows, int state) const { rows.set(state, 0, 1.0, 0.0); }
  void times_table_of(int node, const Rows& rows, int s, const Wide& x) const {
    const int set = item.program->ref[node];
    times_table(rows, s, x, item.tables + item.offset[set], table_from(node),
                item.offset[set + 1] - item.offset[set], item.program->top[set] ? item.powers[set] : 0.0);
  }
  void weigh(int node, const Rows& x, const Rows& rows) {
    if (!item.program->top[item.program->ref[node]]) {
      for (int s = 0; s < x.count; s++) times_table_of(node, rows, s, x[s]);
      return;
    }
    const Rows one = zero(1, x.width);
    for (int s = 0; s < x.count; s++) {
      times_table_of(node, one, 0, x[s]);
      Sum sum;
      for (int j = 0; j < x.width; j++) sum.add(one[0].value[j], 1.0, one[0].exponent[j]);
      rows.set(s, 0, sum.value, sum.exponent);
    }
  }
  void weigh_back(int node, const Rows& x, const Rows& rows) {
    const Rows g = rows_of(item, node, item.clusters[node].adjoint);
    const bool ends = item.program->top[item.program->ref[node]];
    for (int s = 0; s < x.count; s++) {
      if (ends) {
        fill(rows.values(s), x.width, g[s].value[0]);
        fill(rows.exponents(s), x.width, g[s].exponent[0]);
      }
      times_table_of(node, rows, s, ends ? rows[s] : g[s]);
    }
  }

  void keep(int node, const Rows& rows, int lo) {
    Cluster& c = item.clusters[node];
    c.exponent = keep_rows(w.kept, rows, c.value);
    c.lo = lo;
    c.width = rows.width;
  }
  void settle(int operand, int, const Rows& rows) { keep_rows(w.kept, rows, item.clusters[operand].adjoint); }

  void multiply(int, const Rows& x, const Rows& y, const Terms& terms, int first, const Rows& rows) {
    const Rows one = zero(1, rows.width);
    double* room = arena_take(w.scratch.arena, (size_t)wide_room(x.width, y.width));
    for (const Term& t : terms) {
      convolve_wide(x[t.x], y[t.y], first, first + rows.width, one.value, one.exponent, room);
      add(rows, t.out, one, 0, kOne);
    }
  }
  // Zeros at every count that the operands have and the product does not keep.
  Rows moved(int node, int shift, int width) {
    const Rows g = rows_of(item, node, item.clusters[node].adjoint), out = zero(g.count, width);
    for (int s = 0; s < g.count; s++) {
      std::memcpy(out.values(s) + shift, g.values(s), sizeof(double) * (size_t)g.width);
      std::memcpy(out.exponents(s) + shift, g.exponents(s), sizeof(double) * (size_t)g.width);
    }
    return out;
  }
  void divide(int, const Rows& g, const Rows& x, const Rows& y, const Terms& terms, const Rows& gx, const Rows& gy) {
    const Rows one = zero(1, max(x.width, y.width));
    double* room = arena_take(w.scratch.arena, (size_t)wide_room(g.width, g.width));
    const auto add_quotient = [&](const Rows& out, int to, const Wide& from, const Wide& other) {
      correlate_wide(from.value, from.exponent, other, one.value, one.exponent, out.width, room);
      add_row(out, to, {one.value, one.exponent, out.width}, kOne);
    };
    for (const Term& t : terms) {
      add_quotient(gx, t.x, g[t.out], y[t.y]);
      add_quotient(gy, t.y, g[t.out], x[t.x]);
    }
  }

  // Messages relative to the largest.
  void leaf_down(int node) {
    const int K = item.states, v = item.program->ref[node];
    const Rows g = rows_of(item, node, item.clusters[node].adjoint);
    double *out = item.messages + (ptrdiff_t)v * K, top = kZeroExponent;
    for (int pass = 0; pass < 2; pass++)  // the first one finds the largest
      for (int k = 0; k < K; k++) {
        const int at = place(v, k) - item.clusters[node].lo;
        const bool possible = at >= 0 && at < g.width && g.values(k)[at] > 0;
        const double e = possible ? g.exponents(k)[at] + state_power(v, k) : kZeroExponent;
        if (pass == 0) top = max(top, e);
        else out[k] = possible ? (e - top) * kLn2 + real::log(g.values(k)[at]) : -__builtin_inf();
      }
  }
};

// Alternatives with their weights, of any size; one is drawn.
struct Choice {
  const ClusterItem& item;
  Worker& w;
  const double uniform;
  double *weight = nullptr, *exponent = nullptr, top = kZeroExponent;
  int n = 0;

  void begin(int room) {
    weight = arena_take(w.arena, (size_t)room);
    exponent = arena_take(w.arena, (size_t)room);
  }
  void add(double x, double y, double e) {
    const bool possible = x > 0 && y > 0;
    weight[n] = possible ? x * y : 0.0;
    exponent[n] = possible ? e : kZeroExponent;
    top = max(top, exponent[n++]);
  }
  void offer(const Rows& x, int s, int i, const Rows& y, int t, int j, double log_weight) {
    const Split edge = split(log_weight);
    add(x.values(s)[i] * edge.value, y.values(t)[j], x.exponents(s)[i] + y.exponents(t)[j] + edge.exponent);
  }
  void offer(const Rows& x, int s, int i, double log_weight) {
    const Split edge = split(log_weight);
    const bool inside = i >= 0 && i < x.width;
    add(inside ? x.values(s)[i] : 0.0, edge.value, inside ? x.exponents(s)[i] + edge.exponent : kZeroExponent);
  }
  void offer(const Rows& x, int s, int i, int set, int count) {
    const Split f = split(item.tables[item.offset[set] + count]);
    add(x.values(s)[i], f.value, x.exponents(s)[i] + f.exponent - item.powers[set] * count);
  }
  // The first alternative at which the sum of the weights exceeds a share of them all: never one without weight.
  int pick() {
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

}  // namespace

void wide_cluster_up(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  run_up<WideNumbers>(item, w, nodes, count);
}

// Log Z but for the powers of two that were taken out: the logarithm of a root's value.
double wide_cluster_root(ClusterItem& item, ClusterWorker& w, int32_t node) {
  const Wide x = rows_of(item, node, item.clusters[node].value)[0];
  double* one = item.clusters[node].adjoint = arena_take(w.kept.arena, 2);
  one[0] = 1;
  one[1] = 0;
  return x.value[0] > 0 ? real::log(x.value[0]) + x.exponent[0] * kLn2 : -__builtin_inf();
}

void wide_cluster_down(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  run_down<WideNumbers>(item, w, nodes, count);
}

// One sample, from the values: a uniform number for every cluster. `state` and `count` have room for one each.
void wide_cluster_draw(ClusterItem& item, ClusterWorker& w, const int32_t* order, const double* uniform, int* state, int* count,
                        int64_t* drawn) {
  ProgramPass<WideNumbers> pass = {{{item, w}}};
  for (int32_t i = item.program->nodes; i-- > 0;) {
    const int node = order[i];
    if (item.program->op[node] == kLeaf) drawn[item.program->ref[node]] = state[node];
    pass.choose(node, Choice{item, w.scratch, uniform[node]}, state, count);
    arena_forget(w.scratch.arena);
  }
}

}  // namespace tallytree::TT_LEVEL
