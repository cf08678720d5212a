// Pass 1 of the flat solver and of its derivatives: a stream of logits becomes a few dozen sums of deviations, alone or
// also weighted by a direction; or, for sums of powers, products of factors (at the end of the file).
#include "base/deviation.hpp"
#include "flat/kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

// Running sums are flushed after this many additions: equal terms round in the same direction every time, so
// the error of a long sum is not random. Products of as many factors in (1, 2] cannot overflow before their
// logarithm is taken.
constexpr ptrdiff_t kBlock = 64;

// Entries past the end contribute nothing: their deviation is 0, and they count as likely off.
constexpr double kAbsent = -__builtin_inf();

// Calls sums<most>() with the smallest number of sums compiled for that is at least `count`.
template <size_t k = 0, class Sums>
inline void with_sums(int count, const Sums& sums) {
  constexpr bool last = k + 1 == sizeof kSumCounts / sizeof kSumCounts[0];
  if (last || count <= kSumCounts[k]) return sums.template operator()<kSumCounts[k]>();
  if constexpr (!last) with_sums<k + 1>(count, sums);
}

// Calls add(j - 1, b_j) for j = 1 .. count. With a_j = 1 - T_j(|x|), the Chebyshev recurrence
// T_{j+1} = 2 |x| T_j - T_{j-1} reads a_{j+1} = 2 |x| a_j + (2 delta - a_{j-1}), delta = 1 - |x|: all terms vanish with
// delta. For b_j = sign^j a_j it is b_{j+1} = 2 x b_j + (sign^{j+1} 2 delta - b_{j-1}).
template <int count, class Add>
inline void deviation_terms(const Deviation& d, const Add& add) {
  const vec two_delta = d.delta + d.delta, signed_two_delta = d.sign * two_delta;
  const vec two_x = d.sign * (2.0 - two_delta);
  vec before = vec{}, b = d.sign * d.delta;
  add(0, b);
#pragma GCC unroll 25
  for (int j = 1; j < count; j++) {
    const vec next = two_x * b + ((j % 2 ? two_delta : signed_two_delta) - before);
    before = b;
    b = next;
    add(j, b);
  }
}

// Calls take(lane, p) for every large deviation, which then counts as none of a variable that is likely off.
template <class Take>
inline void take_large(vec* deviation, vec* likely, const Take& take) {
  if (!any(*deviation >= kLargeDeviation)) return;
  for (int l = 0; l < kLanes; l++) {
    if (!((*deviation)[l] >= kLargeDeviation)) continue;
    take(l, (*likely)[l] > 0 ? 1 - (*deviation)[l] : (*deviation)[l]);
    (*deviation)[l] = 0;
    (*likely)[l] = -1;
  }
}

// `v` is the direction; without one (`weighted` is false) the totals of the logits are taken as well.
template <int count, bool weighted>
void sums(const double* nu, const double* v, ptrdiff_t n, double tilt, FlatTotals* totals, double* out,
          double* out_weighted, double* weight_on) {
  constexpr int directed = weighted ? count : 0;
  const double inf = __builtin_inf();
  vec total[count + directed], total_on = vec{}, smallest = splat(inf), largest = splat(-inf), infinite = vec{};
  for (vec& t : total) t = vec{};
  *totals = {0, 0, 0, 0, 0, inf, -inf, 0};
  for (ptrdiff_t block = 0; block < n; block += kBlock * kLanes) {
    const ptrdiff_t end = n < block + kBlock * kLanes ? n : block + kBlock * kLanes;
    vec acc[count + directed], product = splat(1.0), lost = vec{}, positive = vec{}, negative = vec{}, on = vec{};
    vec on_weight = vec{};
    for (vec& a : acc) a = vec{};
    for (ptrdiff_t i = block; i < end; i += kLanes) {
      const vec raw = load_up_to(nu + i, end - i, kAbsent);
      const vec t = raw + tilt;
      const Deviation d = deviation(t);
      on += t < 0.0 ? vec{} : splat(1.0);
      if constexpr (weighted) {
        const vec w = load_up_to(v + i, end - i, 0.0);
        on_weight += t < 0.0 ? vec{} : w;
        deviation_terms<count>(d, [&](int j, vec b) {
          acc[j] += b;
          acc[count + j] += w * b;
        });
        continue;
      }
      const vec factor = 1.0 + d.e;
      product *= factor;
      lost += (d.e - (factor - 1.0)) * d.inverse;  // what rounding took from log(1 + e)
      if (tilt == 0.0) {
        positive += raw > 0.0 ? raw : vec{};
        negative -= ((raw < 0.0) & (raw > kAbsent)) ? raw : vec{};
        smallest = ((raw < smallest) & (raw > -inf)) ? raw : smallest;
        largest = ((raw > largest) & (raw < inf)) ? raw : largest;
        infinite += abs(raw) == inf ? splat(1.0) : vec{};
      } else {
        positive += t < 0.0 ? (raw > 0.0 ? -raw : vec{}) : (raw > 0.0 ? vec{} : raw);
      }
      deviation_terms<count>(d, [&](int j, vec b) { acc[j] += b; });
    }
    for (int j = 0; j < count + directed; j++) total[j] += acc[j];
    total_on += on_weight;
    double all = 1;  // at most 2^(64 * 8)
    for (int l = 0; l < kLanes; l++) all *= product[l];
    totals->log_norm += real::log(all) + sum_lanes(lost);
    totals->positive += sum_lanes(positive);
    totals->negative += sum_lanes(negative);
    totals->likely_on += sum_lanes(on);
  }
  for (int j = 0; j < count; j++) out[j] = sum_lanes(total[j]);
  for (int j = 0; j < directed; j++) out_weighted[j] = sum_lanes(total[count + j]);
  if constexpr (weighted) *weight_on = sum_lanes(total_on);
  const ptrdiff_t absent = (kLanes - n % kLanes) % kLanes;
  totals->infinite = tilt == 0.0 ? sum_lanes(infinite) - (double)absent : 0.0;
  totals->smallest = min_lanes(smallest);
  totals->largest = max_lanes(largest);
}

// `likely_on` is the sum of the weights of the small deviations that are likely on.
template <bool weighted>
ptrdiff_t powers(const double* nu, const double* v, ptrdiff_t n, double tilt, double* off, double* on, double* likely_on,
                 double* large, double* large_weight) {
  constexpr int count = weighted ? kWeightedPowers : kPowers;
  vec sum_off[count], sum_on[count], total_on = vec{};
  for (int j = 0; j < count; j++) sum_off[j] = sum_on[j] = vec{}, off[j] = on[j] = 0;
  const auto flush = [&] {
    for (int j = 0; j < count; j++) {
      off[j] += sum_lanes(sum_off[j]);
      on[j] += sum_lanes(sum_on[j]);
      sum_off[j] = sum_on[j] = vec{};
    }
  };
  ptrdiff_t found = 0, pending = 0;
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    if (++pending == kBlock) {
      flush();
      pending = 0;
    }
    const Deviation d = deviation(load_up_to(nu + i, n - i, kAbsent) + tilt);
    vec dev = 0.5 * d.delta, likely = d.sign, w = splat(1.0);
    if constexpr (weighted) w = load_up_to(v + i, n - i, 0.0);
    if (!any((dev > 1e-30) | (likely > 0.0))) continue;
    take_large(&dev, &likely, [&](int l, double p) {
      if constexpr (weighted) large_weight[found] = w[l];
      large[found++] = p;
    });
    total_on += likely > 0.0 ? w : vec{};
    const vec dev_on = likely > 0.0 ? dev : vec{}, dev_off = dev - dev_on;
    vec power_on = dev_on, power_off = dev_off;
    for (int from = 0; from < count; from += kPowerStep) {
#pragma GCC unroll 8
      for (int j = from; j < from + kPowerStep; j++) {
        sum_on[j] += weighted ? w * power_on : power_on;
        sum_off[j] += weighted ? w * power_off : power_off;
        power_on *= dev_on;
        power_off *= dev_off;
      }
      // A power below 1e-32 is worth less than 1e-24 after the factor 2^j.
      if (!any(power_on + power_off > 1e-32)) break;
    }
  }
  flush();
  *likely_on = sum_lanes(total_on);
  return found;
}

}  // namespace

void chebyshev_sums(const double* nu, ptrdiff_t n, double tilt, int count, FlatTotals* totals, double* out) {
  with_sums(count, [&]<int most>() { sums<most, false>(nu, nullptr, n, tilt, totals, out, nullptr, nullptr); });
}

void weighted_sums(const double* nu, const double* v, ptrdiff_t n, double tilt, int count, WeightedSums* out) {
  FlatTotals totals;
  with_sums(count - 1, [&]<int most>() {
    sums<most + 1, true>(nu, v, n, tilt, &totals, out->plain, out->weighted, &out->on);
  });
  out->likely_on = totals.likely_on;
}

ptrdiff_t small_deviation_sums(const double* nu, ptrdiff_t n, double tilt, double* off, double* on, double* likely_on,
                               double* large) {
  return powers<false>(nu, nullptr, n, tilt, off, on, likely_on, large, nullptr);
}

ptrdiff_t weighted_powers(const double* nu, const double* v, ptrdiff_t n, double tilt, WeightedPowers* out,
                          double* large_p, double* large_v) {
  return powers<true>(nu, v, n, tilt, out->off, out->on, &out->weight_on, large_p, large_v);
}

// The logits of a histogram: `spread` is the sum of squared distances from the mean of a bin, and inside a bin
// K'' changes by a factor of at most `growth`, so K <= K(means) + growth / 2 sum spread p q.
void tilted_moments(const double* value, const double* weight, const double* spread, ptrdiff_t count, double growth,
                    double tilt, double* out) {
  const auto sums = [&]<bool bounded>() {
    vec k = vec{}, slack = vec{}, mean = vec{}, var = vec{};
    for (ptrdiff_t i = 0; i < count; i += kLanes) {
      const vec t = load_up_to(value + i, count - i, 0) + tilt, w = load_up_to(weight + i, count - i, 0);
      const Deviation d = deviation(t);
      const vec half = 0.5 * d.delta, v = half * (1.0 - half);
      mean += w * (t < 0.0 ? half : 1.0 - half);
      var += w * v;
      if constexpr (bounded) {
        const vec inside = load_up_to(spread + i, count - i, 0), steep = v * growth;
        k += w * (log1p_unit(d.e) + (t > 0.0 ? t : vec{}));
        slack += inside * (steep < 0.25 ? steep : splat(0.25));
      }
    }
    out[0] = sum_lanes(mean);
    out[1] = sum_lanes(var);
    if constexpr (bounded) out[2] = sum_lanes(k) + 0.5 * sum_lanes(slack);
  };
  if (spread) sums.template operator()<true>();
  else sums.template operator()<false>();
}

// Sums of powers: a potential f(c) = sum_j a_j r_j^c needs one factor g_ij = 1 - p_i + p_i r_j per variable and term.

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
