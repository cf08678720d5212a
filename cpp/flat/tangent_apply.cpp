// Pass 2 of a flat model's tangent: series become derivatives of the marginals.
//
// In a piece with share W the log-odds of variable i are T = t_i + log r(t_i); with m = sigmoid(T) the derivative is
//   W (m d log W + m (1 - m) ((v_i - shift) (1 + slope(t_i)) + change(t_i))),
// where `shift` is the part of the direction that moves all variables alike and is counted in the table.
#include "flat/series.hpp"
#include "flat/kernels.hpp"

namespace tallytree::TT_LEVEL {

void tangent_node(const WavesView& waves, double p, double q, NodeSums* out);

namespace {

constexpr int kAtOnce = 4;  // vectors under way: they hide the latency of Clenshaw's recurrence

// What one piece says of a vector of leaves; `change` has one entry per direction.
void piece_at(const TangentPieceView& piece, int directions, vec nu, vec* marginal, vec* slope, vec* change) {
  const vec t = nu + piece.tilt;
  const Deviation d = deviation(t);
  vec log_ratio = series_at(piece.log_ratio, piece.terms, piece.split, d);
  *slope = series_at(piece.slope, piece.terms, piece.split, d);
  const int halves = piece.split ? 2 : 1;
  for (int r = 0; r < directions; r++) {
    const double* series = piece.change + (ptrdiff_t)r * halves * piece.terms;
    change[r] = series_at(series, piece.terms, piece.split, d);
  }
  for (int l = 0; piece.split && l < kLanes; l++) {
    if (d.delta[l] < 2 * kLargeDeviation) continue;
    const double half = 0.5 * d.delta[l], p = d.sign[l] < 0 ? half : 1 - half;
    double off[kMaxDirections], on[kMaxDirections], error[kMaxDirections];
    NodeSums sums = {0, 0, 0, 0, off, on, error};
    tangent_node(piece.waves, p, 1 - p, &sums);
    log_ratio[l] = __builtin_log(sums.on / sums.off);
    (*slope)[l] = sums.slope;
    for (int r = 0; r < directions; r++) change[r][l] = on[r] / sums.on - off[r] / sums.off;
  }
  const vec odds = t + log_ratio, e = exp(-abs(odds));
  *marginal = (odds < 0.0 ? e : splat(1.0)) / (1.0 + e);
}

}  // namespace

void tangent_node(const WavesView& w, double p, double q, NodeSums* out) {
  vec off = vec{}, on = vec{}, slope_off = vec{}, slope_on = vec{}, error = vec{};
  for (int m = 0; m < w.padded; m += kLanes) {
    const vec c = load(w.cos_w + m), s = load(w.sin_w + m), re = load(w.re + m), im = load(w.im + m);
    const vec x = q + p * c, y = p * s, inv = 1.0 / (x * x + y * y);
    const vec gr = (re * x + im * y) * inv, gi = (im * x - re * y) * inv;  // G / (q + p e^{iw})
    // kappa = p q (e^{iw} - 1) / (q + p e^{iw})
    const vec kr = (p * q) * ((c - 1.0) * x + s * y) * inv, ki = (p * q) * (s * x - (c - 1.0) * y) * inv;
    const vec lr = gr * kr - gi * ki, li = gr * ki + gi * kr;
    off += gr;
    on += gr * c - gi * s;
    slope_off += lr;
    slope_on += lr * c - li * s;
    error += load(w.error + m) * (0.5 + 0.5 * inv);
  }
  out->off = sum_lanes(off);
  out->on = sum_lanes(on);
  out->slope = sum_lanes(slope_off) / out->off - sum_lanes(slope_on) / out->on;
  out->error = sum_lanes(error);
  for (int r = 0; r < w.directions; r++) {
    const double *from_re = w.change_re + (ptrdiff_t)r * w.padded, *from_im = w.change_im + (ptrdiff_t)r * w.padded;
    const double* from_error = w.change_error + (ptrdiff_t)r * w.padded;
    off = on = error = vec{};
    for (int m = 0; m < w.padded; m += kLanes) {
      const vec c = load(w.cos_w + m), s = load(w.sin_w + m), re = load(from_re + m), im = load(from_im + m);
      const vec x = q + p * c, y = p * s, inv = 1.0 / (x * x + y * y);
      const vec gr = (re * x + im * y) * inv, gi = (im * x - re * y) * inv;
      off += gr;
      on += gr * c - gi * s;
      error += load(from_error + m) * (0.5 + 0.5 * inv);
    }
    out->change_off[r] = sum_lanes(off);
    out->change_on[r] = sum_lanes(on);
    out->change_error[r] = sum_lanes(error);
  }
}

void tangent_apply(const double* nu, ptrdiff_t n, const double* v, ptrdiff_t stride, const TangentView& view,
                   double* out, ptrdiff_t out_stride) {
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    const vec x = load_up_to(nu + i, n - i, 0.0);
    vec total[kMaxDirections], change[kMaxDirections], marginal, slope;
    for (int r = 0; r < view.directions; r++) total[r] = splat(view.share_on * view.drift_on[r]);
    for (int j = 0; j < view.pieces; j++) {
      const TangentPieceView& piece = view.piece[j];
      piece_at(piece, view.directions, x, &marginal, &slope, change);
      const vec spread = marginal * (1.0 - marginal);
      for (int r = 0; r < view.directions; r++) {
        const vec own = (load_up_to(v + r * stride + i, n - i, 0.0) - piece.shift[r]) * (1.0 + slope) + change[r];
        total[r] += piece.share * (marginal * piece.drift[r] + spread * own);
      }
    }
    for (int r = 0; r < view.directions; r++) store_up_to(out + r * out_stride + i, total[r], n - i);
  }
}

void tangent_apply_plain(const double* nu, ptrdiff_t n, const double* v, ptrdiff_t stride,
                         const TangentPieceView& piece, int directions, double* out, ptrdiff_t out_stride) {
  for (ptrdiff_t i = 0; i < n; i += kAtOnce * kLanes) {
    vec t[kAtOnce], x[kAtOnce], log_ratio[kAtOnce], slope[kAtOnce], change[kAtOnce], spread[kAtOnce];
    for (int g = 0; g < kAtOnce; g++) {
      const ptrdiff_t at = i + g * kLanes < n ? i + g * kLanes : 0;
      t[g] = load_up_to(nu + at, n - at, 0.0) + piece.tilt;
      const Deviation d = deviation(t[g]);
      x[g] = d.sign * (1.0 - d.delta);
    }
    clenshaw<kAtOnce>(piece.log_ratio, piece.terms, x, log_ratio);
    clenshaw<kAtOnce>(piece.slope, piece.terms, x, slope);
    for (int g = 0; g < kAtOnce; g++) {
      const vec e = exp(-abs(t[g] + log_ratio[g])), inverse = 1.0 / (1.0 + e);
      spread[g] = (e * inverse) * inverse;
    }
    for (int k = 0; k < directions; k++) {
      clenshaw<kAtOnce>(piece.change + (ptrdiff_t)k * piece.terms, piece.terms, x, change);
      for (int g = 0; g < kAtOnce; g++) {
        const ptrdiff_t at = i + g * kLanes;
        if (at >= n) break;
        const vec own = (load_up_to(v + k * stride + at, n - at, 0.0) - piece.shift[k]) * (1.0 + slope[g]) + change[g];
        store_up_to(out + k * out_stride + at, spread[g] * own, n - at);
      }
    }
  }
}

}  // namespace tallytree::TT_LEVEL
