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
#include "base/worker.hpp"
#include "base/simd_rows.hpp"

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

// A block is split by twiddle factors that its parts are multiplied with first, and merged again (`back`) by their conjugates
// at the end.
template <bool back>
static inline Complex before(Complex x, vec c, vec s) {
  return back ? x : times(x, c, s);
}
template <bool back>
static inline Complex after(Complex x, vec c, vec s) {
  return back ? times_conjugate(x, c, s) : x;
}

// One block: `step` doubles from one part to the next, in place. Radix 2, 3 or 4.
template <class Twiddle, bool back>
static inline void radix2(double* re, double* im, int step, const double* w) {
  const vec c = Twiddle::get(w), s = Twiddle::get(w + Twiddle::width);
  for (int j = 0; j < step; j += kLanes) {
    const Complex a = get(re, im, j), b = before<back>(get(re, im, j + step), c, s);
    put(re, im, j, a + b);
    put(re, im, j + step, after<back>(a - b, c, s));
  }
}

constexpr double kSin60 = 0.86602540378443864676;

template <class Twiddle, bool back>
static inline void radix3(double* re, double* im, int step, const double* w) {
  constexpr int k = Twiddle::width;
  const vec c1 = Twiddle::get(w), s1 = Twiddle::get(w + k), c2 = Twiddle::get(w + 2 * k), s2 = Twiddle::get(w + 3 * k);
  for (int j = 0; j < step; j += kLanes) {
    const Complex a = get(re, im, j), b = before<back>(get(re, im, j + step), c1, s1);
    const Complex c = before<back>(get(re, im, j + 2 * step), c2, s2);
    const Complex sum = b + c, difference = times_i(b - c);
    const Complex middle = {a.re - 0.5 * sum.re, a.im - 0.5 * sum.im};
    const Complex turn = {difference.re * kSin60, difference.im * kSin60};
    put(re, im, j, a + sum);
    put(re, im, j + step, after<back>(back ? middle - turn : middle + turn, c1, s1));
    put(re, im, j + 2 * step, after<back>(back ? middle + turn : middle - turn, c2, s2));
  }
}

template <class Twiddle, bool back>
static inline void radix4(double* re, double* im, int step, const double* w) {
  constexpr int k = Twiddle::width;
  const vec c1 = Twiddle::get(w), s1 = Twiddle::get(w + k), c2 = Twiddle::get(w + 2 * k), s2 = Twiddle::get(w + 3 * k);
  const vec c3 = Twiddle::get(w + 4 * k), s3 = Twiddle::get(w + 5 * k);
  for (int j = 0; j < step; j += kLanes) {
    const Complex a = get(re, im, j), b = before<back>(get(re, im, j + step), c1, s1);
    const Complex c = before<back>(get(re, im, j + 2 * step), c2, s2), d = before<back>(get(re, im, j + 3 * step), c3, s3);
    const Complex even = a + c, odd = a - c, sum = b + d, turn = times_i(b - d);
    put(re, im, j, even + sum);
    put(re, im, j + step, after<back>(back ? odd - turn : odd + turn, c1, s1));
    put(re, im, j + 2 * step, after<back>(even - sum, c2, s2));
    put(re, im, j + 3 * step, after<back>(back ? odd + turn : odd - turn, c3, s3));
  }
}

// All blocks of one stage, whose blocks have `width` doubles per complex number and part.
template <class Twiddle, bool back>
static inline void all_blocks(double* re, double* im, const FftStage& stage, const double* twiddles) {
  const int radix = stage.radix, length = stage.length * Twiddle::width, step = length / radix;
  const double* w = twiddles + stage.twiddles * Twiddle::width;
  for (int b = 0; b < stage.blocks; b++, re += length, im += length, w += 2 * (radix - 1) * Twiddle::width) {
    if (radix == 4) radix4<Twiddle, back>(re, im, step, w);
    else if (radix == 2) radix2<Twiddle, back>(re, im, step, w);
    else radix3<Twiddle, back>(re, im, step, w);
  }
}

// to[j * kLanes + b] = from[b * q + j]: block b moves into lane b. And back. q is a multiple of kLanes.
template <bool back>
static inline void blocks_to_lanes(const double* from, int q, double* to) {
  const auto in_block = [&](int b, int j) { return (ptrdiff_t)b * q + j; };
  const auto in_lanes = [&](int b, int j) { return (ptrdiff_t)(j + b) * kLanes; };
  for (int j = 0; j < q; j += kLanes) {
    vec x[kLanes];
    for (int b = 0; b < kLanes; b++) x[b] = load(from + (back ? in_lanes(b, j) : in_block(b, j)));
    transpose(x);
    for (int b = 0; b < kLanes; b++) store(to + (back ? in_block(b, j) : in_lanes(b, j)), x[b]);
  }
}

// Spectrum of the N reals in x (destroyed), in an order of its own; spectrum holds N doubles and is not x.
static inline void fft_forward(double* x, double* spectrum, const FftPlan& plan) {
  const int M = plan.length / 2, q = M / kLanes;
  for (int s = 0; s < plan.outer_stages; s++) all_blocks<Broadcast, false>(x, x + M, plan.outer[s], plan.outer_twiddles);
  blocks_to_lanes<false>(x, q, spectrum);
  blocks_to_lanes<false>(x + M, q, spectrum + M);
  for (int s = 0; s < plan.inner_stages; s++)
    all_blocks<PerLane, false>(spectrum, spectrum + M, plan.inner[s], plan.inner_twiddles);
}

// The inverse, times M = N/2: spectrum (destroyed) to the N reals in x.
static inline void fft_backward(double* spectrum, double* x, const FftPlan& plan) {
  const int M = plan.length / 2, q = M / kLanes;
  for (int s = plan.inner_stages; s-- > 0;)
    all_blocks<PerLane, true>(spectrum, spectrum + M, plan.inner[s], plan.inner_twiddles);
  blocks_to_lanes<true>(spectrum, q, x);
  blocks_to_lanes<true>(spectrum + M, q, x + M);
  for (int s = plan.outer_stages; s-- > 0;) all_blocks<Broadcast, true>(x, x + M, plan.outer[s], plan.outer_twiddles);
}

// out = a b / M (a product of polynomials) or a conj(b) / M (a correlation), the factor undoing fft_backward's; or `out` gains
// it.
template <bool conjugate, bool add = false>
static inline void multiply_spectra(const double* a, const double* b, int N, double* out) {
  const int M = N / 2;
  const vec factor = splat(1.0 / M);
  for (int j = 0; j < M; j += kLanes) {
    const Complex x = get(a, a + M, j), y = get(b, b + M, j);
    Complex product = conjugate ? times_conjugate(x, y.re * factor, y.im * factor)
                                : times(x, y.re * factor, y.im * factor);
    if (add) product = get(out, out + M, j) + product;
    put(out, out + M, j, product);
  }
}

}  // namespace tallytree::TT_LEVEL
