// Sum-product over clusters in plain numbers, by direct sums or transforms.
//
// The terms of a product are convolutions of rows; the same terms give the adjoints, as correlations. Errors are kept by state:
// `lost`, of any entry of a row; `cut`, the mass cut off its ends; `reach`, the largest adjoint of any count.
#include "base/fft_merge.hpp"
#include "cluster/program_pass.hpp"

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

constexpr int kTrimmed = 48;  // windows shorter than this are kept whole

// The memory of a cluster that needs it no more: adjoints of its operands go there where they fit, so that no more than one
// generation of them is kept.
struct Inheritance {
  double* part[2];
  int room;

  Inheritance() : part{nullptr, nullptr}, room(0) {}
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

static double relative_error(const double* error, const double* value, const double* g, int states, int n) {
  double worst = 0;
  for (int s = 0; s < states; s++) {
    const double mass = dot(value + (ptrdiff_t)s * n, g + (ptrdiff_t)s * n, n);
    if (mass > 0) worst = max(worst, error[s] * sum(value + (ptrdiff_t)s * n, n) / mass);
  }
  return worst;
}

namespace {

struct Rows {
  double* value;
  int count, width;
  // By row what transforms may have lost, on the way up, and the largest adjoint of any count, on the way down; then the error
  // of the adjoints by transforms. Null for a cluster's own values.
  double* extra = nullptr;

  double* operator[](int s) const { return value + (ptrdiff_t)s * width; }
};

struct Sum {
  double value = 0;

  void add(const Rows& g, int s, const Rows& x, int t, int from, int n) { value += dot(g[s] + from, x[t] + from, n); }
  void add(const Sum& x) { value += x.value; }
  Sum times(double weight) const { return {value * weight}; }
  double log_share(const Sum& total) const { return real::log(value / total.value); }
};

struct PlainNumbers : ProgramNumbers {
  using Rows = TT_LEVEL::Rows;
  using Sum = TT_LEVEL::Sum;
  static constexpr double kOne = 1;
  Inheritance left = {};

  Rows zero(int count, int width) {
    const size_t all = (size_t)count * (size_t)width;
    double* p = take_zero(w, all + (size_t)count + 1);
    return {p, count, width, p + all};
  }
  Rows values(int node) const {
    const Cluster& c = item.clusters[node];
    return {c.value, states_at(node), c.width};
  }
  // Row `to` of out += weight times row `from` of x.
  void add(const Rows& out, int to, const Rows& x, int from, double weight) {
    add_scaled(out[to], x[from], weight, x.width);
    if (!x.extra) return;
    out.extra[to] += weight * x.extra[from];
    out.extra[out.count] = x.extra[x.count];
  }

  double leaf_top(int vertex) const {
    double top = -__builtin_inf();
    for (int k = 0; k < item.states; k++) top = max(top, log_weight(vertex, k));
    return top == -__builtin_inf() ? 0.0 : top;
  }
  void set_leaf(const Rows& rows, int state, int at, int vertex) const {
    rows[state][at] = real::exp(log_weight(vertex, state) - leaf_top(vertex));
  }
  void set_one(const Rows& rows, int state) const { rows[state][0] = 1; }
  // The table of a set at the counts of an operand.
  double* table_at(int set, int lo, int n) {
    const int64_t start = item.offset[set], length = item.offset[set + 1] - start;
    double* f = take_zero(w, (size_t)n);
    for (int j = 0; j < n && lo + j < length; j++) f[j] = real::exp(item.tables[start + lo + j] - item.table_top[set]);
    return f;
  }
  void weigh(int node, const Rows& x, const Rows& rows) {
    const int set = item.program->ref[node];
    const double* f = table_at(set, table_from(node), x.width);
    for (int s = 0; s < x.count; s++) {
      if (item.program->top[set]) rows[s][0] = dot(x[s], f, x.width);
      else add_product(rows[s], x[s], f, x.width);
    }
  }
  // Logarithm of what was taken out of the weights that this cluster brings in.
  double taken_out(int node) const {
    const ClusterView& view = *item.program;
    const int op = view.op[node];
    if (op == kLeaf) return leaf_top(view.ref[node]);
    if (op == kTable) return item.table_top[view.ref[node]];
    return (op == kThrough || (op >= kRake && op <= kCompress)) && view.edge[node] >= 0 ? item.edge_top[view.edge[node]] : 0.0;
  }

  // Scale rows to sum 1, cut negligible ends, store. Ends that are lost in the noise of a transform stay: they may be all that a
  // rare state of some vertex below has, and then the values above and beside say what it weighs.
  void keep(int node, const Rows& rows, int lo) {
    Cluster& c = item.clusters[node];
    const int states = rows.count, n = rows.width;
    const int parts[] = {item.program->a[node], item.program->b[node]};
    for (const int part : parts) {
      if (part < 0) continue;
      c.touched |= item.clusters[part].touched;
      c.transformed |= item.clusters[part].transformed;
    }
    const double total = sum(rows.value, states * n), factor = total > 0 ? 1 / total : 1.0;
    c.log_scale = real::log(total) + taken_out(node);
    c.underflow[0] = kTiny * max(1.0, factor);
    for (int i = 0; i < states * n; i++) rows.value[i] *= factor;
    Interval kept = {0, n};
    if (n > kTrimmed && !c.transformed) {
      double* floor = take(w, (size_t)states);
      for (int s = 0; s < states; s++) floor[s] = item.keep * largest(rows[s], n);
      kept = visible_window(states, n, [&](int s, int j) { return rows[s][j] > floor[s]; });
      if (kept.hi <= kept.lo) kept = {0, 1};
    }
    const int first = kept.lo, last = kept.hi;
    c.width = last - first;
    c.lo = lo + first;
    c.value = arena_take(w.kept.arena, (size_t)states * c.width);
    for (int s = 0; s < states; s++)
      std::memcpy(c.value + (ptrdiff_t)s * c.width, rows[s] + first, sizeof(double) * (size_t)c.width);
    if (c.transform == 0 && c.width == n) return;
    c.lost = arena_take(w.kept.arena, (size_t)states);
    c.cut = arena_take(w.kept.arena, (size_t)states);
    c.touched = true;
    for (int s = 0; s < states; s++) {
      c.lost[s] = rows.extra[s] * factor;
      c.cut[s] = sum(rows[s], first) + sum(rows[s] + last, n - last);
    }
  }

  void multiply(int node, const Rows& x, const Rows& y, const Terms& terms, int, const Rows& rows) {
    const int n = rows.width, N = transform_length(item, terms.count, x.count + y.count + rows.count, x.width, y.width);
    if (N) return multiply_spectra_of(node, x, y, terms, N, rows);
    double *one = take(w, (size_t)n + kTileOutputs), *scratch = take(w, (size_t)n + 2 * kPad);
    for (const Term& t : terms) {
      const double *p = x[t.x], *q = y[t.y];
      double* o = rows[t.out];
      if (min(x.width, y.width) > 4) {
        convolve_direct(p, x.width, q, y.width, one, scratch);
        add_scaled(o, one, 1.0, n);
      } else if (x.width <= y.width) {
        for (int j = 0; j < x.width; j++) add_scaled(o + j, q, p[j], y.width);
      } else {
        for (int j = 0; j < y.width; j++) add_scaled(o + j, p, q[j], x.width);
      }
    }
  }
  void multiply_spectra_of(int node, const Rows& x, const Rows& y, const Terms& terms, int N, const Rows& rows) {
    const FftPlan& plan = *fft_plan(item.plans, N, kLanes);
    const double *fx = spectra(x.value, x.count, x.width, w, plan), *fy = spectra(y.value, y.count, y.width, w, plan);
    double* spectrum = take_zero(w, (size_t)rows.count * N);
    double *noise = take_zero(w, (size_t)rows.count), *mass = take_zero(w, (size_t)rows.count);
    const double size = 1.5 * real::log2(N) * kUnitRoundoff;
    for (const Term& t : terms) {
      multiply_spectra<false, true>(fx + (ptrdiff_t)t.x * N, fy + (ptrdiff_t)t.y * N, N, spectrum + (ptrdiff_t)t.out * N);
      const double norm_p = norm(x[t.x], x.width), norm_q = norm(y[t.y], y.width);
      const double sum_p = sum(x[t.x], x.width), sum_q = sum(y[t.y], y.width);
      rows.extra[t.out] += size * norm_p * norm_q;
      noise[t.out] += size * max(norm_p * sum_q, sum_p * norm_q);
      mass[t.out] += sum_p * sum_q;
    }
    rows_from_spectra(spectrum, rows.count, rows.width, rows.value, w, plan);
    Cluster& c = item.clusters[node];
    c.transformed = true;
    c.transform = size;
    for (int s = 0; s < rows.count; s++)
      if (mass[s] > 0) c.noise = max(c.noise, noise[s] / mass[s]);
  }

  // The adjoint of a cluster as one of so many counts, `shift` of which it had cut off at the lower end.
  Rows moved(int node, int shift, int width) {
    const Cluster& c = item.clusters[node];
    const Rows g = zero(states_at(node), width);
    for (int s = 0; s < g.count; s++) {
      std::memcpy(g[s] + shift, c.adjoint + (ptrdiff_t)s * c.width, sizeof(double) * (size_t)c.width);
      g.extra[s] = c.reach ? c.reach[s] : 0.0;
    }
    return g;
  }
  void weigh_back(int node, const Rows& x, const Rows& rows) {
    const Cluster& c = item.clusters[node];
    const int set = item.program->ref[node], lo = table_from(node), n = x.width;
    const double* f = table_at(set, lo, n);
    for (int s = 0; s < x.count; s++) {
      const double* g = c.adjoint + (ptrdiff_t)s * c.width;
      if (item.program->top[set]) add_scaled(rows[s], f, g[0], n);
      else add_product(rows[s] + (c.lo - lo), g, f + (c.lo - lo), c.width);
      rows.extra[s] = c.reach ? c.reach[s] : 0.0;
    }
  }
  void divide(int node, const Rows& g, const Rows& x, const Rows& y, const Terms& terms, const Rows& gx, const Rows& gy) {
    const int N = transform_length(item, terms.count, x.count + y.count + g.count, x.width, y.width);
    if (N) divide_spectra_of(g, x, y, terms, N, gx, gy);
    double* one = take(w, (size_t)g.width + kTileOutputs);
    for (const Term& t : terms) {
      if (item.clusters[node].reach) {
        gx.extra[t.x] += g.extra[t.out] * sum(y[t.y], y.width);
        gy.extra[t.y] += g.extra[t.out] * sum(x[t.x], x.width);
      }
      if (N) continue;
      correlate_direct(g[t.out], y[t.y], y.width, one, x.width);
      add_scaled(gx[t.x], one, 1.0, x.width);
      correlate_direct(g[t.out], x[t.x], x.width, one, y.width);
      add_scaled(gy[t.y], one, 1.0, y.width);
    }
  }
  void divide_spectra_of(const Rows& g, const Rows& x, const Rows& y, const Terms& terms, int N, const Rows& gx, const Rows& gy) {
    const FftPlan& plan = *fft_plan(item.plans, N, kLanes);
    const double *fx = spectra(x.value, x.count, x.width, w, plan), *fy = spectra(y.value, y.count, y.width, w, plan);
    const double* fg = spectra(g.value, g.count, g.width, w, plan);
    double *px = take_zero(w, (size_t)x.count * N), *py = take_zero(w, (size_t)y.count * N);
    double *ex = take_zero(w, (size_t)x.count), *ey = take_zero(w, (size_t)y.count);
    const double size = 1.5 * real::log2(N) * kUnitRoundoff;
    for (const Term& t : terms) {
      multiply_spectra<true, true>(fg + (ptrdiff_t)t.out * N, fy + (ptrdiff_t)t.y * N, N, px + (ptrdiff_t)t.x * N);
      multiply_spectra<true, true>(fg + (ptrdiff_t)t.out * N, fx + (ptrdiff_t)t.x * N, N, py + (ptrdiff_t)t.y * N);
      const double norm_g = size * norm(g[t.out], g.width);
      ex[t.x] += norm_g * norm(y[t.y], y.width);
      ey[t.y] += norm_g * norm(x[t.x], x.width);
    }
    rows_from_spectra(px, x.count, x.width, gx.value, w, plan);
    rows_from_spectra(py, y.count, y.width, gy.value, w, plan);
    gx.extra[x.count] = relative_error(ex, x.value, gx.value, x.count, x.width);
    gy.extra[y.count] = relative_error(ey, y.value, gy.value, y.count, y.width);
  }

  // Scale the adjoint of an operand to <value, adjoint> = 1 and keep it.
  void settle(int operand, int node, const Rows& rows) {
    Cluster& c = item.clusters[operand];
    const int n = rows.count * c.width;
    const double total = dot(c.value, rows.value, n), factor = total > 0 ? 1 / total : 1.0;
    c.adjoint = left.take(w.kept.arena, n);
    for (int i = 0; i < n; i++) c.adjoint[i] = rows.value[i] * factor;
    c.underflow[1] = kTiny * max(1.0, factor);
    // The product is that of the cluster above, 1, but for a scale: if it is gone, so is the adjoint.
    c.path_error = total > kTiny ? item.clusters[node].path_error + rows.extra[rows.count] : __builtin_inf();
    if (!c.touched) return;
    c.reach = arena_take(w.kept.arena, (size_t)rows.count);
    for (int s = 0; s < rows.count; s++) c.reach[s] = rows.extra[s] * factor;
  }

  void leaf_down(int node) {
    const Cluster& c = item.clusters[node];
    const int v = item.program->ref[node];
    for (int k = 0; k < item.states; k++)
      item.messages[(ptrdiff_t)v * item.states + k] = real::log(c.adjoint[(ptrdiff_t)k * c.width + place(v, k) - c.lo]);
  }
};

}  // namespace

void cluster_up(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  ProgramPass<PlainNumbers> pass = {{{item, w}}};
  for (ptrdiff_t i = 0; i < count; i++) {
    item.clusters[nodes[i]] = Cluster{};
    pass.up(nodes[i]);
    arena_forget(w.scratch.arena);
  }
}

void cluster_down(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) {
  ProgramPass<PlainNumbers> pass = {{{item, w}}};
  for (ptrdiff_t i = 0; i < count; i++) {
    Cluster& c = item.clusters[nodes[i]];
    const int states = pass.states_at(nodes[i]);
    charge(c, states);
    pass.left = Inheritance(c, states);
    pass.down(nodes[i]);
    arena_forget(w.scratch.arena);
  }
}

#define TT_CLUSTER_KERNELS(EACH) \
  EACH(cluster_up) EACH(cluster_down) EACH(wide_cluster_up) EACH(wide_cluster_down) EACH(wide_cluster_root)         \
  EACH(wide_cluster_draw) EACH(edge_scratch) EACH(edge_sums) EACH(edge_pass) EACH(edge_finish) EACH(edge_underflow)

TT_KERNEL_TABLE(ClusterKernels, cluster_kernels, TT_CLUSTER_KERNELS)

}  // namespace tallytree::TT_LEVEL
