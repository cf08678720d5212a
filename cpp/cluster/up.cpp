// Values of clusters, operands before results.
#include "base/kernel_table.hpp"
#include "cluster/cluster.hpp"

namespace tallytree::TT_LEVEL {

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
  EACH(cluster_up) EACH(cluster_down) EACH(tiled_cluster_up) EACH(tiled_cluster_down) EACH(tiled_cluster_root)         \
  EACH(tiled_cluster_draw) EACH(edge_scratch) EACH(edge_sums) EACH(edge_pass) EACH(edge_finish) EACH(edge_underflow)

TT_KERNEL_TABLE(ClusterKernels, cluster_kernels, TT_CLUSTER_KERNELS)

}  // namespace tallytree::TT_LEVEL
