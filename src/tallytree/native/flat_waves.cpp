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

// e^{-i w lane}, and the rotation by a whole vector.
struct Offsets {
  vec re, im;
  double step_re, step_im;
};

// The rotors of a few frequencies at once: that hides the latency of a rotation. Missing ones stand still.
constexpr int kAtOnce = 4;

struct Rotors {
  const Turns& turns;
  int m0;
  Offsets offsets[kAtOnce];

  Rotors(const Turns& t, int first) : turns(t), m0(first) {
    for (int g = 0; g < kAtOnce; g++) {
      const bool there = m0 + g < t.count;
      Offsets& o = offsets[g];
      const double c = there ? t.cos_w[m0 + g] : 1.0, s = there ? -t.sin_w[m0 + g] : 0.0;
      double re = 1, im = 0;
      for (int l = 0; l < kLanes; l++) {
        o.re[l] = re;
        o.im[l] = im;
        const double turned = re * c - im * s;
        im = re * s + im * c;
        re = turned;
      }
      o.step_re = there ? t.cos_lanes[m0 + g] : 1.0;
      o.step_im = there ? -t.sin_lanes[m0 + g] : 0.0;
    }
  }
  // At the count `first + begin`.
  void start(ptrdiff_t begin, Rotor* r) const {
    for (int g = 0; g < kAtOnce; g++) {
      const int m = m0 + g;
      double c = 1, s = 0;
      if (m < turns.count && begin == 0) {
        c = turns.cos_first[m];
        s = -turns.sin_first[m];
      } else if (m < turns.count) {
        const double angle = turns.w[m] * (turns.first + (double)begin);
        c = std::cos(angle);
        s = -std::sin(angle);
      }
      const Offsets& o = offsets[g];
      r[g] = {o.re * c - o.im * s, o.re * s + o.im * c, o.step_re, o.step_im};
    }
  }
};

}  // namespace

void transform(const Turns& turns, const double* f, ptrdiff_t length, double* re, double* im) {
  const ptrdiff_t vectors = (length + kLanes - 1) / kLanes;
  for (int m0 = 0; m0 < turns.count; m0 += kAtOnce) {
    const Rotors rotors(turns, m0);
    vec sum_re[kAtOnce], sum_im[kAtOnce];
    for (int g = 0; g < kAtOnce; g++) sum_re[g] = sum_im[g] = vec{};
    for (ptrdiff_t begin = 0; begin < vectors; begin += kRestart) {
      const ptrdiff_t end = vectors < begin + kRestart ? vectors : begin + kRestart;
      Rotor r[kAtOnce];
      rotors.start(begin * kLanes, r);
      vec part_re[kAtOnce], part_im[kAtOnce];
      for (int g = 0; g < kAtOnce; g++) part_re[g] = part_im[g] = vec{};
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
    for (int g = 0; g < kAtOnce && m0 + g < turns.count; g++) {
      re[m0 + g] = sum_lanes(sum_re[g]);
      im[m0 + g] = sum_lanes(sum_im[g]);
    }
  }
}

void inverse(const Turns& turns, const double* re, const double* im, ptrdiff_t length, double* out) {
  for (int m0 = 0; m0 < turns.count; m0 += kAtOnce) {
    const Rotors rotors(turns, m0);
    double a[kAtOnce], b[kAtOnce];
    for (int g = 0; g < kAtOnce; g++) {
      a[g] = m0 + g < turns.count ? re[m0 + g] : 0.0;
      b[g] = m0 + g < turns.count ? im[m0 + g] : 0.0;
    }
    for (ptrdiff_t begin = 0; begin < length; begin += kRestart * kLanes) {
      const ptrdiff_t end = length < begin + kRestart * kLanes ? length : begin + kRestart * kLanes;
      Rotor r[kAtOnce];
      rotors.start(begin, r);
      for (ptrdiff_t k = begin; k < end; k += kLanes) {
        vec sum = vec{};
#pragma GCC unroll 4
        for (int g = 0; g < kAtOnce; g++) {
          sum += r[g].re * a[g] - r[g].im * b[g];
          r[g].advance();
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
