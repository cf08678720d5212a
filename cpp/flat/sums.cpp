// Pass 1 of the flat solver: a stream of logits becomes a few dozen sums.
#include "base/real.hpp"
#include "flat/deviations.hpp"

namespace tallytree::TT_LEVEL {

namespace {

// Power sums are taken in steps of this many.
constexpr int kPowerStep = 5;
static_assert(kPowers % kPowerStep == 0);

template <int count>
void sums(const double* nu, ptrdiff_t n, double tilt, FlatTotals* totals, double* out) {
  vec total[count];
  for (int j = 0; j < count; j++) total[j] = vec{};
  const double inf = __builtin_inf();
  vec smallest = splat(inf), largest = splat(-inf), infinite = vec{};
  *totals = {0, 0, 0, 0, 0, inf, -inf, 0};
  for (ptrdiff_t block = 0; block < n; block += kBlock * kLanes) {
    const ptrdiff_t end = n < block + kBlock * kLanes ? n : block + kBlock * kLanes;
    vec acc[count];
    for (int j = 0; j < count; j++) acc[j] = vec{};
    vec product = splat(1.0), lost = vec{}, positive = vec{}, negative = vec{}, on = vec{};
    for (ptrdiff_t i = block; i < end; i += kLanes) {
      const vec raw = load_up_to(nu + i, end - i, kAbsent);
      const vec t = raw + tilt;
      const Deviation d = deviation(t);
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
      on += t < 0.0 ? vec{} : splat(1.0);
      deviation_terms<count>(d, [&](int j, vec b) { acc[j] += b; });
    }
    for (int j = 0; j < count; j++) total[j] += acc[j];
    double all = 1;  // at most 2^(64 * 8)
    for (int l = 0; l < kLanes; l++) all *= product[l];
    totals->log_norm += real::log(all) + sum_lanes(lost);
    totals->positive += sum_lanes(positive);
    totals->negative += sum_lanes(negative);
    totals->likely_on += sum_lanes(on);
  }
  for (int j = 0; j < count; j++) out[j] = sum_lanes(total[j]);
  const ptrdiff_t absent = (kLanes - n % kLanes) % kLanes;
  totals->infinite = tilt == 0.0 ? sum_lanes(infinite) - (double)absent : 0.0;
  for (int l = 0; l < kLanes; l++) {
    totals->smallest = smallest[l] < totals->smallest ? smallest[l] : totals->smallest;
    totals->largest = largest[l] > totals->largest ? largest[l] : totals->largest;
  }
}

}  // namespace

void chebyshev_sums(const double* nu, ptrdiff_t n, double tilt, int count, FlatTotals* totals, double* out) {
  with_sums(count, [&]<int most>() { sums<most>(nu, n, tilt, totals, out); });
}

ptrdiff_t small_deviation_sums(const double* nu, ptrdiff_t n, double tilt, double* off, double* on, double* likely_on,
                               double* large) {
  vec sum_off[kPowers], sum_on[kPowers], count_on = vec{};
  for (int j = 0; j < kPowers; j++) sum_off[j] = sum_on[j] = vec{}, off[j] = on[j] = 0;
  ptrdiff_t found = 0, pending = 0;
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    if (++pending == kBlock) {
      for (int j = 0; j < kPowers; j++) {
        off[j] += sum_lanes(sum_off[j]);
        on[j] += sum_lanes(sum_on[j]);
        sum_off[j] = sum_on[j] = vec{};
      }
      pending = 0;
    }
    const vec raw = load_up_to(nu + i, n - i, kAbsent);
    const Deviation d = deviation(raw + tilt);
    vec dev = 0.5 * d.delta, likely = d.sign;
    if (!any((dev > 1e-30) | (likely > 0.0))) continue;
    take_large(&dev, &likely, [&](int, double p) { large[found++] = p; });
    count_on += likely > 0.0 ? splat(1.0) : vec{};
    const vec dev_on = likely > 0.0 ? dev : vec{}, dev_off = dev - dev_on;
    vec power_on = dev_on, power_off = dev_off;
    for (int from = 0; from < kPowers; from += kPowerStep) {
#pragma GCC unroll 8
      for (int j = from; j < from + kPowerStep; j++) {
        sum_on[j] += power_on;
        sum_off[j] += power_off;
        power_on *= dev_on;
        power_off *= dev_off;
      }
      // A power below 1e-32 is worth less than 1e-24 after the factor 2^j.
      if (!any(power_on + power_off > 1e-32)) break;
    }
  }
  for (int j = 0; j < kPowers; j++) {
    off[j] += sum_lanes(sum_off[j]);
    on[j] += sum_lanes(sum_on[j]);
  }
  *likely_on = sum_lanes(count_on);
  return found;
}

// The logits of a histogram: `spread` is the sum of squared distances from the mean of a bin, and inside a bin
// K'' changes by a factor of at most `growth`, so K <= K(means) + growth / 2 sum spread p q.
void tilted_moments(const double* value, const double* weight, const double* spread, ptrdiff_t count, double growth,
                    double tilt, double* out) {
  vec k = vec{}, slack = vec{}, mean = vec{}, var = vec{};
  for (ptrdiff_t i = 0; i < count; i += kLanes) {
    const vec t = load_up_to(value + i, count - i, 0) + tilt, w = load_up_to(weight + i, count - i, 0);
    const Deviation d = deviation(t);
    const vec half = 0.5 * d.delta, v = half * (1.0 - half);
    const vec inside = load_up_to(spread + i, count - i, 0), steep = v * growth;
    k += w * (log1p_unit(d.e) + (t > 0.0 ? t : vec{}));
    slack += inside * (steep < 0.25 ? steep : splat(0.25));
    mean += w * (t < 0.0 ? half : 1.0 - half);
    var += w * v;
  }
  out[0] = sum_lanes(k);
  out[1] = out[0] + 0.5 * sum_lanes(slack);
  out[2] = sum_lanes(mean);
  out[3] = sum_lanes(var);
}

void tilted_mean(const double* value, const double* weight, ptrdiff_t count, double tilt, double* out) {
  vec mean = vec{}, var = vec{};
  for (ptrdiff_t i = 0; i < count; i += kLanes) {
    const vec t = load_up_to(value + i, count - i, 0) + tilt, w = load_up_to(weight + i, count - i, 0);
    const vec half = 0.5 * deviation(t).delta;
    mean += w * (t < 0.0 ? half : 1.0 - half);
    var += w * (half * (1.0 - half));
  }
  out[0] = sum_lanes(mean);
  out[1] = sum_lanes(var);
}

}  // namespace tallytree::TT_LEVEL
