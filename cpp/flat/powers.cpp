// Sums of powers: a potential f(c) = sum_j a_j r_j^c needs one factor g_ij = 1 - p_i + p_i r_j per variable and term.
#include "base/real.hpp"
#include "base/deviation.hpp"
#include "flat/kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr ptrdiff_t kFactors = 64;  // in (1, 2]: as many in every lane multiply without overflow
constexpr int kTogether = 4;        // factors whose logarithm is taken at once

// A sum that keeps what rounding takes from it.
struct ExactSum {
  vec sum = vec{}, lost = vec{};

  void add(vec x) {
    const vec total = sum + x, added = total - sum;
    lost += (sum - (total - added)) + (x - added);
    sum = total;
  }
};

struct Factor {
  vec value, lost;  // g, and what rounding took from it
};

// 1 + p (r - 1), or q + p r where p > 1/2 and r is small: then both are sums of positive numbers, and otherwise the
// rounding of 1 + x, which is not small compared with a small x, is known exactly.
inline Factor factor(const Leaf& leaf, vec logit, double rate) {
  const vec x = leaf.on * (rate - 1.0), u = 1.0 + x;
  if (rate >= 0.5) return {u, x - (u - 1.0)};
  return {logit > 0.0 ? leaf.off + leaf.on * rate : u, logit > 0.0 ? vec{} : x - (u - 1.0)};
}

inline Leaf leaf_at(const double* nu, ptrdiff_t left, vec* t, Deviation* d) {
  *t = load_up_to(nu, left, -__builtin_inf());
  *d = deviation(*t);
  return leaf_of(*t, *d);
}

// Product of factors, to first order in what rounding took from them.
struct Product {
  vec value, lost;

  void take(const Factor& g) {
    lost = lost * g.value + value * g.lost;
    value *= g.value;
  }
  vec log_size() const { return log(abs(value)) + lost / value; }
};

// sum_j a_j r_j W_j / g_ij and sum_j a_j W_j / g_ij, W_j the product of all factors of term j.
inline Leaf sides(const PowerForm& powers, const Leaf& leaf, vec t) {
  if (powers.terms == 1) return {splat(powers.off[0]), splat(powers.on[0])};  // 1 / g is common to both
  Leaf s = {vec{}, vec{}};
  for (int j = 0; j < powers.terms; j++) {
    const vec inverse = powers.rate[j] == 1.0 ? splat(1.0) : 1.0 / factor(leaf, t, powers.rate[j]).value;
    s.on += powers.on[j] * inverse;
    s.off += powers.off[j] * inverse;
  }
  return s;
}

}  // namespace

void power_sums(const double* nu, ptrdiff_t n, const double* rate, int terms, PowerSums* out) {
  const double inf = __builtin_inf();
  ExactSum logs[kMaxPowers];
  vec negative[kMaxPowers], smallest[kMaxPowers], largest[kMaxPowers];
  for (int j = 0; j < terms; j++) negative[j] = largest[j] = vec{}, smallest[j] = splat(inf);
  vec positive = vec{};
  double log_norm = 0;
  for (ptrdiff_t block = 0; block < n; block += kFactors * kLanes) {
    const ptrdiff_t end = n < block + kFactors * kLanes ? n : block + kFactors * kLanes;
    vec norm = splat(1.0), lost = vec{};
    for (ptrdiff_t i = block; i < end; i += kTogether * kLanes) {
      vec t[kTogether];
      Leaf leaf[kTogether];
      for (int v = 0; v < kTogether; v++) {
        Deviation d;
        const ptrdiff_t at = i + v * kLanes < end ? i + v * kLanes : end;
        leaf[v] = leaf_at(nu + at, end - at, &t[v], &d);
        const vec both = 1.0 + d.e;
        norm *= both;
        lost += (d.e - (both - 1.0)) * d.inverse;
        positive += ((t[v] > 0.0) & (t[v] < inf)) ? t[v] : vec{};
      }
      for (int j = 0; j < terms; j++) {
        if (rate[j] == 1.0) continue;
        Product product = {splat(1.0), vec{}};
        for (int v = 0; v < kTogether; v++) {
          const Factor g = factor(leaf[v], t[v], rate[j]);
          const vec size = abs(g.value);
          negative[j] += g.value < 0.0 ? splat(1.0) : vec{};
          smallest[j] = min(smallest[j], size);
          largest[j] = max(largest[j], size);
          product.take(g);
        }
        logs[j].add(product.log_size());
      }
    }
    double all = 1;
    for (int l = 0; l < kLanes; l++) all *= norm[l];
    log_norm += real::log(all) + sum_lanes(lost);
  }
  out->softplus = sum_lanes(positive) + log_norm;
  for (int j = 0; j < terms; j++) {
    PowerSum& s = out->term[j];
    s = {sum_lanes(logs[j].sum), sum_lanes(logs[j].lost), sum_lanes(negative[j]), min_lanes(smallest[j]), max_lanes(largest[j])};
    if (rate[j] == 1.0) s.smallest = s.largest = 1;
  }
}

// Calls put(leaf, sides) for the leaves of one vector after the other and keeps what it returns.
template <class Put>
static inline void over_leaves(const double* nu, ptrdiff_t n, const PowerForm& powers, double* out, const Put& put) {
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    vec t;
    Deviation d;
    const Leaf leaf = leaf_at(nu + i, n - i, &t, &d);
    store_up_to(out + i, put(leaf, sides(powers, leaf, t)), n - i);
  }
}

void power_answers(const double* nu, ptrdiff_t n, const PowerForm& powers, bool marginals, double* out) {
  if (!marginals)
    return over_leaves(nu, n, powers, out, [](const Leaf&, const Leaf& s) { return log(s.on / s.off); });
  over_leaves(nu, n, powers, out, [](const Leaf& leaf, const Leaf& s) {
    const vec on = leaf.on * s.on;
    return on / (on + leaf.off * s.off);
  });
}

}  // namespace tallytree::TT_LEVEL
