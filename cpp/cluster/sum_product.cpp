// Sum-product over clusters in plain numbers: values, operands before results, then adjoints.
//
// What both share: operands of a product, the edge between them, transforms or direct sums.
//
// The terms of a product are convolutions of rows; the same terms give the adjoints, as correlations. Errors are kept by state:
// `lost`, of any entry of a row; `cut`, the mass cut off its ends; `reach`, the largest adjoint of any count.
#include "base/fft_merge.hpp"
#include "cluster/types.hpp"

namespace tallytree::TT_LEVEL {

constexpr double kTiny = 1e-290;  // anything smaller may have been lost to underflow

static inline double* take(ClusterWorker& w, size_t n) { return arena_take(w.scratch.arena, n + kPad); }
static inline double* take_zero(ClusterWorker& w, size_t n) {
  double* p = take(w, n);
  fill(p, (ptrdiff_t)n + kPad, 0.0);
  return p;
}

static inline void add_scaled(double* out, const double* x, double w, int n) {
  const vec v = splat(w);
  int j = 0;
  for (; j + kLanes <= n; j += kLanes) store(out + j, load(out + j) + v * load(x + j));
  for (; j < n; j++) out[j] += w * x[j];
}
static inline void add_product(double* out, const double* x, const double* y, int n) {
  for (int j = 0; j < n; j++) out[j] += x[j] * y[j];
}
static inline double sum(const double* x, int n) {
  double s = 0;
  for (int j = 0; j < n; j++) s += x[j];
  return s;
}

// A direct product is also more accurate, and most of the noise is that of the many short transforms: these must win
// clearly. On chains and trees of 10^4 to 10^5 variables 4 takes the time of 1, and 12 up to a tenth more; with 12 the
// bound of a chain of 10^6 is below the tolerance.
constexpr int32_t kNoisy = 1 << 17;  // variables
static inline double clearly(int32_t variables) { return variables < kNoisy ? 4 : 12; }

static inline int transform_length(const ClusterItem& item, int terms, int rows, int na, int nb) {
  if (!item.use_fft || min(na, nb) < 24) return 0;
  const int N = fft_length((int64_t)na + nb - 1);
  const double direct = terms * (0.6 * na * nb / kLanes + 40), transforms = rows * (0.55 * N * real::log2(N) / kLanes + 60);
  return clearly(item.program->variables) * transforms < direct ? N : 0;
}

// Spectra of rows of n numbers, one after the other.
static inline double* spectra(const double* rows, int count, int n, ClusterWorker& w, const FftPlan& plan) {
  double *out = take(w, (size_t)count * plan.length), *scratch = take(w, plan.length);
  for (int i = 0; i < count; i++)
    padded_spectrum(rows + (ptrdiff_t)i * n, n, out + (ptrdiff_t)i * plan.length, scratch, plan);
  return out;
}
// Rows from spectra (destroyed), negative values (all of them rounding errors) set to 0.
static inline void rows_from_spectra(double* spectrum, int count, int n, double* rows, ClusterWorker& w,
                                     const FftPlan& plan) {
  double* x = take(w, plan.length);
  for (int i = 0; i < count; i++) {
    fft_backward(spectrum + (ptrdiff_t)i * plan.length, x, plan);
    double* out = rows + (ptrdiff_t)i * n;
    for (int j = 0; j < n; j++) out[j] = x[j] > 0 ? x[j] : 0.0;
  }
}
static inline double norm(const double* x, int n) { return real::sqrt(dot(x, x, n)); }

// A product of two clusters: operands, terms, and the length of the transforms if they pay.
struct Product {
  const Cluster &x, &b;
  const Second y;
  double top;  // of the edge's table
  Term* terms;
  int count, x_states, out_states, n, N;

  Product(const ClusterItem& item, ClusterWorker& w, int node)
      : x(item.clusters[item.program->a[node]]), b(item.clusters[item.program->b[node]]),
        y(second_operand(*item.program, node, item.states, item.edges, item.identity, b.value, b.width,
                         [&](size_t room) { return take_zero(w, room); }, add_scaled)),
        n(x.width + y.width - 1) {
    top = y.table && item.program->edge[node] >= 0 ? item.edge_top[item.program->edge[node]] : 0.0;
    const int K = item.states, op = item.program->op[node], kind = item.program->kind[node];
    terms = reinterpret_cast<Term*>(take(w, (size_t)(2 * K * K * K + 8)));
    count = list_terms(op, K, terms);
    x_states = states_of(first_kind(op, kind), K);
    out_states = states_of(kind, K);
    N = transform_length(item, count, x_states + y.count + out_states, x.width, y.width);
  }
  const double* x_row(const Term& t) const { return x.value + (ptrdiff_t)t.x * x.width; }
  const double* y_row(const Term& t) const { return y.rows + (ptrdiff_t)t.y * y.width; }
};

// Values of clusters, operands before results.

constexpr int kTrimmed = 48;  // windows shorter than this are kept whole

// Scale rows of n counts to sum 1, cut negligible ends, store. Ends that are lost in the noise of a transform stay: they
// may be all that a rare state of some vertex below has, and then the values above and beside say what it weighs.
static void finish(ClusterItem& item, ClusterWorker& w, int node, double* rows, int states, int n, int lo, double top,
                   double* lost) {
  Cluster& c = item.clusters[node];
  const double total = sum(rows, states * n), factor = total > 0 ? 1 / total : 1.0;
  c.log_scale = real::log(total) + top;
  c.underflow[0] = kTiny * max(1.0, factor);
  for (int i = 0; i < states * n; i++) rows[i] *= factor;
  if (lost)
    for (int s = 0; s < states; s++) lost[s] *= factor;
  Interval kept = {0, n};
  if (n > kTrimmed && !c.transformed) {
    double* floor = take(w, (size_t)states);
    for (int s = 0; s < states; s++) floor[s] = item.keep * largest(rows + (ptrdiff_t)s * n, n);
    kept = visible_window(states, n, [&](int s, int j) { return rows[(ptrdiff_t)s * n + j] > floor[s]; });
    if (kept.hi <= kept.lo) kept = {0, 1};
  }
  const int first = kept.lo, last = kept.hi;
  c.width = last - first;
  c.lo = lo + first;
  c.value = arena_take(w.kept.arena, (size_t)states * c.width);
  for (int s = 0; s < states; s++)
    std::memcpy(c.value + (ptrdiff_t)s * c.width, rows + (ptrdiff_t)s * n + first, sizeof(double) * (size_t)c.width);
  if (lost || c.width < n) {
    c.lost = arena_take(w.kept.arena, (size_t)states);
    c.cut = arena_take(w.kept.arena, (size_t)states);
    c.touched = true;
    for (int s = 0; s < states; s++) {
      const double* x = rows + (ptrdiff_t)s * n;
      c.lost[s] = lost ? lost[s] : 0.0;
      c.cut[s] = sum(x, first) + sum(x + last, n - last);
    }
  }
}

static void product_up(ClusterItem& item, ClusterWorker& w, int node) {
  const Product product(item, w, node);
  const Cluster &x = product.x, &b = product.b;
  const Second& y = product.y;
  const int n = product.n, N = product.N, out_states = product.out_states;
  double *rows = take_zero(w, (size_t)out_states * n), *lost = nullptr;
  if (N) {
    const FftPlan& plan = *fft_plan(item.plans, N, kLanes);
    const double *fx = spectra(x.value, product.x_states, x.width, w, plan), *fy = spectra(y.rows, y.count, y.width, w, plan);
    double* spectrum = take_zero(w, (size_t)out_states * N);
    lost = take_zero(w, (size_t)out_states);
    double *noise = take_zero(w, (size_t)out_states), *mass = take_zero(w, (size_t)out_states);
    const double size = 1.5 * real::log2(N) * kUnitRoundoff;
    for (int i = 0; i < product.count; i++) {
      const Term t = product.terms[i];
      multiply_spectra<false, true>(fx + (ptrdiff_t)t.x * N, fy + (ptrdiff_t)t.y * N, N, spectrum + (ptrdiff_t)t.out * N);
      const double *p = product.x_row(t), *q = product.y_row(t);
      const double norm_p = norm(p, x.width), norm_q = norm(q, y.width), sum_p = sum(p, x.width), sum_q = sum(q, y.width);
      lost[t.out] += size * norm_p * norm_q;
      noise[t.out] += size * max(norm_p * sum_q, sum_p * norm_q);
      mass[t.out] += sum_p * sum_q;
    }
    rows_from_spectra(spectrum, out_states, n, rows, w, plan);
    Cluster& c = item.clusters[node];
    c.transformed = true;
    c.transform = size;
    for (int s = 0; s < out_states; s++)
      if (mass[s] > 0) c.noise = max(c.noise, noise[s] / mass[s]);
  } else if (min(x.width, y.width) <= 4) {
    for (int i = 0; i < product.count; i++) {
      const Term t = product.terms[i];
      const double *p = product.x_row(t), *q = product.y_row(t);
      double* o = rows + (ptrdiff_t)t.out * n;
      if (x.width <= y.width)
        for (int j = 0; j < x.width; j++) add_scaled(o + j, q, p[j], y.width);
      else
        for (int j = 0; j < y.width; j++) add_scaled(o + j, p, q[j], x.width);
    }
  } else {
    double *one = take(w, (size_t)n + kTileOutputs), *scratch = take(w, (size_t)n + 2 * kPad);
    for (int i = 0; i < product.count; i++) {
      const Term t = product.terms[i];
      convolve_direct(product.x_row(t), x.width, product.y_row(t), y.width, one, scratch);
      add_scaled(rows + (ptrdiff_t)t.out * n, one, 1.0, n);
    }
  }
  Cluster& c = item.clusters[node];
  c.touched = x.touched || b.touched;
  c.transformed |= x.transformed || b.transformed;
  finish(item, w, node, rows, out_states, n, x.lo + b.lo, product.top, lost);
}

static void leaf_up(ClusterItem& item, ClusterWorker& w, int node) {
  const int K = item.states, v = item.program->ref[node];
  const double* log_weight = item.log_leaf + (ptrdiff_t)v * K;
  const int32_t* score = item.score + (ptrdiff_t)v * K;
  const int width = leaf_width(*item.program, item.score, v, K);
  double top = -__builtin_inf(), *rows = take_zero(w, (size_t)K * width);
  for (int k = 0; k < K; k++) top = max(top, log_weight[k]);
  if (top == -__builtin_inf()) top = 0;
  for (int k = 0; k < K; k++)
    rows[k * width + (item.program->counted[v] ? score[k] : 0)] = real::exp(log_weight[k] - top);
  finish(item, w, node, rows, K, width, 0, top, nullptr);
}

static void table_up(ClusterItem& item, ClusterWorker& w, int node) {
  const Cluster& x = item.clusters[item.program->a[node]];
  const int s = item.program->ref[node], states = states_of(item.program->kind[node], item.states), n = x.width;
  const int64_t start = item.offset[s], length = item.offset[s + 1] - start;
  const bool ends = item.program->top[s];
  double *f = take_zero(w, (size_t)n), *rows = take_zero(w, (size_t)states * n);
  for (int j = 0; j < n && x.lo + j < length; j++) f[j] = real::exp(item.tables[start + x.lo + j] - item.table_top[s]);
  for (int i = 0; i < states; i++) {
    const double* p = x.value + (ptrdiff_t)i * n;
    if (ends) rows[i] = dot(p, f, n);
    else add_product(rows + (ptrdiff_t)i * n, p, f, n);
  }
  finish(item, w, node, rows, states, ends ? 1 : n, ends ? 0 : x.lo, item.table_top[s], nullptr);
}

static void single_up(ClusterItem& item, ClusterWorker& w, int node) {
  const ClusterView& view = *item.program;
  const int K = item.states, op = view.op[node];
  if (op == kOnes) {
    double* rows = take(w, (size_t)K);
    fill(rows, K, 1.0);
    return finish(item, w, node, rows, K, 1, 0, 0.0, nullptr);
  }
  const Cluster& x = item.clusters[view.a[node]];
  const int n = x.width;
  item.clusters[node].touched = x.touched;
  item.clusters[node].transformed = x.transformed;
  if (op == kTable) return table_up(item, w, node);
  const int states = states_of(view.kind[node], K);
  double* rows = take_zero(w, (size_t)states * n);
  link_rows(view, node, K, item.edges, 1.0, [&](int to, int from, double weight) {
    add_scaled(rows + (ptrdiff_t)to * n, x.value + (ptrdiff_t)from * n, weight, n);
  });
  finish(item, w, node, rows, states, n, x.lo, op == kThrough ? item.edge_top[view.edge[node]] : 0.0, nullptr);
}

void cluster_up(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) {
    Cluster& c = item.clusters[nodes[i]];
    c = Cluster{};
    const int op = item.program->op[nodes[i]];
    if (op == kLeaf) leaf_up(item, w, nodes[i]);
    else if (op < kRake) single_up(item, w, nodes[i]);
    else product_up(item, w, nodes[i]);
    arena_forget(w.scratch.arena);
  }
}

#define TT_CLUSTER_KERNELS(EACH) \
  EACH(cluster_up) EACH(cluster_down) EACH(wide_cluster_up) EACH(wide_cluster_down) EACH(wide_cluster_root)         \
  EACH(wide_cluster_draw) EACH(edge_scratch) EACH(edge_sums) EACH(edge_pass) EACH(edge_finish) EACH(edge_underflow)

TT_KERNEL_TABLE(ClusterKernels, cluster_kernels, TT_CLUSTER_KERNELS)

// Adjoints of clusters, results before operands: reverse mode.

// The memory of a cluster that needs it no more: adjoints of its operands go there where they fit, so that no more than one
// generation of them is kept.
struct Inheritance {
  double* part[2];
  int room;

  Inheritance(const Cluster& c, int states) : part{c.value, c.adjoint == c.reach ? nullptr : c.adjoint}, room(states * c.width) {}
  double* take(Arena* arena, int n) {
    for (double*& p : part)
      if (p && n <= room) {
        double* found = p;
        p = nullptr;
        return found;
      }
    return arena_take(arena, (size_t)n);
  }
};

// Scale an adjoint to <value, adjoint> = 1 and keep it.
static void settle(const ClusterItem& item, ClusterWorker& w, int node, const double* rows, int states,
                   const double* reach, double path_error, Inheritance& left) {
  Cluster& c = item.clusters[node];
  const int n = states * c.width;
  const double total = dot(c.value, rows, n), factor = total > 0 ? 1 / total : 1.0;
  c.adjoint = left.take(w.kept.arena, n);
  for (int i = 0; i < n; i++) c.adjoint[i] = rows[i] * factor;
  c.underflow[1] = kTiny * max(1.0, factor);
  // The product is that of the cluster above, 1, but for a scale: if it is gone, so is the adjoint.
  c.path_error = total > kTiny ? path_error : __builtin_inf();
  if (c.touched && reach) {
    c.reach = arena_take(w.kept.arena, (size_t)states);
    for (int s = 0; s < states; s++) c.reach[s] = reach[s] * factor;
  }
}

// What errors and cuts in a value do. Errors of transforms are compared with the mass of their state, where it has any;
// what was cut or has underflowed, is gone from the whole, and whoever wants a part of it compares it with that part.
static void charge(Cluster& c, int states) {
  for (int s = 0; s < states; s++) {
    const double *x = c.value + (ptrdiff_t)s * c.width, *g = c.adjoint + (ptrdiff_t)s * c.width;
    const double mass = dot(x, g, c.width), sum_g = sum(g, c.width);
    c.vanished += c.underflow[0] * sum_g + c.underflow[1] * sum(x, c.width);
    if (!c.lost) continue;
    const double harm = c.lost[s] * sum_g;
    c.vanished += c.cut[s] * (c.reach ? c.reach[s] : 0.0);
    if (mass > 0) c.harm = max(c.harm, harm / mass);
    else c.vanished += harm;
  }
}

static void read_pairs(const ClusterItem& item, int node, const double* pair, const double* table, bool flip) {
  const int K = item.states, e = item.program->edge[node];
  if (e < 0) return;
  double total = 0;
  for (int p = 0; p < K; p++)
    for (int q = 0; q < K; q++) total += pair[p * K + q] * entry(table, flip, K, p, q);
  for (int p = 0; p < K; p++)
    for (int q = 0; q < K; q++)
      item.log_edges[(ptrdiff_t)e * K * K + (flip ? q * K + p : p * K + q)] =
          real::log(pair[p * K + q] * entry(table, flip, K, p, q) / total);
}

// pair[p][q] = sum_r <g[p][r], x[q][r]>.
static void pair_up(const double* g, const double* x, int K, int columns, int n, double* pair) {
  for (int p = 0; p < K; p++)
    for (int q = 0; q < K; q++)
      pair[p * K + q] = dot(g + (ptrdiff_t)p * columns * n, x + (ptrdiff_t)q * columns * n, columns * n);
}

static double relative_error(const double* error, const double* value, const double* g, int states, int n) {
  double worst = 0;
  for (int s = 0; s < states; s++) {
    const double mass = dot(value + (ptrdiff_t)s * n, g + (ptrdiff_t)s * n, n);
    if (mass > 0) worst = max(worst, error[s] * sum(value + (ptrdiff_t)s * n, n) / mass);
  }
  return worst;
}

// Back through the edge's table: from the adjoint of table times operand to that of the operand.
static void second_down(const ClusterItem& item, ClusterWorker& w, int node, const Second& y, const double* g,
                        const double* reach, double path_error, Inheritance& left) {
  const int K = item.states, b = item.program->b[node], n = y.width;
  const Cluster& c = item.clusters[b];
  const int states = states_of(item.program->kind[b], K);
  if (!y.table) return settle(item, w, b, g, states, reach, path_error, left);
  double *rows = take_zero(w, (size_t)states * n), *pair = take_zero(w, (size_t)K * K);
  double* back = take_zero(w, (size_t)states);
  across(y, K, [&](int here, int behind, double t) {
    const double* from = g + (ptrdiff_t)here * n;
    if (y.spread) pair[here] = dot(from, c.value + (ptrdiff_t)behind * n, n);
    add_scaled(rows + (ptrdiff_t)behind * n, from, t, n);
    if (reach) back[behind] += t * reach[here];
  });
  if (!y.spread) pair_up(g, c.value, K, states / K, n, pair);
  read_pairs(item, node, pair, y.table, y.flip);
  settle(item, w, b, rows, states, reach ? back : nullptr, path_error, left);
}

static void product_down(ClusterItem& item, ClusterWorker& w, int node) {
  const ClusterView& view = *item.program;
  const Product product(item, w, node);
  const Cluster &c = item.clusters[node], &x = product.x;
  const Second& y = product.y;
  const int n = product.n, N = product.N, x_states = product.x_states, out_states = product.out_states;
  const int shift = c.lo - x.lo - product.b.lo, stride = n + kPad;
  double* g = take_zero(w, (size_t)out_states * stride);
  for (int s = 0; s < out_states; s++)
    std::memcpy(g + (ptrdiff_t)s * stride + shift, c.adjoint + (ptrdiff_t)s * c.width, sizeof(double) * (size_t)c.width);
  double *gx = take_zero(w, (size_t)x_states * x.width), *gy = take_zero(w, (size_t)y.count * y.width);
  double error_x = c.path_error, error_y = c.path_error;
  if (N) {
    const FftPlan& plan = *fft_plan(item.plans, N, kLanes);
    const double *fx = spectra(x.value, x_states, x.width, w, plan), *fy = spectra(y.rows, y.count, y.width, w, plan);
    double *fg = take(w, (size_t)out_states * N), *scratch = take(w, (size_t)N);
    for (int s = 0; s < out_states; s++)
      padded_spectrum(g + (ptrdiff_t)s * stride, n, fg + (ptrdiff_t)s * N, scratch, plan);
    double *px = take_zero(w, (size_t)x_states * N), *py = take_zero(w, (size_t)y.count * N);
    double *ex = take_zero(w, (size_t)x_states), *ey = take_zero(w, (size_t)y.count);
    const double size = 1.5 * real::log2(N) * kUnitRoundoff;
    for (int i = 0; i < product.count; i++) {
      const Term t = product.terms[i];
      multiply_spectra<true, true>(fg + (ptrdiff_t)t.out * N, fy + (ptrdiff_t)t.y * N, N, px + (ptrdiff_t)t.x * N);
      multiply_spectra<true, true>(fg + (ptrdiff_t)t.out * N, fx + (ptrdiff_t)t.x * N, N, py + (ptrdiff_t)t.y * N);
      const double norm_g = size * norm(g + (ptrdiff_t)t.out * stride, n);
      ex[t.x] += norm_g * norm(product.y_row(t), y.width);
      ey[t.y] += norm_g * norm(product.x_row(t), x.width);
    }
    rows_from_spectra(px, x_states, x.width, gx, w, plan);
    rows_from_spectra(py, y.count, y.width, gy, w, plan);
    error_x += relative_error(ex, x.value, gx, x_states, x.width);
    error_y += relative_error(ey, y.rows, gy, y.count, y.width);
  } else {
    double* one = take(w, (size_t)n + kTileOutputs);
    for (int i = 0; i < product.count; i++) {
      const Term t = product.terms[i];
      const double* from = g + (ptrdiff_t)t.out * stride;
      correlate_direct(from, product.y_row(t), y.width, one, x.width);
      add_scaled(gx + (ptrdiff_t)t.x * x.width, one, 1.0, x.width);
      correlate_direct(from, product.x_row(t), x.width, one, y.width);
      add_scaled(gy + (ptrdiff_t)t.y * y.width, one, 1.0, y.width);
    }
  }
  double *rx = nullptr, *ry = nullptr;
  if (c.reach) {
    rx = take_zero(w, (size_t)x_states);
    ry = take_zero(w, (size_t)y.count);
    for (int i = 0; i < product.count; i++) {
      const Term t = product.terms[i];
      rx[t.x] += c.reach[t.out] * sum(product.y_row(t), y.width);
      ry[t.y] += c.reach[t.out] * sum(product.x_row(t), x.width);
    }
  }
  Inheritance left(c, out_states);
  settle(item, w, view.a[node], gx, x_states, rx, error_x, left);
  second_down(item, w, node, y, gy, ry, error_y, left);
}

static void leaf_down(ClusterItem& item, int node) {
  const int K = item.states, v = item.program->ref[node];
  const Cluster& c = item.clusters[node];
  for (int k = 0; k < K; k++) {
    const int j = item.program->counted[v] ? item.score[(ptrdiff_t)v * K + k] : 0;
    item.messages[(ptrdiff_t)v * K + k] = real::log(c.adjoint[(ptrdiff_t)k * c.width + j]);
  }
}

static void table_down(ClusterItem& item, ClusterWorker& w, int node) {
  const int a = item.program->a[node], s = item.program->ref[node];
  const Cluster &c = item.clusters[node], &x = item.clusters[a];
  const int states = states_of(item.program->kind[node], item.states), n = x.width;
  const int64_t start = item.offset[s], length = item.offset[s + 1] - start;
  const bool ends = item.program->top[s];
  double *rows = take_zero(w, (size_t)states * n), *belief = take_zero(w, (size_t)n);
  for (int i = 0; i < states; i++)
    for (int j = 0; j < n && x.lo + j < length; j++) {
      const int at = x.lo + j - c.lo;
      if (!ends && (at < 0 || at >= c.width)) continue;
      const double g = ends ? c.adjoint[i] : c.adjoint[(ptrdiff_t)i * c.width + at];
      rows[(ptrdiff_t)i * n + j] = g * real::exp(item.tables[start + x.lo + j] - item.table_top[s]);
      belief[j] += rows[(ptrdiff_t)i * n + j] * x.value[(ptrdiff_t)i * n + j];
    }
  const double total = sum(belief, n);
  for (int j = 0; j < n && x.lo + j < length; j++) item.log_counts[start + x.lo + j] = real::log(belief[j] / total);
  Inheritance left(c, states);
  settle(item, w, a, rows, states, c.reach, c.path_error, left);
}

static void single_down(ClusterItem& item, ClusterWorker& w, int node) {
  const ClusterView& view = *item.program;
  const int K = item.states, op = view.op[node], a = view.a[node];
  const Cluster &c = item.clusters[node], &x = item.clusters[a];
  if (op == kTable) return table_down(item, w, node);
  const int n = x.width, states = states_of(first_kind(op, view.kind[node]), K), out_states = states_of(view.kind[node], K);
  // A linear operation keeps the window, except for ends that were cut.
  double* g = take_zero(w, (size_t)out_states * n);
  for (int s = 0; s < out_states; s++)
    std::memcpy(g + (ptrdiff_t)s * n + (c.lo - x.lo), c.adjoint + (ptrdiff_t)s * c.width, sizeof(double) * (size_t)c.width);
  double *rows = take_zero(w, (size_t)states * n), *reach = c.reach ? take_zero(w, (size_t)states) : nullptr;
  if (op == kThrough) {
    double* pair = take_zero(w, (size_t)K * K);
    pair_up(g, x.value, K, 1, n, pair);
    read_pairs(item, node, pair, item.edges + (ptrdiff_t)view.edge[node] * K * K, view.flip[node]);
  }
  link_rows(view, node, K, item.edges, 1.0, [&](int from, int to, double weight) {
    add_scaled(rows + (ptrdiff_t)to * n, g + (ptrdiff_t)from * n, weight, n);
    if (reach) reach[to] += weight * c.reach[from];
  });
  Inheritance left(c, out_states);
  settle(item, w, a, rows, states, reach, c.path_error, left);
}

void cluster_down(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) {
    const int node = nodes[i], op = item.program->op[node];
    Cluster& c = item.clusters[node];
    charge(c, states_of(item.program->kind[node], item.states));
    if (op == kLeaf) leaf_down(item, node);
    else if (op != kOnes && op < kRake) single_down(item, w, node);
    else if (op >= kRake) product_down(item, w, node);
    arena_forget(w.scratch.arena);
  }
}

}  // namespace tallytree::TT_LEVEL
