// Sum-product over clusters in plain numbers, by direct sums or transforms; alone, or with their derivatives along a direction in
// the weights of states and the tables of counts, (a b)' = a' b + a b'. Derivatives stand behind the values of all rows.
//
// Any multiple of a cluster's value may be taken off its derivative, for a scale has no effect on expectations. What errs in a
// value does so in its derivative, as large as that is; what is said of derivatives is the error of d log P(state), and the share
// of Z, times the size of the direction, that may be missing.
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
// Rows from spectra (destroyed); negative ones of `count` values (all of them rounding errors) become 0, derivatives follow.
static inline void rows_from_spectra(double* spectrum, int count, int all, int n, double* rows, ClusterWorker& w,
                                     const FftPlan& plan) {
  double* x = take(w, plan.length);
  for (int i = 0; i < all; i++) {
    fft_backward(spectrum + (ptrdiff_t)i * plan.length, x, plan);
    double* out = rows + (ptrdiff_t)i * n;
    for (int j = 0; j < n; j++) out[j] = i >= count || x[j] > 0 ? x[j] : 0.0;
  }
}
static inline double sum_of_sizes(const double* x, int n) {
  double s = 0;
  for (int j = 0; j < n; j++) s += real::fabs(x[j]);
  return s;
}
static inline double norm(const double* x, int n) { return real::sqrt(dot(x, x, n)); }

constexpr int kTrimmed = 48;  // windows shorter than this are kept whole
constexpr int kExcluded = 4;  // counts kept on either side, where excluded states of vertices below would lie

// The memory of a cluster that needs it no more: adjoints of its operands go there where they fit, so that no more than one
// generation of them is kept.
struct Inheritance {
  double* part[2] = {nullptr, nullptr};
  int room = 0;

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

namespace {

// Rows of values and, behind them all, of derivatives.
struct Rows {
  double* value;
  int count, width;
  // By row what transforms may have lost, on the way up, and the largest adjoint of any count, on the way down; then the error
  // of the adjoints by transforms. Again for the derivatives. Null for a cluster's own rows.
  double* extra = nullptr;

  double* operator[](int s) const { return value + (ptrdiff_t)s * width; }
  double* change(int s) const { return value + (ptrdiff_t)(count + s) * width; }
  double* extra_change() const { return extra + count + 1; }
};

// A sum of products of entries of two rows, <g, x>, and its derivative.
template <bool kDual>
struct PlainSum {
  double value = 0, change = 0;

  void add(const Rows& g, int s, const Rows& x, int t, int from, int n) {
    value += dot(g[s] + from, x[t] + from, n);
    if constexpr (kDual) change += dot(g.change(s) + from, x[t] + from, n) + dot(g[s] + from, x.change(t) + from, n);
  }
  void add(const PlainSum& x) {
    value += x.value;
    change += x.change;
  }
  PlainSum times(double weight) const { return {value * weight, change * weight}; }
  // The logarithm of a share, or the derivative of the share itself: the former may be lost in noise.
  double log_share(const PlainSum& total) const {
    if constexpr (kDual) return (change - value / total.value * total.change) / total.value;
    else return real::log(value / total.value);
  }
};

template <bool kDual>
struct PlainNumbers : ProgramNumbers {
  using Rows = TT_LEVEL::Rows;
  using Sum = PlainSum<kDual>;
  static constexpr double kOne = 1;
  static constexpr int kParts = kDual ? 2 : 1;
  Inheritance left = {};

  Rows zero(int count, int width) {
    const size_t all = (size_t)(kParts * count) * (size_t)width;
    double* p = take_zero(w, all + (size_t)(kParts * (count + 1)));
    return {p, count, width, p + all};
  }
  Rows values(int node) const { return {item.clusters[node].value, states_at(node), item.clusters[node].width}; }
  // Row `to` of out += weight times row `from` of x.
  void add(const Rows& out, int to, const Rows& x, int from, double weight) {
    add_scaled(out[to], x[from], weight, x.width);
    if constexpr (kDual) add_scaled(out.change(to), x.change(from), weight, x.width);
    for (int part = 0; x.extra && part < kParts; part++) {
      double *own = out.extra + part * (out.count + 1), *other = x.extra + part * (x.count + 1);
      own[to] += weight * other[from];
      own[out.count] = other[x.count];
    }
  }

  double leaf_top(int vertex) const {
    double top = -__builtin_inf();
    for (int k = 0; k < item.states; k++) top = max(top, log_weight(vertex, k));
    return top == -__builtin_inf() ? 0.0 : top;
  }
  void set_leaf(const Rows& rows, int state, int at, int vertex) const {
    rows[state][at] = real::exp(log_weight(vertex, state) - leaf_top(vertex));
    if constexpr (kDual) rows.change(state)[at] = rows[state][at] * item.leaf_move[(ptrdiff_t)vertex * item.states + state];
  }
  void set_one(const Rows& rows, int state) const { rows[state][0] = 1; }
  // The table of a set at n counts of an operand, and its derivative.
  double* table_at(int set, int lo, int n) {
    const int64_t start = item.offset[set], length = item.offset[set + 1] - start;
    double* f = take_zero(w, (size_t)(kParts * n));
    for (int j = 0; j < n && lo + j < length; j++) {
      f[j] = real::exp(item.tables[start + lo + j] - item.table_top[set]);
      if constexpr (kDual) f[n + j] = f[j] * item.table_move[start + lo + j];
    }
    return f;
  }
  void weigh(int node, const Rows& x, const Rows& rows) {
    const int set = item.program->ref[node], n = x.width;
    const double* f = table_at(set, table_from(node), n);
    for (int s = 0; s < x.count; s++) {
      if (item.program->top[set]) {
        rows[s][0] = dot(x[s], f, n);
        if constexpr (kDual) rows.change(s)[0] = dot(x.change(s), f, n) + dot(x[s], f + n, n);
      } else {
        add_product(rows[s], x[s], f, n);
        if constexpr (kDual) add_product(rows.change(s), x.change(s), f, n), add_product(rows.change(s), x[s], f + n, n);
      }
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
    for (int i = 0; i < kParts * states * n; i++) rows.value[i] *= factor;
    if constexpr (kDual) {
      const double mean = sum(rows.change(0), states * n);
      add_scaled(rows.change(0), rows.value, -mean, states * n);
      for (int s = 0; s < states; s++) rows.extra_change()[s] += real::fabs(mean) * rows.extra[s];
    }
    Interval kept = {0, n};
    if (n > kTrimmed && !c.transformed) {
      double* floor = take(w, (size_t)states);
      for (int s = 0; s < states; s++) floor[s] = item.keep * largest(rows[s], n);
      kept = visible_window(states, n, [&](int s, int j) { return rows[s][j] > floor[s]; });
      if (kept.hi <= kept.lo) kept = {0, 1};
      kept = {max(kept.lo - kExcluded, 0), min(kept.hi + kExcluded, n)};
    }
    const int first = kept.lo, last = kept.hi;
    c.width = last - first;
    c.lo = lo + first;
    c.value = arena_take(w.kept.arena, (size_t)(kParts * states) * c.width);
    for (int s = 0; s < kParts * states; s++)
      std::memcpy(c.value + (ptrdiff_t)s * c.width, rows[s] + first, sizeof(double) * (size_t)c.width);
    if (c.transform == 0 && c.width == n) return;
    c.lost = arena_take(w.kept.arena, (size_t)(kParts * states));
    c.cut = arena_take(w.kept.arena, (size_t)(kParts * states));
    c.touched = true;
    for (int s = 0; s < kParts * states; s++) {
      c.lost[s] = (s < states ? rows.extra[s] : rows.extra_change()[s - states]) * factor;
      c.cut[s] = sum_of_sizes(rows[s], first) + sum_of_sizes(rows[s] + last, n - last);
    }
  }

  // out += the product of two rows.
  void multiply_rows(const double* p, int np, const double* q, int nq, double* out, double* one, double* scratch) {
    if (min(np, nq) > 4) {
      convolve_direct(p, np, q, nq, one, scratch);
      add_scaled(out, one, 1.0, np + nq - 1);
    } else if (np <= nq) {
      for (int j = 0; j < np; j++) add_scaled(out + j, q, p[j], nq);
    } else {
      for (int j = 0; j < nq; j++) add_scaled(out + j, p, q[j], np);
    }
  }
  int transform_for(const Rows& x, const Rows& y, const Rows& result, const Terms& terms) const {
    return transform_length(item, (kDual ? 3 : 1) * terms.count, kParts * (x.count + y.count + result.count), x.width, y.width);
  }
  void multiply(int node, const Rows& x, const Rows& y, const Terms& terms, int, const Rows& rows) {
    const int n = rows.width, N = transform_for(x, y, rows, terms);
    if (N) return multiply_spectra_of(node, x, y, terms, N, rows);
    double *one = take(w, (size_t)n + kTileOutputs), *scratch = take(w, (size_t)n + 2 * kPad);
    for (const Term& t : terms) {
      multiply_rows(x[t.x], x.width, y[t.y], y.width, rows[t.out], one, scratch);
      if constexpr (kDual) {
        multiply_rows(x.change(t.x), x.width, y[t.y], y.width, rows.change(t.out), one, scratch);
        multiply_rows(x[t.x], x.width, y.change(t.y), y.width, rows.change(t.out), one, scratch);
      }
    }
  }
  void multiply_spectra_of(int node, const Rows& x, const Rows& y, const Terms& terms, int N, const Rows& rows) {
    const FftPlan& plan = *fft_plan(item.plans, N, kLanes);
    const double *fx = spectra(x.value, kParts * x.count, x.width, w, plan), *fy = spectra(y.value, kParts * y.count, y.width, w, plan);
    double* spectrum = take_zero(w, (size_t)(kParts * rows.count) * N);
    double *noise = take_zero(w, (size_t)rows.count), *mass = take_zero(w, (size_t)rows.count);
    const double size = 1.5 * real::log2(N) * kUnitRoundoff;
    const auto at = [N](const auto* all, int row) { return all + (ptrdiff_t)row * N; };
    for (const Term& t : terms) {
      multiply_spectra<false, true>(at(fx, t.x), at(fy, t.y), N, spectrum + (ptrdiff_t)t.out * N);
      const double norm_p = norm(x[t.x], x.width), norm_q = norm(y[t.y], y.width);
      const double sum_p = sum(x[t.x], x.width), sum_q = sum(y[t.y], y.width);
      rows.extra[t.out] += size * norm_p * norm_q;
      noise[t.out] += size * max(norm_p * sum_q, sum_p * norm_q);
      mass[t.out] += sum_p * sum_q;
      if constexpr (kDual) {
        double* moved = spectrum + (ptrdiff_t)(rows.count + t.out) * N;
        multiply_spectra<false, true>(at(fx, x.count + t.x), at(fy, t.y), N, moved);
        multiply_spectra<false, true>(at(fx, t.x), at(fy, y.count + t.y), N, moved);
        rows.extra_change()[t.out] += size * (norm(x.change(t.x), x.width) * norm_q + norm_p * norm(y.change(t.y), y.width));
      }
    }
    rows_from_spectra(spectrum, rows.count, kParts * rows.count, rows.width, rows.value, w, plan);
    Cluster& c = item.clusters[node];
    c.transformed = true;
    c.transform = size;
    for (int s = 0; s < rows.count; s++)
      if (mass[s] > 0) c.noise = max(c.noise, noise[s] / mass[s]);
  }

  // What errors and cuts in a value do. Errors of transforms are compared with the mass of their state, where it has any;
  // what was cut or has underflowed, is gone from the whole, and whoever wants a part of it compares it with that part.
  void charge(int node) {
    Cluster& c = item.clusters[node];
    const int states = states_at(node), n = c.width;
    const Rows x = values(node), g = {c.adjoint, states, n};
    for (int s = 0; s < states; s++) {
      const double sum_g = sum(g[s], n), gone = c.underflow[0] * sum_g + c.underflow[1] * sum(x[s], n);
      Sum mass;
      mass.add(g, s, x, s, 0, n);
      c.vanished += kDual ? gone * item.reach_of_move : gone;
      if (!c.lost) continue;
      double harm = c.lost[s] * sum_g, cut = c.cut[s] * (c.reach ? c.reach[s] : 0.0);
      if constexpr (kDual) {
        harm = c.lost[states + s] * sum_g + c.lost[s] * sum_of_sizes(g.change(s), n) +
               (mass.value > 0 ? harm * real::fabs(mass.change / mass.value) : 0.0);
        cut = c.reach ? c.cut[states + s] * c.reach[s] + c.cut[s] * c.reach[states + s] : 0.0;
      }
      c.vanished += cut;
      if (mass.value > 0) c.harm = max(c.harm, harm / mass.value);
      else c.vanished += harm;
    }
  }

  void begin_down(int node) {
    const Cluster& c = item.clusters[node];
    charge(node);
    const bool root = c.adjoint == c.reach;  // which does not own it
    left = {{c.value, root ? nullptr : c.adjoint}, kParts * states_at(node) * c.width};
  }

  // The adjoint of a cluster as one of so many counts, `shift` of which it had cut off at the lower end.
  Rows moved(int node, int shift, int width) {
    const Cluster& c = item.clusters[node];
    const Rows g = zero(states_at(node), width);
    for (int s = 0; s < kParts * g.count; s++)
      std::memcpy(g[s] + shift, c.adjoint + (ptrdiff_t)s * c.width, sizeof(double) * (size_t)c.width);
    take_reach(c, g);
    return g;
  }
  void take_reach(const Cluster& c, const Rows& rows) {
    for (int part = 0; c.reach && part < kParts; part++)
      for (int s = 0; s < rows.count; s++) rows.extra[part * (rows.count + 1) + s] = c.reach[part * rows.count + s];
  }
  void weigh_back(int node, const Rows& x, const Rows& rows) {
    const Cluster& c = item.clusters[node];
    const int set = item.program->ref[node], n = x.width, from = item.program->top[set] ? 0 : c.lo - table_from(node);
    const double* f = table_at(set, table_from(node), n);
    const Rows g = {c.adjoint, x.count, c.width};
    const auto weighed = [&](double* out, const double* own, const double* table) {
      if (item.program->top[set]) add_scaled(out, table, own[0], n);
      else add_product(out + from, own, table + from, c.width);
    };
    for (int s = 0; s < x.count; s++) {
      weighed(rows[s], g[s], f);
      if constexpr (kDual) weighed(rows.change(s), g.change(s), f), weighed(rows.change(s), g[s], f + n);
    }
    take_reach(c, rows);
  }
  void divide(int node, const Rows& g, const Rows& x, const Rows& y, const Terms& terms, const Rows& gx, const Rows& gy) {
    const int N = transform_for(x, y, g, terms);
    if (N) divide_spectra_of(g, x, y, terms, N, gx, gy);
    double* one = take(w, (size_t)g.width + kTileOutputs);
    const auto quotient = [&](const double* from, const double* other, int n, double* out, int count) {
      correlate_direct(from, other, n, one, count);
      add_scaled(out, one, 1.0, count);
    };
    const auto of_operand = [&](int s, const Rows& other, int t, const Rows& out, int to) {
      if (item.clusters[node].reach) {
        out.extra[to] += g.extra[s] * sum(other[t], other.width);
        if constexpr (kDual)
          out.extra_change()[to] += g.extra_change()[s] * sum(other[t], other.width) + g.extra[s] * sum_of_sizes(other.change(t), other.width);
      }
      if (N) return;
      quotient(g[s], other[t], other.width, out[to], out.width);
      if constexpr (kDual) {
        quotient(g.change(s), other[t], other.width, out.change(to), out.width);
        quotient(g[s], other.change(t), other.width, out.change(to), out.width);
      }
    };
    for (const Term& t : terms) {
      of_operand(t.out, y, t.y, gx, t.x);
      of_operand(t.out, x, t.x, gy, t.y);
    }
  }
  void divide_spectra_of(const Rows& g, const Rows& x, const Rows& y, const Terms& terms, int N, const Rows& gx, const Rows& gy) {
    const FftPlan& plan = *fft_plan(item.plans, N, kLanes);
    const double *fx = spectra(x.value, kParts * x.count, x.width, w, plan), *fy = spectra(y.value, kParts * y.count, y.width, w, plan);
    const double* fg = spectra(g.value, kParts * g.count, g.width, w, plan);
    const double size = 1.5 * real::log2(N) * kUnitRoundoff;
    const auto of_operand = [&](const Rows& own, const Rows& other, const double* f, const Rows& out, auto&& own_row, auto&& other_row) {
      double *spectrum = take_zero(w, (size_t)(kParts * own.count) * N), *error = take_zero(w, (size_t)(kParts * own.count));
      for (const Term& t : terms) {
        const int to = own_row(t), from = other_row(t);
        const auto add_to = [&](int row, int a, int b) {
          multiply_spectra<true, true>(fg + (ptrdiff_t)a * N, f + (ptrdiff_t)b * N, N, spectrum + (ptrdiff_t)row * N);
        };
        const double norm_g = size * norm(g[t.out], g.width), norm_other = norm(other[from], other.width);
        add_to(to, t.out, from);
        error[to] += norm_g * norm_other;
        if constexpr (kDual) {
          add_to(own.count + to, g.count + t.out, from);
          add_to(own.count + to, t.out, other.count + from);
          error[own.count + to] += size * norm(g.change(t.out), g.width) * norm_other + norm_g * norm(other.change(from), other.width);
        }
      }
      rows_from_spectra(spectrum, own.count, kParts * own.count, own.width, out.value, w, plan);
      for (int s = 0; s < own.count; s++) {
        Sum mass;
        mass.add(out, s, own, s, 0, own.width);
        if (!(mass.value > 0)) continue;
        const double relative = error[s] * sum(own[s], own.width) / mass.value;
        out.extra[own.count] = max(out.extra[own.count], relative);
        if constexpr (kDual)
          out.extra_change()[own.count] = max(out.extra_change()[own.count],
              (error[own.count + s] * sum(own[s], own.width) + error[s] * sum_of_sizes(own.change(s), own.width)) / mass.value +
                  relative * real::fabs(mass.change / mass.value));
      }
    };
    of_operand(x, y, fy, gx, [](const Term& t) { return t.x; }, [](const Term& t) { return t.y; });
    of_operand(y, x, fx, gy, [](const Term& t) { return t.y; }, [](const Term& t) { return t.x; });
  }

  // Scale the adjoint of an operand to <value, adjoint> = 1 and keep it.
  void settle(int operand, int node, const Rows& rows) {
    Cluster& c = item.clusters[operand];
    const int n = rows.count * c.width;
    const double total = dot(c.value, rows.value, n), factor = total > 0 ? 1 / total : 1.0;
    double mean = 0;
    if constexpr (kDual) {
      mean = (dot(c.value, rows.change(0), n) + dot(c.value + n, rows.value, n)) * factor;
      add_scaled(rows.change(0), rows.value, -mean, n);
    }
    c.adjoint = left.take(w.kept.arena, kParts * n);
    for (int i = 0; i < kParts * n; i++) c.adjoint[i] = rows.value[i] * factor;
    c.underflow[1] = kTiny * max(1.0, factor);
    // The product is that of the cluster above, 1, but for a scale: if it is gone, so is the adjoint.
    const double error = kDual ? rows.extra_change()[rows.count] + real::fabs(mean) * rows.extra[rows.count] : rows.extra[rows.count];
    c.path_error = total > kTiny ? item.clusters[node].path_error + error : __builtin_inf();
    if (!c.touched) return;
    c.reach = arena_take(w.kept.arena, (size_t)(kParts * rows.count));
    for (int s = 0; s < rows.count; s++) {
      c.reach[s] = rows.extra[s] * factor;
      if constexpr (kDual) c.reach[rows.count + s] = (rows.extra_change()[s] + real::fabs(mean) * rows.extra[s]) * factor;
    }
  }

  // Messages, or their derivatives.
  void leaf_down(int node) {
    const Cluster& c = item.clusters[node];
    const int v = item.program->ref[node];
    const Rows g = {c.adjoint, item.states, c.width};
    for (int k = 0; k < item.states; k++) {
      const int at = place(v, k) - c.lo;
      double& out = item.messages[(ptrdiff_t)v * item.states + k];
      if constexpr (kDual) out = g[k][at] > 0 ? g.change(k)[at] / g[k][at] : 0.0;
      else out = real::log(g[k][at]);
    }
  }
};

}  // namespace

void cluster_up(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) { run_up<PlainNumbers<false>>(item, w, nodes, count); }
void cluster_down(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) { run_down<PlainNumbers<false>>(item, w, nodes, count); }
void tangent_cluster_up(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) { run_up<PlainNumbers<true>>(item, w, nodes, count); }
void tangent_cluster_down(ClusterItem& item, ClusterWorker& w, const int32_t* nodes, ptrdiff_t count) { run_down<PlainNumbers<true>>(item, w, nodes, count); }

#define TT_CLUSTER_KERNELS(EACH) \
  EACH(cluster_up) EACH(cluster_down) EACH(tangent_cluster_up) EACH(tangent_cluster_down) EACH(wide_cluster_up)       \
  EACH(wide_cluster_down) EACH(wide_cluster_root) EACH(wide_cluster_draw)

TT_KERNEL_TABLE(ClusterKernels, cluster_kernels, TT_CLUSTER_KERNELS)

}  // namespace tallytree::TT_LEVEL
