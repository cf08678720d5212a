// Belief propagation under complex weights, with derivatives: a forest of pairs with one count, frequency by frequency.
//
// With weights e^{iwy} on the counted variables the forest sums up to the characteristic function Phat(w) of the count,
// and its beliefs to E[y_v e^{iwz}]. The potential brings in its transform: P(y_v = 1) is proportional to the sum over
// frequencies of Re F(w) E[y_v e^{iwz}]. Each lane holds a frequency. Everything is linear in the weights, so derivatives
// ride along as second parts. Scales are those of w = 0, the same for all frequencies, and real.
//
// The same sweep over numbers that carry a bound on what they lack says what underflow may have taken. Rounding is relative
// as long as no number is too small for it. Below, a product loses up to the smallest normal number, and whatever is scaled
// up afterwards takes that loss along. Bounds are sums of positive terms, entry by entry, so that they grow only where the
// lost weight would have grown.
#include "base/exponent.hpp"
#include "cluster/program_pass.hpp"

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

// A positive number and what it may lack.
struct Bounded {
  double value, lost;
};
constexpr double kLost = 4 * 0x1p-1022;
inline Bounded operator*(Bounded a, Bounded b) {
  return {a.value * b.value, a.value * b.lost + a.lost * (b.value + b.lost) + kLost};
}
inline Bounded operator*(Bounded a, double b) { return Bounded{b, kLost} * a; }
inline Bounded operator+(Bounded a, Bounded b) { return {a.value + b.value, a.lost + b.lost}; }

// By state.
template <class Number>
struct Pair {
  Number at[2];
};
template <class Number>
inline Pair<Number> operator*(const Pair<Number>& a, const Pair<Number>& b) {
  return {{a.at[0] * b.at[0], a.at[1] * b.at[1]}};
}

// What a vertex keeps: its product so far, what it sends up, its parent's product before that, and what comes down.
template <class Number>
struct Vertex {
  Pair<Number> below, sent, before, above;
};

// What crosses the edge between v and its parent, upwards or downwards.
template <class Number>
inline Pair<Number> crossed(const CountedForest& t, int32_t v, const Pair<Number>& x, bool up) {
  const RootedForest& f = t.forest;
  const double ones[4] = {1, 1, 1, 1}, *table = f.parent[v] < 0 ? ones : t.edges + 4 * (ptrdiff_t)f.edge[v];
  const bool flip = f.parent[v] >= 0 && f.flip[v];
  const auto weight = [&](int to, int from) { return entry(table, flip, 2, up ? to : from, up ? from : to); };
  return {{x.at[0] * weight(0, 0) + x.at[1] * weight(0, 1), x.at[0] * weight(1, 0) + x.at[1] * weight(1, 1)}};
}

// Up and down the forest, all trees of which hang below one more vertex, the root. own(v) is the weight of a vertex,
// scaled(x, place) is x times a power of two, take(v, belief) is called for all vertices, the root first.
template <class Number, class Own, class Scaled, class Take>
inline void sweep(const CountedForest& t, Vertex<Number>* vertex, Number one, const Own& own, const Scaled& scaled,
                  const Take& take) {
  const RootedForest& f = t.forest;
  const int32_t root = f.variables;
  const auto parent = [&](int32_t v) -> Vertex<Number>& { return vertex[f.parent[v] < 0 ? root : f.parent[v]]; };
  for (int32_t v = 0; v <= root; v++) vertex[v].below = own(v);
  for (int32_t i = root; i-- > 0;) {
    const int32_t v = f.order[i];
    Pair<Number>& below = parent(v).below;
    vertex[v].sent = crossed(t, v, vertex[v].below, true);
    vertex[v].before = below;
    below = scaled(below * vertex[v].sent, 3 * v);
  }
  vertex[root].above = {{one, one}};
  take(root, vertex[root].below * vertex[root].above);
  for (int32_t i = 0; i < root; i++) {
    const int32_t v = f.order[i];
    Pair<Number>& over = parent(v).above;
    vertex[v].above = scaled(crossed(t, v, vertex[v].before * over, false), 3 * v + 1);
    over = scaled(over * vertex[v].sent, 3 * v + 2);
    take(v, vertex[v].below * vertex[v].above);
  }
}

// The root has one state, and is not counted.
inline double own_weight(const CountedForest& t, int32_t v, int y) {
  return v < t.forest.variables ? t.leaf[2 * v + y] : 1.0 - y;
}

inline double scale_to_one(double a, double b) {
  const double top = max(a, b);
  return top > 0 ? pow2(-exponent_of(top)) : 1.0;
}

// Sums over frequencies: by state, their derivatives, and the same of absolute values, for the rounding.
struct VertexSums {
  vec value[2], change[2], size[2], size1[2];
};

inline vec absolute(vec re, vec im) { return (re < 0.0 ? -re : re) + (im < 0.0 ? -im : im); }

void add(const EdgeWaves& w, const Pair<Dual>& x, VertexSums* sums) {
  const vec fr = load(w.f_re), fi = load(w.f_im), hr = load(w.h_re), hi = load(w.h_im);
  const vec f = absolute(fr, fi), h = absolute(hr, hi);
  for (int y = 0; y < 2; y++) {
    const Dual& b = x.at[y];
    sums->value[y] += fr * b.re - fi * b.im;
    sums->change[y] += fr * b.re1 - fi * b.im1 + hr * b.re - hi * b.im;
    const vec size = absolute(b.re, b.im);
    sums->size[y] += f * size;
    sums->size1[y] += f * absolute(b.re1, b.im1) + h * size;
  }
}

}  // namespace

ptrdiff_t edge_scratch(int32_t variables) { return (variables + 1) * (ptrdiff_t)(sizeof(Vertex<Dual>) / sizeof(double)); }
ptrdiff_t edge_sums(int32_t variables) { return variables * (ptrdiff_t)(sizeof(VertexSums) / sizeof(double)); }

void edge_pass(const CountedForest& t, const EdgeWaves& w, bool first, double* scales, double* scratch, double* out) {
  VertexSums* sums = (VertexSums*)out;
  const auto own = [&](int32_t v) {
    Pair<Dual> weight;
    for (int y = 0; y < 2; y++) {
      const bool inside = v < t.forest.variables, turned = y == 1 && inside && t.counted[v];
      const double x = own_weight(t, v, y), slope = inside ? t.slope[2 * v + y] : 0.0;
      const vec re = turned ? load(w.cos_w) * x : splat(x), im = turned ? load(w.sin_w) * x : vec{};
      weight.at[y] = {re, im, re * slope, im * slope};
    }
    return weight;
  };
  const auto scaled = [&](const Pair<Dual>& x, int32_t place) -> Pair<Dual> {
    if (first) scales[place] = scale_to_one(x.at[0].re[0], x.at[1].re[0]);
    return {{x.at[0] * scales[place], x.at[1] * scales[place]}};
  };
  sweep<Dual>(t, (Vertex<Dual>*)scratch, {splat(1.0), vec{}, vec{}, vec{}}, own, scaled,
              [&](int32_t v, const Pair<Dual>& belief) {
    if (v < t.forest.variables) return add(w, belief, sums + v);
    const Dual total = belief.at[0] + belief.at[1];
    store(w.re, total.re);
    store(w.im, total.im);
    store(w.change_re, total.re1);
    store(w.change_im, total.im1);
  });
}

double edge_underflow(const CountedForest& t, double* scratch) {
  const auto own = [&](int32_t v) -> Pair<Bounded> {
    return {{{own_weight(t, v, 0), kLost}, {own_weight(t, v, 1), kLost}}};
  };
  const auto scaled = [](const Pair<Bounded>& x, int32_t) -> Pair<Bounded> {
    const double scale = scale_to_one(x.at[0].value, x.at[1].value);
    return {{{x.at[0].value * scale, x.at[0].lost * scale}, {x.at[1].value * scale, x.at[1].lost * scale}}};
  };
  double worst = 0;
  sweep<Bounded>(t, (Vertex<Bounded>*)scratch, {1, 0}, own, scaled, [&](int32_t, const Pair<Bounded>& belief) {
    const Bounded all = belief.at[0] + belief.at[1];
    const double share = all.lost / all.value;
    worst = share <= worst ? worst : all.value > 0 && share == share ? share : __builtin_inf();
  });
  return worst;
}

void edge_finish(int32_t variables, const double* from, double* marginals, double* change, double* worst, double* doubt) {
  const VertexSums* sums = (const VertexSums*)from;
  worst[0] = 0;
  for (int32_t v = 0; v < variables; v++) {
    double value[2], moved[2], size[2], size1[2];
    for (int y = 0; y < 2; y++) {
      value[y] = sum_lanes(sums[v].value[y]);
      moved[y] = sum_lanes(sums[v].change[y]);
      size[y] = sum_lanes(sums[v].size[y]);
      size1[y] = sum_lanes(sums[v].size1[y]);
    }
    const double all = value[0] + value[1], drift = (moved[0] + moved[1]) / all;
    marginals[v] = value[1] / all;
    // Both states move alike: the one of which less is summed is the one to know.
    double error[2], by_state[2];
    for (int y = 0; y < 2; y++) {
      const double share = value[y] / all, total = (size[0] + size[1]) / all, total1 = (size1[0] + size1[1]) / all;
      by_state[y] = (moved[y] - value[y] * drift) / all;
      error[y] = size1[y] / all + size[y] / all * real::fabs(drift) + share * (total1 + total * real::fabs(drift)) +
                 total * real::fabs(by_state[y]);
    }
    const int y = error[1] <= error[0];
    change[v] = y ? by_state[1] : -by_state[0];
    doubt[v] = error[y];
    const double amplified = (size[0] + size[1]) / all;
    worst[0] = amplified > 0 ? max(worst[0], amplified) : __builtin_inf();
  }
}

}  // namespace tallytree::TT_LEVEL
