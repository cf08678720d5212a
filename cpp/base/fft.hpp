// Real convolution by a negacyclic FFT, one transform across the SIMD lanes.
//
// A real vector x of length N, as a polynomial modulo t^N + 1, is the complex vector x_j + i x_{j+M} modulo t^M - i,
// M = N/2: no packing or unpacking of conjugate halves. A block of m coefficients modulo t^m - e^{ia} splits, radix R,
// into R blocks of m/R modulo t^{m/R} - e^{i(a + 2 pi q)/R}: twiddle factors are constant within a block, and since a
// product of spectra does not care about their order, nothing is ever reversed or shuffled.
//
// The first split is into kLanes blocks; a transpose then gives each block a lane of its own, and all later splits
// are full-vector arithmetic with one twiddle factor per lane.
#pragma once
#include "base/exponent.hpp"
#include "base/fft_plan.hpp"
#include "base/transpose.hpp"

namespace tallytree::TT_LEVEL {

struct Complex {
  vec re, im;
};
static inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
static inline Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
static inline Complex times(Complex a, vec c, vec s) { return {a.re * c - a.im * s, a.re * s + a.im * c}; }
static inline Complex times_conjugate(Complex a, vec c, vec s) { return {a.re * c + a.im * s, a.im * c - a.re * s}; }
static inline Complex times_i(Complex a) { return {-a.im, a.re}; }

// Twiddle factors come one per block (a double to broadcast) or one per lane and block (a vector).
struct Broadcast {
  static constexpr int width = 1;
  static vec get(const double* p) { return splat(*p); }
};
struct PerLane {
  static constexpr int width = kLanes;
  static vec get(const double* p) { return load(p); }
};

static inline Complex get(const double* re, const double* im, int j) { return {load(re + j), load(im + j)}; }
static inline void put(double* re, double* im, int j, Complex x) {
  store(re + j, x.re);
  store(im + j, x.im);
}

// One block: `step` doubles from one part to the next, in place. Radix 2, 3 or 4.
template <class Twiddle>
static inline void split2(double* re, double* im, int step, const double* w) {
  const vec c = Twiddle::get(w), s = Twiddle::get(w + Twiddle::width);
  for (int j = 0; j < step; j += kLanes) {
    const Complex a = get(re, im, j), b = times(get(re, im, j + step), c, s);
    put(re, im, j, a + b);
    put(re, im, j + step, a - b);
  }
}
template <class Twiddle>
static inline void merge2(double* re, double* im, int step, const double* w) {
  const vec c = Twiddle::get(w), s = Twiddle::get(w + Twiddle::width);
  for (int j = 0; j < step; j += kLanes) {
    const Complex a = get(re, im, j), b = get(re, im, j + step);
    put(re, im, j, a + b);
    put(re, im, j + step, times_conjugate(a - b, c, s));
  }
}

constexpr double kSin60 = 0.86602540378443864676;

template <class Twiddle>
static inline void split3(double* re, double* im, int step, const double* w) {
  constexpr int k = Twiddle::width;
  const vec c1 = Twiddle::get(w), s1 = Twiddle::get(w + k), c2 = Twiddle::get(w + 2 * k), s2 = Twiddle::get(w + 3 * k);
  for (int j = 0; j < step; j += kLanes) {
    const Complex a = get(re, im, j);
    const Complex b = times(get(re, im, j + step), c1, s1), c = times(get(re, im, j + 2 * step), c2, s2);
    const Complex sum = b + c, difference = times_i(b - c);
    const Complex middle = {a.re - 0.5 * sum.re, a.im - 0.5 * sum.im};
    const Complex turn = {difference.re * kSin60, difference.im * kSin60};
    put(re, im, j, a + sum);
    put(re, im, j + step, middle + turn);
    put(re, im, j + 2 * step, middle - turn);
  }
}
template <class Twiddle>
static inline void merge3(double* re, double* im, int step, const double* w) {
  constexpr int k = Twiddle::width;
  const vec c1 = Twiddle::get(w), s1 = Twiddle::get(w + k), c2 = Twiddle::get(w + 2 * k), s2 = Twiddle::get(w + 3 * k);
  for (int j = 0; j < step; j += kLanes) {
    const Complex a = get(re, im, j), b = get(re, im, j + step), c = get(re, im, j + 2 * step);
    const Complex sum = b + c, difference = times_i(b - c);
    const Complex middle = {a.re - 0.5 * sum.re, a.im - 0.5 * sum.im};
    const Complex turn = {difference.re * kSin60, difference.im * kSin60};
    put(re, im, j, a + sum);
    put(re, im, j + step, times_conjugate(middle - turn, c1, s1));
    put(re, im, j + 2 * step, times_conjugate(middle + turn, c2, s2));
  }
}

template <class Twiddle>
static inline void split4(double* re, double* im, int step, const double* w) {
  constexpr int k = Twiddle::width;
  const vec c1 = Twiddle::get(w), s1 = Twiddle::get(w + k), c2 = Twiddle::get(w + 2 * k), s2 = Twiddle::get(w + 3 * k);
  const vec c3 = Twiddle::get(w + 4 * k), s3 = Twiddle::get(w + 5 * k);
  for (int j = 0; j < step; j += kLanes) {
    const Complex a = get(re, im, j), b = times(get(re, im, j + step), c1, s1);
    const Complex c = times(get(re, im, j + 2 * step), c2, s2), d = times(get(re, im, j + 3 * step), c3, s3);
    const Complex even = a + c, odd = a - c, sum = b + d, turn = times_i(b - d);
    put(re, im, j, even + sum);
    put(re, im, j + step, odd + turn);
    put(re, im, j + 2 * step, even - sum);
    put(re, im, j + 3 * step, odd - turn);
  }
}
template <class Twiddle>
static inline void merge4(double* re, double* im, int step, const double* w) {
  constexpr int k = Twiddle::width;
  const vec c1 = Twiddle::get(w), s1 = Twiddle::get(w + k), c2 = Twiddle::get(w + 2 * k), s2 = Twiddle::get(w + 3 * k);
  const vec c3 = Twiddle::get(w + 4 * k), s3 = Twiddle::get(w + 5 * k);
  for (int j = 0; j < step; j += kLanes) {
    const Complex a = get(re, im, j), b = get(re, im, j + step);
    const Complex c = get(re, im, j + 2 * step), d = get(re, im, j + 3 * step);
    const Complex even = a + c, odd = a - c, sum = b + d, turn = times_i(b - d);
    put(re, im, j, even + sum);
    put(re, im, j + step, times_conjugate(odd - turn, c1, s1));
    put(re, im, j + 2 * step, times_conjugate(even - sum, c2, s2));
    put(re, im, j + 3 * step, times_conjugate(odd + turn, c3, s3));
  }
}

// All blocks of one stage. `length` is the block length in doubles per part (lanes included).
template <class Twiddle>
static inline void split_stage(double* re, double* im, int radix, int length, int blocks, const double* w) {
  const int step = length / radix;
  for (int b = 0; b < blocks; b++, re += length, im += length, w += 2 * (radix - 1) * Twiddle::width) {
    if (radix == 4) split4<Twiddle>(re, im, step, w);
    else if (radix == 2) split2<Twiddle>(re, im, step, w);
    else split3<Twiddle>(re, im, step, w);
  }
}
template <class Twiddle>
static inline void merge_stage(double* re, double* im, int radix, int length, int blocks, const double* w) {
  const int step = length / radix;
  for (int b = 0; b < blocks; b++, re += length, im += length, w += 2 * (radix - 1) * Twiddle::width) {
    if (radix == 4) merge4<Twiddle>(re, im, step, w);
    else if (radix == 2) merge2<Twiddle>(re, im, step, w);
    else merge3<Twiddle>(re, im, step, w);
  }
}

// to[j * kLanes + b] = from[b * q + j]: block b moves into lane b. And back. q is a multiple of kLanes.
static inline void blocks_to_lanes(const double* from, int q, double* to) {
  for (int j = 0; j < q; j += kLanes) {
    vec x[kLanes];
    for (int b = 0; b < kLanes; b++) x[b] = load(from + (ptrdiff_t)b * q + j);
    transpose(x);
    for (int b = 0; b < kLanes; b++) store(to + (ptrdiff_t)(j + b) * kLanes, x[b]);
  }
}
static inline void lanes_to_blocks(const double* from, int q, double* to) {
  for (int j = 0; j < q; j += kLanes) {
    vec x[kLanes];
    for (int b = 0; b < kLanes; b++) x[b] = load(from + (ptrdiff_t)(j + b) * kLanes);
    transpose(x);
    for (int b = 0; b < kLanes; b++) store(to + (ptrdiff_t)b * q + j, x[b]);
  }
}

// Spectrum of the N reals in x (destroyed), in an order of its own; spectrum holds N doubles and is not x.
static inline void fft_forward(double* x, double* spectrum, const FftPlan& plan) {
  const int M = plan.length / 2, q = M / kLanes;
  for (int s = 0; s < plan.outer_stages; s++) {
    const FftStage& stage = plan.outer[s];
    split_stage<Broadcast>(x, x + M, stage.radix, stage.length, stage.blocks, plan.outer_twiddles + stage.twiddles);
  }
  blocks_to_lanes(x, q, spectrum);
  blocks_to_lanes(x + M, q, spectrum + M);
  for (int s = 0; s < plan.inner_stages; s++) {
    const FftStage& stage = plan.inner[s];
    split_stage<PerLane>(spectrum, spectrum + M, stage.radix, stage.length * kLanes, stage.blocks,
                         plan.inner_twiddles + stage.twiddles * kLanes);
  }
}

// The inverse, times M = N/2: spectrum (destroyed) to the N reals in x.
static inline void fft_backward(double* spectrum, double* x, const FftPlan& plan) {
  const int M = plan.length / 2, q = M / kLanes;
  for (int s = plan.inner_stages; s-- > 0;) {
    const FftStage& stage = plan.inner[s];
    merge_stage<PerLane>(spectrum, spectrum + M, stage.radix, stage.length * kLanes, stage.blocks,
                         plan.inner_twiddles + stage.twiddles * kLanes);
  }
  lanes_to_blocks(spectrum, q, x);
  lanes_to_blocks(spectrum + M, q, x + M);
  for (int s = plan.outer_stages; s-- > 0;) {
    const FftStage& stage = plan.outer[s];
    merge_stage<Broadcast>(x, x + M, stage.radix, stage.length, stage.blocks, plan.outer_twiddles + stage.twiddles);
  }
}

// out = a b / M (a product of polynomials) or a conj(b) / M (a correlation), the factor undoing fft_backward's.
static inline void multiply_spectra(const double* a, const double* b, int N, double* out) {
  const int M = N / 2;
  const vec factor = splat(1.0 / M);
  for (int j = 0; j < M; j += kLanes) {
    const Complex y = get(b, b + M, j);
    put(out, out + M, j, times(get(a, a + M, j), y.re * factor, y.im * factor));
  }
}
static inline void multiply_by_conjugate(const double* a, const double* b, int N, double* out) {
  const int M = N / 2;
  const vec factor = splat(1.0 / M);
  for (int j = 0; j < M; j += kLanes) {
    const Complex y = get(b, b + M, j);
    put(out, out + M, j, times_conjugate(get(a, a + M, j), y.re * factor, y.im * factor));
  }
}

}  // namespace tallytree::TT_LEVEL
