// Pass 1 of a flat model's tangent: the sums of sums.cpp, and the same sums weighted by the direction.
#include "flat/deviations.hpp"
#include "flat/tangent_kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

template <int count>
void sums(const double* nu, const double* v, ptrdiff_t n, double tilt, WeightedSums* out) {
  vec plain[count], weighted[count], on_total = vec{}, all_total = vec{}, likely_total = vec{};
  for (int j = 0; j < count; j++) plain[j] = weighted[j] = vec{};
  for (ptrdiff_t block = 0; block < n; block += kBlock * kLanes) {
    const ptrdiff_t end = n < block + kBlock * kLanes ? n : block + kBlock * kLanes;
    vec acc[count], acc_v[count];
    for (int j = 0; j < count; j++) acc[j] = acc_v[j] = vec{};
    vec on = vec{}, all = vec{}, likely = vec{};
    for (ptrdiff_t i = block; i < end; i += kLanes) {
      const vec t = load_up_to(nu + i, end - i, kAbsent) + tilt, w = load_up_to(v + i, end - i, 0.0);
      const Deviation d = deviation(t);
      all += w;
      on += t < 0.0 ? vec{} : w;
      likely += t < 0.0 ? vec{} : splat(1.0);
      deviation_terms<count>(d, [&](int j, vec b) {
        acc[j] += b;
        acc_v[j] += w * b;
      });
    }
    for (int j = 0; j < count; j++) {
      plain[j] += acc[j];
      weighted[j] += acc_v[j];
    }
    on_total += on;
    all_total += all;
    likely_total += likely;
  }
  for (int j = 0; j < count; j++) {
    out->plain[j] = sum_lanes(plain[j]);
    out->weighted[j] = sum_lanes(weighted[j]);
  }
  out->on = sum_lanes(on_total);
  out->total = sum_lanes(all_total);
  out->likely_on = sum_lanes(likely_total);
}

}  // namespace

void weighted_sums(const double* nu, const double* v, ptrdiff_t n, double tilt, int count, WeightedSums* out) {
  with_sums(count - 1, [&]<int most>() { sums<most + 1>(nu, v, n, tilt, out); });
}

ptrdiff_t weighted_powers(const double* nu, const double* v, ptrdiff_t n, double tilt, WeightedPowers* out,
                          double* large_p, double* large_v) {
  vec sum_off[kPowers + 1], sum_on[kPowers + 1], weight_on = vec{};
  for (int j = 0; j <= kPowers; j++) sum_off[j] = sum_on[j] = vec{};
  ptrdiff_t found = 0;
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    vec w = load_up_to(v + i, n - i, 0.0);
    const Deviation d = deviation(load_up_to(nu + i, n - i, kAbsent) + tilt);
    vec dev = 0.5 * d.delta, likely = d.sign;
    if (!any((dev > 1e-30) | (likely > 0.0))) continue;
    take_large(&dev, &likely, [&](int l, double p) {
      large_p[found] = p;
      large_v[found++] = w[l];
      w[l] = 0;
    });
    weight_on += likely > 0.0 ? w : vec{};
    const vec dev_on = likely > 0.0 ? dev : vec{}, dev_off = dev - dev_on;
    vec power_on = w * dev_on, power_off = w * dev_off;
    for (int j = 0; j <= kPowers; j++) {
      sum_on[j] += power_on;
      sum_off[j] += power_off;
      power_on *= dev_on;
      power_off *= dev_off;
      if (j % 5 == 4 && !any((power_on != 0.0) | (power_off != 0.0))) break;
    }
  }
  for (int j = 0; j <= kPowers; j++) {
    out->off[j] = sum_lanes(sum_off[j]);
    out->on[j] = sum_lanes(sum_on[j]);
  }
  out->weight_on = sum_lanes(weight_on);
  return found;
}

}  // namespace tallytree::TT_LEVEL
