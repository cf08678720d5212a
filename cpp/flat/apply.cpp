// Pass 2 of the flat solver: a mixture of solved pieces becomes marginals or messages, or their derivatives, one variable at
// a time.
//
// In a piece with share W the log-odds of variable i are T = t_i + log r(t_i); with m = sigmoid(T) the derivative is
//   W (m d log W + m (1 - m) ((v_i - shift) (1 + slope(t_i)) + change(t_i))),
// where `shift` is the part of the direction that moves all variables alike and is counted in the table.
#include "base/deviation.hpp"
#include "flat/leave_one_out.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr int kAtOnce = 4;  // vectors under way: they hide the latency of Clenshaw's recurrence

// Chebyshev series of `width` vectors by Clenshaw's recurrence.
template <int width>
inline void clenshaw(const double* series, int terms, const vec* x, vec* value) {
  vec b1[width], b2[width], two_x[width];
  for (int g = 0; g < width; g++) b1[g] = b2[g] = vec{}, two_x[g] = x[g] + x[g];
  for (int j = terms - 1; j > 0; j--)
#pragma GCC unroll 4
    for (int g = 0; g < width; g++) {
      const vec b0 = two_x[g] * b1[g] + (series[j] - b2[g]);
      b2[g] = b1[g];
      b1[g] = b0;
    }
  for (int g = 0; g < width; g++) value[g] = x[g] * b1[g] + (series[0] - b2[g]);
}

// A series of a piece: in x = tanh(t / 2), or, when split, in delta on [0, 2 kLargeDeviation], one for each likely state,
// of which those are evaluated that are needed. Larger deviations are the caller's.
inline vec series_at(const double* series, int terms, bool split, const Deviation& d) {
  vec value;
  if (!split) {
    const vec x = d.sign * (1.0 - d.delta);
    clenshaw<1>(series, terms, &x, &value);
    return value;
  }
  const vec x = d.delta * (1.0 / kLargeDeviation) - 1.0;
  vec off = vec{}, on = vec{};
  bool any_on = false, any_off = false;
  for (int l = 0; l < kLanes; l++) (d.sign[l] < 0 ? any_off : any_on) = true;
  if (any_off) clenshaw<1>(series, terms, &x, &off);
  if (any_on) clenshaw<1>(series + terms, terms, &x, &on);
  return d.sign < 0.0 ? off : on;
}

// The two sides of a leaf, off and on, by their sums over frequencies, and the slope of log(on / off) in t.
struct LeafSums {
  double off, on, slope;
};

template <bool with_slope>
LeafSums sums_at(const FlatPieceView& piece, const double* wave_re, const double* wave_im, double p, double q) {
  LeaveOneOut<with_slope> sum;
  for (int m = 0; m < piece.frequencies; m += kLanes)
    sum.add(p, q, load(piece.cos_w + m), load(piece.sin_w + m), load(wave_re + m), load(wave_im + m));
  const double d0 = sum_lanes(sum.off), d1 = sum_lanes(sum.on);
  return {d0, d1, with_slope ? sum_lanes(sum.slope_off) / d0 - sum_lanes(sum.slope_on) / d1 : 0};
}

// Calls take(lane, p, q) for the leaves of a split piece whose deviations are not small.
template <class Take>
inline void over_large(const FlatPieceView& piece, const Deviation& d, const Take& take) {
  for (int l = 0; piece.split && l < kLanes; l++) {
    const double half = 0.5 * d.delta[l];
    if (d.delta[l] < 2 * kLargeDeviation) continue;
    if (d.sign[l] < 0) take(l, half, 1 - half);
    else take(l, 1 - half, half);
  }
}

vec log_ratio(const FlatPieceView& piece, const Deviation& d) {
  vec value = series_at(piece.series, piece.terms, piece.split, d);
  over_large(piece, d, [&](int l, double p, double q) {
    const LeafSums sums = sums_at<false>(piece, piece.wave_re, piece.wave_im, p, q);
    value[l] = real::log(sums.on / sums.off);
  });
  return value;
}

inline vec sigmoid(vec odds) {
  const vec e = exp(-abs(odds));
  return (odds < 0.0 ? e : splat(1.0)) / (1.0 + e);
}

// What one piece says of a vector of leaves; `change` has one entry per direction.
void piece_at(const TangentPieceView& piece, int directions, vec nu, vec* on, vec* off, vec* slope, vec* change) {
  const vec t = nu + piece.tilt;
  const Deviation d = deviation(t);
  const auto family = [&](int f) { return series_at(piece.series + f * piece.stride, piece.terms, piece.split, d); };
  vec log_ratio = family(0);
  *slope = family(1);
  for (int r = 0; r < directions; r++) change[r] = family(2 + r);
  over_large(piece, d, [&](int l, double p, double q) {
    const LeafSums sums = sums_at<true>(piece, piece.wave_re, piece.wave_im, p, q);
    log_ratio[l] = real::log(sums.on / sums.off);
    (*slope)[l] = sums.slope;
    for (int r = 0; r < directions; r++) {
      const ptrdiff_t at = (ptrdiff_t)r * piece.frequencies;
      const LeafSums moved = sums_at<false>(piece, piece.change_re + at, piece.change_im + at, p, q);
      change[r][l] = moved.on / sums.on - moved.off / sums.off;
    }
  });
  *on = sigmoid(t + log_ratio);
  *off = sigmoid(-t - log_ratio);
}

inline bool one_piece(const FlatMixtureView& mixture) {
  const double low = -__builtin_inf();
  return mixture.pieces == 1 && mixture.log_all_off == low && mixture.log_all_on == low;
}

inline vec log_sum_exp(const vec* x, int count) {
  vec top = x[0], sum = vec{};
  for (int j = 1; j < count; j++) top = max(top, x[j]);
  const vec shift = top > -__builtin_inf() ? top : vec{};
  for (int j = 0; j < count; j++) sum += exp(x[j] - shift);
  return top > -__builtin_inf() ? log(sum) + shift : top;
}

// log P(y = 1) and log P(y = 0) under the posterior: in a piece the log-odds are T = t + log r, so its shares are
// log w - softplus(-T) and log w - softplus(T); every variable off, or on, adds to one side only.
Leaf mixture_sides(const FlatMixtureView& mixture, vec nu) {
  vec on[kMaxPieces + 1], off[kMaxPieces + 1];
  const int count = mixture.pieces;
  for (int j = 0; j < count; j++) {
    const FlatPieceView& piece = mixture.piece[j];
    const vec t = nu + piece.tilt;
    const vec odds = t + log_ratio(piece, deviation(t));
    const vec norm = log1p_unit(exp(-abs(odds)));
    on[j] = piece.log_weight - (max(-odds, vec{}) + norm);
    off[j] = piece.log_weight - (max(odds, vec{}) + norm);
  }
  on[count] = splat(mixture.log_all_on);
  off[count] = splat(mixture.log_all_off);
  return {log_sum_exp(off, count + 1), log_sum_exp(on, count + 1)};
}

}  // namespace

// The tilted logits of one vector; behind the end those of the first.
static inline vec tilted_at(const double* nu, ptrdiff_t at, ptrdiff_t n, double tilt) {
  const ptrdiff_t from = at < n ? at : 0;
  return load_up_to(nu + from, n - from, 0.0) + tilt;
}

// Calls put(i, d, value) with the series at the leaves i, i + 1, ... of one vector.
template <class Put>
static inline void over_leaves(const double* nu, ptrdiff_t n, double tilt, const double* series, int terms,
                               const Put& put) {
  for (ptrdiff_t i = 0; i < n; i += kAtOnce * kLanes) {
    Deviation d[kAtOnce];
    vec x[kAtOnce], value[kAtOnce];
    for (int g = 0; g < kAtOnce; g++) {
      d[g] = deviation(tilted_at(nu, i + g * kLanes, n, tilt));
      x[g] = d[g].sign * (1.0 - d[g].delta);
    }
    clenshaw<kAtOnce>(series, terms, x, value);
    for (int g = 0; g < kAtOnce; g++) put(i + g * kLanes, d[g], value[g]);
  }
}

void marginals_plain(const double* nu, ptrdiff_t n, double tilt, const double* series, int terms, double* out) {
  over_leaves(nu, n, tilt, series, terms, [&](ptrdiff_t at, const Deviation& d, vec r) {
    // odds p r / q = r e^{+-|t|}
    const vec a = d.sign < 0.0 ? d.e * r : r, b = d.sign < 0.0 ? splat(1.0) : d.e;
    store_up_to(out + at, a / (a + b), n - at);
  });
}

void messages_plain(const double* nu, ptrdiff_t n, double tilt, const double* series, int terms, double* out) {
  over_leaves(nu, n, tilt, series, terms,
              [&](ptrdiff_t at, const Deviation&, vec log_r) { store_up_to(out + at, log_r + tilt, n - at); });
}

// Calls put(posterior log-odds, messages) for one vector of logits after the other and keeps what it returns.
template <class Put>
static inline void over_messages(const double* nu, ptrdiff_t n, const FlatMixtureView& mixture, double* out,
                                 const Put& put) {
  const bool plain = one_piece(mixture);
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    const vec x = load_up_to(nu + i, n - i, 0.0);
    vec odds, message;
    if (plain) {
      const double tilt = mixture.piece[0].tilt;
      const vec log_r = log_ratio(mixture.piece[0], deviation(x + tilt));
      odds = (x + tilt) + log_r;
      message = log_r + tilt;
    } else {
      const Leaf s = mixture_sides(mixture, x);
      odds = s.on - s.off;
      message = odds - x;
    }
    store_up_to(out + i, put(odds, message), n - i);
  }
}

void mixture_answers(const double* nu, ptrdiff_t n, const FlatMixtureView& mixture, bool marginals, double* out) {
  if (marginals) over_messages(nu, n, mixture, out, [](vec odds, vec) { return sigmoid(odds); });
  else over_messages(nu, n, mixture, out, [](vec, vec message) { return message; });
}

void tangent_apply(const double* nu, ptrdiff_t n, const double* v, ptrdiff_t stride, const TangentView& view,
                   double* out, ptrdiff_t out_stride) {
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    const vec x = load_up_to(nu + i, n - i, 0.0);
    vec by_on[kMaxDirections], by_off[kMaxDirections], change[kMaxDirections], on, off, slope, likely = splat(view.share_on);
    for (int r = 0; r < view.directions; r++) {
      by_on[r] = splat(view.share_on * view.drift_on[r]);
      by_off[r] = splat(-view.share_off * view.drift_off[r]);
    }
    for (int j = 0; j < view.pieces; j++) {
      const TangentPieceView& piece = view.piece[j];
      piece_at(piece, view.directions, x, &on, &off, &slope, change);
      likely += piece.share * on;
      for (int r = 0; r < view.directions; r++) {
        const vec own = (load_up_to(v + r * stride + i, n - i, 0.0) - piece.shift[r]) * (1.0 + slope) + change[r];
        by_on[r] += piece.share * on * (piece.drift[r] + off * own);
        by_off[r] -= piece.share * off * (piece.drift[r] - on * own);
      }
    }
    // Changes of the shares add up to 0: what is certain everywhere is seen from the side that is rare.
    for (int r = 0; r < view.directions; r++)
      store_up_to(out + r * out_stride + i, likely < 0.5 ? by_on[r] : by_off[r], n - i);
  }
}

void tangent_apply_plain(const double* nu, ptrdiff_t n, const double* v, ptrdiff_t stride,
                         const TangentPieceView& piece, int directions, double* out, ptrdiff_t out_stride) {
  for (ptrdiff_t i = 0; i < n; i += kAtOnce * kLanes) {
    vec t[kAtOnce], x[kAtOnce], log_ratio[kAtOnce], slope[kAtOnce], change[kAtOnce], spread[kAtOnce];
    for (int g = 0; g < kAtOnce; g++) {
      t[g] = tilted_at(nu, i + g * kLanes, n, piece.tilt);
      const Deviation d = deviation(t[g]);
      x[g] = d.sign * (1.0 - d.delta);
    }
    clenshaw<kAtOnce>(piece.series, piece.terms, x, log_ratio);
    clenshaw<kAtOnce>(piece.series + piece.stride, piece.terms, x, slope);
    for (int g = 0; g < kAtOnce; g++) {
      const vec e = exp(-abs(t[g] + log_ratio[g])), inverse = 1.0 / (1.0 + e);
      spread[g] = (e * inverse) * inverse;
    }
    for (int k = 0; k < directions; k++) {
      clenshaw<kAtOnce>(piece.series + (2 + k) * piece.stride, piece.terms, x, change);
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
