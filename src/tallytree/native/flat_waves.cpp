// Sums over frequencies: the transform of a table on a window of counts, its inverse, products of characteristic
// functions, and the two leave-one-out sums.
#include <cmath>

#include "flat_elementary.hpp"
#include "flat_kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

// e^{-i w (start + lane)} in lanes, and the rotation by one whole vector.
struct Rotor {
  vec re, im;
  double step_re, step_im;

  void advance() {
    const vec turned = re * step_re - im * step_im;
    im = re * step_im + im * step_re;
    re = turned;
  }
};

// Restarted this often: a rotation loses about half a unit in the last place.
constexpr ptrdiff_t kRestart = 64;

struct Offsets {
  vec re, im;
  double step_re, step_im;
};

Offsets lane_offsets(double w) {
  Offsets o;
  const double c = std::cos(w), s = -std::sin(w);
  double re = 1, im = 0;
  for (int l = 0; l < kLanes; l++) {
    o.re[l] = re;
    o.im[l] = im;
    const double turned = re * c - im * s;
    im = re * s + im * c;
    re = turned;
  }
  o.step_re = std::cos(w * kLanes);
  o.step_im = -std::sin(w * kLanes);
  return o;
}

Rotor start(const Offsets& o, double angle) {
  const double c = std::cos(angle), s = -std::sin(angle);
  return {o.re * c - o.im * s, o.re * s + o.im * c, o.step_re, o.step_im};
}

}  // namespace

// Several frequencies at once hide the latency of the rotation.
void transform(const double* f, ptrdiff_t length, double first, const double* w, int count_w, double* re, double* im) {
  constexpr int kAtOnce = 4;
  const ptrdiff_t vectors = (length + kLanes - 1) / kLanes;
  for (int m0 = 0; m0 < count_w; m0 += kAtOnce) {
    const int here = count_w - m0 < kAtOnce ? count_w - m0 : kAtOnce;
    Offsets offsets[kAtOnce];
    vec sum_re[kAtOnce], sum_im[kAtOnce];
    for (int g = 0; g < kAtOnce; g++) {
      offsets[g] = lane_offsets(g < here ? w[m0 + g] : 0.0);
      sum_re[g] = sum_im[g] = vec{};
    }
    for (ptrdiff_t begin = 0; begin < vectors; begin += kRestart) {
      const ptrdiff_t end = vectors < begin + kRestart ? vectors : begin + kRestart;
      Rotor r[kAtOnce];
      vec part_re[kAtOnce], part_im[kAtOnce];
      for (int g = 0; g < kAtOnce; g++) {
        r[g] = start(offsets[g], g < here ? w[m0 + g] * (first + (double)(begin * kLanes)) : 0.0);
        part_re[g] = part_im[g] = vec{};
      }
      for (ptrdiff_t v = begin; v < end; v++) {
        const vec x = load(f + v * kLanes);
#pragma GCC unroll 4
        for (int g = 0; g < kAtOnce; g++) {
          part_re[g] += x * r[g].re;
          part_im[g] += x * r[g].im;
          r[g].advance();
        }
      }
      for (int g = 0; g < kAtOnce; g++) {
        sum_re[g] += part_re[g];
        sum_im[g] += part_im[g];
      }
    }
    for (int g = 0; g < here; g++) {
      re[m0 + g] = sum_lanes(sum_re[g]);
      im[m0 + g] = sum_lanes(sum_im[g]);
    }
  }
}

void inverse(const double* re, const double* im, const double* w, int count_w, double first, ptrdiff_t length,
             double* out) {
  for (ptrdiff_t k = 0; k < length; k++) out[k] = 0;
  for (int m = 0; m < count_w; m++) {
    const Offsets offsets = lane_offsets(w[m]);
    for (ptrdiff_t begin = 0; begin < length; begin += kRestart * kLanes) {
      Rotor r = start(offsets, w[m] * (first + (double)begin));
      const ptrdiff_t end = length < begin + kRestart * kLanes ? length : begin + kRestart * kLanes;
      for (ptrdiff_t k = begin; k < end; k += kLanes) {
        const vec term = r.re * re[m] - r.im * im[m];
        if (k + kLanes <= end)
          store(out + k, load(out + k) + term);
        else
          for (int l = 0; k + l < end; l++) out[k + l] += term[l];
        r.advance();
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
                   double* out_error) {
  for (int j = 0; j < count; j += kLanes) {
    const vec pj = load(p + j), qj = load(q + j);
    vec d0 = vec{}, d1 = vec{}, err = vec{};
    for (int m = 0; m < count_w; m++) {
      const vec x = qj + pj * cos_w[m], y = pj * sin_w[m];
      const vec inv = 1.0 / (x * x + y * y);
      // G / (x + i y)
      const vec gr = (re[m] * x + im[m] * y) * inv, gi = (im[m] * x - re[m] * y) * inv;
      d0 += gr;
      d1 += gr * cos_w[m] - gi * sin_w[m];
      // 1 / |x + i y| <= (1 + 1 / |.|^2) / 2 needs no root
      err += error[m] * (0.5 + 0.5 * inv);
    }
    store(off + j, d0);
    store(on + j, d1);
    store(out_error + j, err);
  }
}

void exp_table(const double* log_f, ptrdiff_t length, double slope, double first, double scale, double* out) {
  vec ramp;
  for (int l = 0; l < kLanes; l++) ramp[l] = first + l;
  for (ptrdiff_t k = 0; k < length; k += kLanes, ramp += (double)kLanes) {
    const vec x = k + kLanes <= length ? load(log_f + k) : load_part(log_f + k, length - k, -__builtin_inf());
    store(out + k, exp(x - slope * ramp - scale));
  }
}

double max_table(const double* log_f, ptrdiff_t length, double slope, double first) {
  const double low = -__builtin_inf();
  vec ramp, best = splat(low);
  for (int l = 0; l < kLanes; l++) ramp[l] = first + l;
  for (ptrdiff_t k = 0; k < length; k += kLanes, ramp += (double)kLanes) {
    const vec x = (k + kLanes <= length ? load(log_f + k) : load_part(log_f + k, length - k, low)) - slope * ramp;
    best = x > best ? x : best;
  }
  double top = low;
  for (int l = 0; l < kLanes; l++) top = best[l] > top ? best[l] : top;
  return top;
}

}  // namespace tallytree::TT_LEVEL
