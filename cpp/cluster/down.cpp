// Adjoints of clusters, results before operands: reverse mode.
#include "cluster/cluster.hpp"

namespace tallytree::TT_LEVEL {

// Scale an adjoint to <value, adjoint> = 1 and keep it.
static void settle(const ClusterItem& item, ClusterWorker& w, int node, const double* rows, int states,
                   const double* reach, double path_error) {
  Cluster& c = item.clusters[node];
  const int n = states * c.width;
  const double total = dot(c.value, rows, n), factor = total > 0 ? 1 / total : 1.0;
  c.adjoint = arena_take(w.kept.arena, (size_t)n);
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
                        const double* reach, double path_error) {
  const int K = item.states, b = item.program->b[node], n = y.width;
  const Cluster& c = item.clusters[b];
  const int states = states_of(item.program->kind[b], K);
  if (!y.table) return settle(item, w, b, g, states, reach, path_error);
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
  settle(item, w, b, rows, states, reach ? back : nullptr, path_error);
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
  settle(item, w, view.a[node], gx, x_states, rx, error_x);
  second_down(item, w, node, y, gy, ry, error_y);
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
  settle(item, w, a, rows, states, c.reach, c.path_error);
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
  settle(item, w, a, rows, states, reach, c.path_error);
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
