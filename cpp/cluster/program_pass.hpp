// The passes over a program of clusters, for any numbers: values of clusters, operands before results; adjoints, results before
// operands; and a way down that chooses states and counts. What operations do to states comes first.
//
// A product is a list of terms (x, y, out): row `out` of the result gains the product of row x of the first operand with
// row y of the second, an edge's table already in it. Everything is static: files of several instruction sets include it.
#pragma once
#include "cluster/types.hpp"

namespace tallytree {

// A sum of logarithms, compensated.
struct LogSum {
  double total = 0, lost = 0;
  void add(double x) {
    const double y = x - lost, next = total + y;
    lost = __builtin_isfinite(next) ? (next - total) - y : 0.0;
    total = next;
  }
};

struct Term {
  int x, y, out;
};

static inline int states_of(int kind, int K) { return kind == kScalar ? 1 : kind == kVector ? K : K * K; }

// The terms of a product; returns their number, at most K^3.
static inline int list_terms(int op, int K, Term* out) {
  int n = 0;
  const int P = op == kJoin ? 1 : K;
  const int Q = op == kClose || op == kCompress ? K : 1;
  const int R = op == kHang || op == kCompress || op == kScalePath || op == kOuter ? K : 1;
  for (int p = 0; p < P; p++)
    for (int q = 0; q < Q; q++)
      for (int r = 0; r < R; r++) {
        Term t = {p, 0, R > 1 ? p * K + r : p};
        switch (op) {
          case kRake: t.y = p; break;
          case kHang: t.y = p * K + r; break;
          case kClose: t.x = p * K + q; t.y = q; break;
          case kCompress: t.x = p * K + q; t.y = q * K + r; break;
          case kScalePath: t.x = p * K + r; break;
          case kOuter: t.y = r; break;
          default: break;
        }
        out[n++] = t;
      }
  return n;
}

// An entry of an edge's table, the upper vertex's state first.
static inline double entry(const double* t, bool flip, int K, int p, int q) { return flip ? t[q * K + p] : t[p * K + q]; }

// How the second operand of a product gets across its edge.
struct Crossing {
  const double* table;  // (K, K), or null: there is nothing to cross
  bool flip, spread;    // spread: a vector becomes a matrix
  int count;            // rows on the other side
};
static inline Crossing crossing(const ClusterView& view, int node, int K, const double* edges, const double* identity) {
  const int op = view.op[node], kind = view.kind[view.b[node]], e = view.edge[node];
  Crossing c = {nullptr, false, false, states_of(kind, K)};
  if (op > kCompress) return c;
  c.spread = kind == kVector && (op == kHang || op == kCompress);
  if (e < 0 && !c.spread) return c;
  c.table = e < 0 ? identity : edges + (ptrdiff_t)e * K * K;
  c.flip = e >= 0 && view.flip[node];
  if (c.spread) c.count = K * K;
  return c;
}

// Calls meet(row on this side, row behind the edge, entry of its table) for all rows that meet there.
template <class Meet>
static inline void across(const Crossing& c, int K, const Meet& meet) {
  const int columns = c.count / K;
  for (int p = 0; p < K; p++)
    for (int r = 0; r < columns; r++)
      for (int q = c.spread ? r : 0; q < (c.spread ? r + 1 : K); q++)
        meet(p * columns + r, c.spread ? r : q * columns + r, entry(c.table, c.flip, K, p, q));
}

// Calls take(x, y, weight) for all states of a product's operands that lead to a state of its own, with the edge's weight, `one`
// where there is no edge.
template <class Take>
static inline void each_way(const Crossing& c, int K, const Term* terms, int count, int state, double one, const Take& take) {
  for (int i = 0; i < count; i++) {
    const Term t = terms[i];
    if (t.out != state) continue;
    if (!c.table) take(t.x, t.y, one);
    else across(c, K, [&](int here, int behind, double weight) {
      if (here == t.y) take(t.x, behind, weight);
    });
  }
}

// Calls meet(row of the result, row of the operand, weight) for all rows that an operation on one cluster links: through an
// edge's table, summed over all states, or turned around. `one` is the weight that changes nothing.
template <class Meet>
static inline void link_rows(const ClusterView& view, int node, int K, const double* edges, double one, const Meet& meet) {
  const int op = view.op[node];
  const double* t = op == kThrough ? edges + (ptrdiff_t)view.edge[node] * K * K : nullptr;
  for (int p = 0; p < (op == kSum ? 1 : K); p++)
    for (int q = 0; q < K; q++)
      meet(op == kTurn ? q * K + p : p, op == kTurn ? p * K + q : q, t ? entry(t, view.flip[node], K, p, q) : one);
}

// Where something is visible in any of the rows: from the first such entry to behind the last; empty (lo = n, hi = 0) if nothing is.
template <class Visible>
static inline Interval visible_window(int states, int n, const Visible& visible) {
  Interval w = {n, 0};
  for (int s = 0; s < states; s++) {
    int i = 0, j = n;
    while (i < w.lo && !visible(s, i)) i++;
    while (j > w.hi && !visible(s, j - 1)) j--;
    w = {i, j};
  }
  return w;
}

// Counts of a vertex's own cluster: one more than its largest score if it is counted.
static inline int leaf_width(const ClusterView& view, const int32_t* score, int vertex, int K) {
  int width = 1;
  for (int k = 0; k < K && view.counted[vertex]; k++)
    if (score[(ptrdiff_t)vertex * K + k] >= width) width = score[(ptrdiff_t)vertex * K + k] + 1;
  return width;
}

// The terms of a product, and its second operand behind its edge.
struct Terms {
  Term* list;
  int count;
  const Term* begin() const { return list; }
  const Term* end() const { return list + count; }
};
template <class Rows>
struct Behind : Crossing {
  Rows rows;
};

// What numbers of all kinds share.
struct ProgramNumbers {
  ClusterItem& item;
  ClusterWorker& w;

  template <class T>
  T* room_for(int n) {
    return reinterpret_cast<T*>(arena_take(w.scratch.arena, ((size_t)n * sizeof(T) + 7) / 8));
  }
  // Where a vertex's state stands among the counts of its cluster.
  int place(int vertex, int state) const {
    return item.program->counted[vertex] ? item.score[(ptrdiff_t)vertex * item.states + state] : 0;
  }
  double log_weight(int vertex, int state) const { return item.log_leaf[(ptrdiff_t)vertex * item.states + state]; }
  int states_at(int node) const { return states_of(item.program->kind[node], item.states); }
  // The smallest count of a table's operand.
  int table_from(int node) const { return item.clusters[item.program->a[node]].lo; }
  // The counts of a cluster that are kept: of a leaf, and of a product with n of them from `start` on, relative to that.
  Interval counts_of_leaf(int node) const {
    return {0, leaf_width(*item.program, item.score, item.program->ref[node], item.states) - 1};
  }
  Interval counts_of_product(int, int, int n) const { return {0, n - 1}; }
  // What there is to do before the operands of a cluster get their adjoints.
  void begin_down(int) {}
};

// The passes. Numbers A say what rows are made of (`Rows`: so many rows of as many counts), how they are added and multiplied
// (`add`, `multiply`, `divide`, `Sum`) and kept (`keep`, `settle`).
template <class A>
struct ProgramPass : A {

  using Rows = typename A::Rows;
  using Sum = typename A::Sum;
  using A::add, A::item, A::keep, A::settle, A::values, A::zero;

  // The value of a cluster.
  void up(int node) {
    const ClusterView& view = *item.program;
    const int K = item.states, op = view.op[node], a = view.a[node], ref = view.ref[node];
    if (op >= kRake) return product_up(node);
    if (op == kLeaf) {
      const Interval counts = this->counts_of_leaf(node);
      const Rows rows = zero(K, counts.hi - counts.lo + 1);
      for (int k = 0; k < K; k++) {
        const int at = this->place(ref, k) - counts.lo;
        if (at >= 0 && at < rows.width) this->set_leaf(rows, k, at, ref);
      }
      return keep(node, rows, counts.lo);
    }
    if (op == kOnes) {
      const Rows rows = zero(K, 1);
      for (int k = 0; k < K; k++) this->set_one(rows, k);
      return keep(node, rows, 0);
    }
    const Rows x = values(a);
    const bool ends = op == kTable && view.top[ref];
    const Rows rows = zero(this->states_at(node), ends ? 1 : x.width);
    if (op == kTable) this->weigh(node, x, rows);
    else
      link_rows(view, node, K, item.edges, A::kOne, [&](int to, int from, double weight) { add(rows, to, x, from, weight); });
    keep(node, rows, ends ? 0 : item.clusters[a].lo);
  }

  // The adjoints of a cluster's operands; what is known of its edge and its table.
  void down(int node) {
    const ClusterView& view = *item.program;
    const int op = view.op[node], a = view.a[node], K = item.states;
    if (op == kOnes) return;
    if (op == kLeaf) return this->leaf_down(node);
    if (op >= kRake) return product_down(node);
    const Rows x = values(a), rows = zero(x.count, x.width);
    if (op == kTable) {
      this->weigh_back(node, x, rows);
      read_counts(node, x, rows);
    } else {
      const Rows g = this->moved(node, item.clusters[node].lo - item.clusters[a].lo, x.width);
      if (op == kThrough && item.log_edges)
        read_pairs(node, pairs_of(g, x, 1), item.edges + (ptrdiff_t)view.edge[node] * K * K, view.flip[node]);
      link_rows(view, node, K, item.edges, A::kOne, [&](int from, int to, double weight) { add(rows, to, g, from, weight); });
    }
    settle(a, node, rows);
  }

  // States and counts of a cluster's operands, given its own: the alternative that is picked.
  template <class Choice>
  void choose(int node, Choice&& choice, int* state, int* count) {
    const ClusterView& view = *item.program;
    const int op = view.op[node], a = view.a[node], b = view.b[node], ref = view.ref[node], K = item.states;
    if (op == kLeaf || op == kOnes) return;
    const Rows x = values(a);
    const int lo = item.clusters[a].lo;
    if (op >= kRake) {
      const Rows y = values(b);
      const int z = count[node] - lo - item.clusters[b].lo;
      const int first = z - y.width + 1 > 0 ? z - y.width + 1 : 0, last = z < x.width - 1 ? z : x.width - 1, n = last - first + 1;
      Term* ways = this->template room_for<Term>(K * K + 1);
      int found = 0;
      choice.begin(n * K * K + 1);
      const Terms terms = terms_of(node);
      const Crossing edge = crossing(view, node, K, item.edges, item.identity);
      each_way(edge, K, terms.list, terms.count, state[node], A::kOne, [&](int from, int to, double weight) {
        ways[found++] = {from, to, 0};
        for (int i = first; i <= last; i++) choice.offer(x, from, i, y, to, z - i, weight);
      });
      const int picked = choice.pick();
      state[a] = ways[picked / n].x;
      state[b] = ways[picked / n].y;
      count[a] = lo + first + picked % n;
      count[b] = count[node] - count[a];
      return;
    }
    state[a] = state[node];
    count[a] = count[node];
    if (op == kTable) {
      if (!view.top[ref]) return;
      choice.begin(x.width);
      for (int i = 0; i < x.width; i++) choice.offer(x, state[node], i, ref, lo + i);
      count[a] = lo + choice.pick();
      return;
    }
    int *from_of = this->template room_for<int>(K * K), found = 0;
    choice.begin(K * K);
    link_rows(view, node, K, item.edges, A::kOne, [&](int to, int from, double weight) {
      if (to != state[node]) return;
      from_of[found++] = from;
      choice.offer(x, from, count[node] - lo, weight);
    });
    state[a] = from_of[choice.pick()];
  }

 private:
  Terms terms_of(int node) {
    const int K = item.states;
    Term* list = this->template room_for<Term>(K * K * K);
    return {list, list_terms(item.program->op[node], K, list)};
  }

  Behind<Rows> behind(int node) {
    const int b = item.program->b[node];
    Behind<Rows> y = {crossing(*item.program, node, item.states, item.edges, item.identity), values(b)};
    if (!y.table) return y;
    const Rows x = y.rows;
    y.rows = zero(y.count, x.width);
    across(y, item.states, [&](int here, int from, double weight) { add(y.rows, here, x, from, weight); });
    return y;
  }

  void product_up(int node) {
    const int a = item.program->a[node], start = item.clusters[a].lo + item.clusters[item.program->b[node]].lo;
    const Behind<Rows> y = behind(node);
    const Rows x = values(a);
    const Interval counts = this->counts_of_product(node, start, x.width + y.rows.width - 1);
    const Rows rows = zero(this->states_at(node), counts.hi - counts.lo + 1);
    this->multiply(node, x, y.rows, terms_of(node), counts.lo, rows);
    keep(node, rows, start + counts.lo);
  }

  void product_down(int node) {
    const int a = item.program->a[node], b = item.program->b[node];
    const Behind<Rows> y = behind(node);
    const Rows x = values(a), gx = zero(x.count, x.width), gy = zero(y.count, y.rows.width);
    const Rows g = this->moved(node, item.clusters[node].lo - item.clusters[a].lo - item.clusters[b].lo, x.width + gy.width - 1);
    this->divide(node, g, x, y.rows, terms_of(node), gx, gy);
    settle(a, node, gx);
    if (!y.table) return settle(b, node, gy);
    // Back through the edge's table.
    const Rows own = values(b), rows = zero(own.count, own.width);
    across(y, item.states, [&](int here, int from, double weight) { add(rows, from, gy, here, weight); });
    if (item.log_edges && item.program->edge[node] >= 0) read_pairs(node, pairs_of(gy, own, y.spread ? 0 : own.count / item.states), y.table, y.flip);
    settle(b, node, rows);
  }

  // For states p on this side and q behind an edge the sum over r of <g[p][r], x[q][r]>, r one of so many columns; none: of a
  // vector that was spread to a matrix.
  Sum* pairs_of(const Rows& g, const Rows& x, int columns) {
    const int K = item.states;
    Sum* pair = this->template room_for<Sum>(K * K);
    for (int p = 0; p < K; p++)
      for (int q = 0; q < K; q++) {
        pair[p * K + q] = Sum();
        if (!columns) pair[p * K + q].add(g, p * K + q, x, q, 0, x.width);
        for (int r = 0; r < columns; r++) pair[p * K + q].add(g, p * columns + r, x, q * columns + r, 0, x.width);
      }
    return pair;
  }

  // Log-probabilities of the pairs of states at an edge.
  void read_pairs(int node, Sum* pair, const double* table, bool flip) {
    const int K = item.states;
    double* out = item.log_edges + (ptrdiff_t)item.program->edge[node] * K * K;
    Sum total;
    for (int i = 0; i < K * K; i++) total.add(pair[i] = pair[i].times(entry(table, flip, K, i / K, i % K)));
    for (int i = 0; i < K * K; i++) out[flip ? i % K * K + i / K : i] = pair[i].log_share(total);
  }

  // Log-probabilities of the counts of a set.
  void read_counts(int node, const Rows& x, const Rows& g) {
    if (!item.log_counts) return;
    const int set = item.program->ref[node], lo = this->table_from(node);
    const int64_t left = item.offset[set + 1] - item.offset[set] - lo;
    const int n = x.width < left ? x.width : (int)left;
    double* out = item.log_counts + item.offset[set] + lo;
    Sum* belief = this->template room_for<Sum>(n + 1);
    belief[n] = Sum();
    for (int j = 0; j < n; j++) {
      belief[j] = Sum();
      for (int s = 0; s < x.count; s++) belief[j].add(g, s, x, s, j, 1);
      belief[n].add(belief[j]);
    }
    for (int j = 0; j < n; j++) out[j] = belief[j].log_share(belief[n]);
  }
};

// Runs of clusters of one level, upwards and downwards.
template <class A>
static inline void run_up(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  ProgramPass<A> pass = {{{item, w}}};
  for (ptrdiff_t i = 0; i < count; i++) {
    item.clusters[nodes[i]] = Cluster{};
    pass.up(nodes[i]);
    arena_forget(w.scratch.arena);
  }
}
template <class A>
static inline void run_down(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  ProgramPass<A> pass = {{{item, w}}};
  for (ptrdiff_t i = 0; i < count; i++) {
    pass.begin_down(nodes[i]);
    pass.down(nodes[i]);
    arena_forget(w.scratch.arena);
  }
}

}  // namespace tallytree
