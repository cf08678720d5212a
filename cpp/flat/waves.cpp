// Sums over frequencies: the transform of a table on a window of counts, its inverse, products of characteristic
// functions, and the two leave-one-out sums.
#include "base/deviation.hpp"
#include "base/kernels.hpp"
#include "flat/leave_one_out.hpp"

namespace tallytree::TT_LEVEL {

namespace {

// Sums over a whole vector of counts at a time are evaluated by Horner's rule in the rotation by one vector, and started
// anew this often: a rotation loses about half a unit in the last place.
constexpr ptrdiff_t kRestart = kRotorRestart;
// So many frequencies are under way at once: that hides the latency of a rotation.
constexpr int kAtOnce = 4;

struct Phase {
  double re, im;
};

// e^{-i w count} for a count relative to the window's own origin.
inline Phase phase_at(const Turns& turns, int m, double count) {
  const double angle = turns.w[m] * count;
  return {real::cos(angle), -real::sin(angle)};
}
inline Phase first_phase(const Turns& turns, int m, ptrdiff_t begin) {
  if (begin == 0) return {turns.cos_first[m], -turns.sin_first[m]};
  return phase_at(turns, m, turns.first + (double)begin);
}

struct Lanes {
  vec re, im;
};

// e^{-i w lane} for every lane.
inline Lanes lane_phases(const Turns& turns, int m) {
  Lanes o;
  const double c = turns.cos_w[m], s = -turns.sin_w[m];
  double re = 1, im = 0;
  for (int l = 0; l < kLanes; l++) {
    o.re[l] = re;
    o.im[l] = im;
    const double turned = re * c - im * s;
    im = re * s + im * c;
    re = turned;
  }
  return o;
}

}  // namespace

void transform(const Turns& turns, const double* f, ptrdiff_t length, double* re, double* im) {
  const ptrdiff_t vectors = (length + kLanes - 1) / kLanes;
  for (int m0 = 0; m0 < turns.count; m0 += kAtOnce) {
    int index[kAtOnce];
    double step_re[kAtOnce], step_im[kAtOnce];
    Lanes lanes[kAtOnce];
    vec sum_re[kAtOnce], sum_im[kAtOnce];
    for (int g = 0; g < kAtOnce; g++) {
      index[g] = m0 + g < turns.count ? m0 + g : m0;
      step_re[g] = turns.cos_lanes[index[g]];
      step_im[g] = -turns.sin_lanes[index[g]];
      lanes[g] = lane_phases(turns, index[g]);
      sum_re[g] = sum_im[g] = vec{};
    }
    for (ptrdiff_t begin = 0; begin < vectors; begin += kRestart) {
      const ptrdiff_t end = vectors < begin + kRestart ? vectors : begin + kRestart;
      vec a[kAtOnce], b[kAtOnce];
      for (int g = 0; g < kAtOnce; g++) a[g] = b[g] = vec{};
      for (ptrdiff_t v = end; v-- > begin;) {
        const vec x = load(f + v * kLanes);
#pragma GCC unroll 4
        for (int g = 0; g < kAtOnce; g++) {
          const vec turned = a[g] * step_re[g] + (x - b[g] * step_im[g]);
          b[g] = a[g] * step_im[g] + b[g] * step_re[g];
          a[g] = turned;
        }
      }
      for (int g = 0; g < kAtOnce; g++) {
        const Phase p = first_phase(turns, index[g], begin * kLanes);
        sum_re[g] += a[g] * p.re - b[g] * p.im;
        sum_im[g] += a[g] * p.im + b[g] * p.re;
      }
    }
    for (int g = 0; g < kAtOnce && m0 + g < turns.count; g++) {
      re[m0 + g] = sum_lanes(sum_re[g] * lanes[g].re - sum_im[g] * lanes[g].im);
      im[m0 + g] = sum_lanes(sum_re[g] * lanes[g].im + sum_im[g] * lanes[g].re);
    }
  }
}

void inverse(const Turns& turns, const double* re, const double* im, ptrdiff_t length, double* out) {
  for (int m0 = 0; m0 < turns.count; m0 += kAtOnce) {
    double step_re[kAtOnce], step_im[kAtOnce];
    Lanes lanes[kAtOnce];
    for (int g = 0; g < kAtOnce; g++) {
      const int m = m0 + g < turns.count ? m0 + g : m0;
      step_re[g] = turns.cos_lanes[m];
      step_im[g] = -turns.sin_lanes[m];
      lanes[g] = lane_phases(turns, m);
    }
    for (ptrdiff_t begin = 0; begin < length; begin += kRestart * kLanes) {
      const ptrdiff_t end = length < begin + kRestart * kLanes ? length : begin + kRestart * kLanes;
      vec a[kAtOnce], b[kAtOnce];  // the terms of the sum at this vector of counts
      for (int g = 0; g < kAtOnce; g++) {
        a[g] = b[g] = vec{};
        if (m0 + g >= turns.count) continue;
        const Phase p = first_phase(turns, m0 + g, begin);
        const double x = re[m0 + g] * p.re - im[m0 + g] * p.im, y = re[m0 + g] * p.im + im[m0 + g] * p.re;
        a[g] = lanes[g].re * x - lanes[g].im * y;
        b[g] = lanes[g].re * y + lanes[g].im * x;
      }
      for (ptrdiff_t k = begin; k < end; k += kLanes) {
        const vec sum = (a[0] + a[1]) + (a[2] + a[3]);
#pragma GCC unroll 4
        for (int g = 0; g < kAtOnce; g++) {
          const vec turned = a[g] * step_re[g] - b[g] * step_im[g];
          b[g] = a[g] * step_im[g] + b[g] * step_re[g];
          a[g] = turned;
        }
        if (k + kLanes <= end)
          store(out + k, m0 ? load(out + k) + sum : sum);
        else
          for (int l = 0; k + l < end; l++) out[k + l] = m0 ? out[k + l] + sum[l] : sum[l];
      }
    }
  }
}

void multiply_factors(const double* p, ptrdiff_t count, const double* cos_w, const double* sin_w, int count_w,
                      double* re, double* im) {
  for (int m = 0; m < count_w; m += kLanes) {
    const vec c = load(cos_w + m), s = load(sin_w + m);
    vec a = load(re + m), b = load(im + m);
    for (ptrdiff_t i = 0; i < count; i++) {
      const vec x = (1.0 - p[i]) + p[i] * c, y = p[i] * s;
      const vec next = a * x - b * y;
      b = a * y + b * x;
      a = next;
    }
    store(re + m, a);
    store(im + m, b);
  }
}

void leave_one_out(const double* p, const double* q, int count, const double* re, const double* im,
                   const double* error, const double* cos_w, const double* sin_w, int count_w, double* off, double* on,
                   double* out_error, double* slope) {
  const auto at_nodes = [&]<bool with_slope>(int j) {
    const vec pj = load(p + j), qj = load(q + j);
    LeaveOneOut<with_slope> sum;
    vec err = vec{};
    for (int m = 0; m < count_w; m++) {
      const vec inverse = sum.add(pj, qj, cos_w[m], sin_w[m], re[m], im[m]);
      err += error[m] * (0.5 + 0.5 * inverse);  // 1 / |.| <= (1 + 1 / |.|^2) / 2 needs no root
    }
    store(off + j, sum.off);
    store(on + j, sum.on);
    store(out_error + j, err);
    if constexpr (with_slope) store(slope + j, sum.slope_off / sum.off - sum.slope_on / sum.on);
  };
  for (int j = 0; j < count; j += kLanes)
    if (slope) at_nodes.template operator()<true>(j);
    else at_nodes.template operator()<false>(j);
}

void exp_table(const double* log_f, ptrdiff_t length, double slope, double first, double base, double scale,
               double* out) {
  vec ramp;
  for (int l = 0; l < kLanes; l++) ramp[l] = first + l;
  for (ptrdiff_t k = 0; k < length; k += kLanes, ramp += (double)kLanes) {
    const vec x = load_up_to(log_f + k, length - k, -__builtin_inf());
    store(out + k, exp((x - base) - slope * ramp - scale));
  }
}

double max_table(const double* log_f, ptrdiff_t length, double slope, double first) {
  const double low = -__builtin_inf();
  vec ramp, best = splat(low);
  for (int l = 0; l < kLanes; l++) ramp[l] = first + l;
  for (ptrdiff_t k = 0; k < length; k += kLanes, ramp += (double)kLanes) {
    const vec x = load_up_to(log_f + k, length - k, low) - slope * ramp;
    best = max(best, x);
  }
  return max_lanes(best);
}

#define TT_FLAT_KERNELS(EACH) \
  EACH(chebyshev_sums) EACH(small_deviation_sums) EACH(multiply_factors) EACH(transform) EACH(inverse) \
  EACH(leave_one_out) EACH(mixture_answers) EACH(marginals_plain) EACH(messages_plain) EACH(tilted_moments) \
  EACH(exp_table) EACH(max_table) EACH(direct_scratch) EACH(direct) EACH(single_scratch) EACH(single) \
  EACH(single_pmf) EACH(messages_from_ratio) EACH(power_sums) EACH(power_answers) \
  EACH(chain_scratch) EACH(chain) EACH(tangent_direct_scratch) EACH(tangent_direct) EACH(weighted_sums) \
  EACH(weighted_powers) EACH(tangent_apply) EACH(tangent_apply_plain)

TT_KERNEL_TABLE(FlatKernels, flat_kernels, TT_FLAT_KERNELS)

}  // namespace tallytree::TT_LEVEL
