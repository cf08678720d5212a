// Belief propagation under complex weights, with derivatives: a forest of pairs with one count, frequency by frequency.
//
// With weights e^{iwy} on the counted variables the forest sums up to the characteristic function Phat(w) of the count,
// and its beliefs to E[y_v e^{iwz}]. The potential brings in its transform: P(y_v = 1) is proportional to the sum over
// frequencies of Re F(w) E[y_v e^{iwz}]. Each lane holds a frequency. Everything is linear in the weights, so derivatives
// ride along as second parts. Scales are those of w = 0, the same for all frequencies, and real.
#include "cluster/edge_tangent_kernels.hpp"
#include "base/exponent.hpp"

namespace tallytree::TT_LEVEL {

namespace {

// A complex number and its derivative.
struct Dual {
  vec re, im, re1, im1;
};
inline Dual operator*(const Dual& a, const Dual& b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re,
          a.re1 * b.re - a.im1 * b.im + a.re * b.re1 - a.im * b.im1,
          a.re1 * b.im + a.im1 * b.re + a.re * b.im1 + a.im * b.re1};
}
inline Dual operator*(const Dual& a, double b) { return {a.re * b, a.im * b, a.re1 * b, a.im1 * b}; }
inline Dual operator+(const Dual& a, const Dual& b) {
  return {a.re + b.re, a.im + b.im, a.re1 + b.re1, a.im1 + b.im1};
}

struct Pair {
  Dual at[2];
};

// What a vertex keeps: its product so far, what it sends up, its parent's product before that, and what comes down.
struct Vertex {
  Pair below, sent, before, above;
};

// Sums over frequencies: of all and of y = 1, their derivatives, and the same of absolute values, for the rounding.
struct VertexSums {
  vec all, on, all1, on1, size, size1;
};

inline vec absolute(vec re, vec im) { return (re < 0.0 ? -re : re) + (im < 0.0 ? -im : im); }

double scale_of(const Pair& x, bool first, double* kept) {
  if (first) {
    const double top = max((double)x.at[0].re[0], (double)x.at[1].re[0]);
    *kept = top > 0 ? pow2(-exponent_of(top)) : 1.0;
  }
  return *kept;
}

inline double entry(const EdgeTree& t, int32_t v, int parent_state, int state) {
  const double* table = t.edges + 4 * (ptrdiff_t)t.edge[v];
  return t.flip[v] ? table[2 * state + parent_state] : table[2 * parent_state + state];
}

inline Dual own_weight(const EdgeTree& t, const EdgeWaves& w, int32_t v, int y) {
  const double x = t.leaf[2 * v + y], slope = t.slope[2 * v + y];
  const bool turned = y == 1 && t.counted[v];
  const vec re = turned ? load(w.cos_w) * x : splat(x), im = turned ? load(w.sin_w) * x : vec{};
  return {re, im, re * slope, im * slope};
}

void add(const EdgeWaves& w, const Pair& x, VertexSums* sums) {
  const vec fr = load(w.f_re), fi = load(w.f_im), hr = load(w.h_re), hi = load(w.h_im);
  const vec f = absolute(fr, fi), h = absolute(hr, hi);
  vec value[2], change[2];
  for (int y = 0; y < 2; y++) {
    const Dual& b = x.at[y];
    value[y] = fr * b.re - fi * b.im;
    change[y] = fr * b.re1 - fi * b.im1 + hr * b.re - hi * b.im;
    const vec size = absolute(b.re, b.im);
    sums->size += f * size;
    sums->size1 += f * absolute(b.re1, b.im1) + h * size;
  }
  sums->all += value[0] + value[1];
  sums->on += value[1];
  sums->all1 += change[0] + change[1];
  sums->on1 += change[1];
}

}  // namespace

ptrdiff_t edge_scratch(int32_t vertices) { return (ptrdiff_t)(vertices * (sizeof(Vertex) / sizeof(double))); }
ptrdiff_t edge_sums(int32_t vertices) { return (ptrdiff_t)(vertices * (sizeof(VertexSums) / sizeof(double))); }

void edge_pass(const EdgeTree& t, const EdgeWaves& w, bool first, double* scales, double* scratch, double* out) {
  Vertex* vertex = (Vertex*)scratch;
  VertexSums* sums = (VertexSums*)out;
  for (int32_t v = 0; v < t.vertices; v++)
    for (int y = 0; y < 2; y++) vertex[v].below.at[y] = own_weight(t, w, v, y);
  for (int32_t i = t.vertices; i-- > 0;) {
    const int32_t v = t.order[i], p = t.parent[v];
    if (p < 0) continue;
    Pair &sent = vertex[v].sent, &below = vertex[p].below;
    for (int y = 0; y < 2; y++)
      sent.at[y] = vertex[v].below.at[0] * entry(t, v, y, 0) + vertex[v].below.at[1] * entry(t, v, y, 1);
    vertex[v].before = below;
    for (int y = 0; y < 2; y++) below.at[y] = below.at[y] * sent.at[y];
    const double scale = scale_of(below, first, scales + 3 * v);
    for (int y = 0; y < 2; y++) below.at[y] = below.at[y] * scale;
  }
  for (int32_t i = 0; i < t.vertices; i++) {
    const int32_t v = t.order[i], p = t.parent[v];
    Pair& above = vertex[v].above;
    if (p < 0) {
      for (int y = 0; y < 2; y++) above.at[y] = {splat(1.0), vec{}, vec{}, vec{}};
      const Dual total = vertex[v].below.at[0] + vertex[v].below.at[1];
      store(w.re, total.re);
      store(w.im, total.im);
      store(w.change_re, total.re1);
      store(w.change_im, total.im1);
      continue;
    }
    Pair rest, &over = vertex[p].above;
    for (int y = 0; y < 2; y++) rest.at[y] = vertex[v].before.at[y] * over.at[y];
    for (int y = 0; y < 2; y++) above.at[y] = rest.at[0] * entry(t, v, 0, y) + rest.at[1] * entry(t, v, 1, y);
    const double scale = scale_of(above, first, scales + 3 * v + 1);
    for (int y = 0; y < 2; y++) above.at[y] = above.at[y] * scale;
    for (int y = 0; y < 2; y++) over.at[y] = over.at[y] * vertex[v].sent.at[y];
    const double over_scale = scale_of(over, first, scales + 3 * v + 2);
    for (int y = 0; y < 2; y++) over.at[y] = over.at[y] * over_scale;
    Pair belief;
    for (int y = 0; y < 2; y++) belief.at[y] = vertex[v].below.at[y] * above.at[y];
    add(w, belief, sums + v);
  }
}

void edge_finish(int32_t vertices, const double* from, double* marginals, double* change, double* worst) {
  const VertexSums* sums = (const VertexSums*)from;
  worst[0] = worst[1] = 0;
  for (int32_t v = 0; v < vertices; v++) {
    const double all = sum_lanes(sums[v].all), on = sum_lanes(sums[v].on) / all;
    marginals[v] = on;
    change[v] = (sum_lanes(sums[v].on1) - on * sum_lanes(sums[v].all1)) / all;
    const double size = sum_lanes(sums[v].size) / all, size1 = sum_lanes(sums[v].size1) / all;
    const double drift = real::fabs(sum_lanes(sums[v].all1) / all) + real::fabs(change[v]);
    worst[0] = size > 0 && size > worst[0] ? size : size > 0 ? worst[0] : __builtin_inf();
    worst[1] = max(worst[1], size1 + size * drift);
  }
}

extern const EdgeTangentKernels edge_tangent_kernels;
const EdgeTangentKernels edge_tangent_kernels = {edge_scratch, edge_sums, edge_pass, edge_finish};

}  // namespace tallytree::TT_LEVEL
