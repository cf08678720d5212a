// Pass 2 of the flat solver: a mixture of solved pieces becomes marginals or messages, one variable at a time.
#include "base/real.hpp"
#include "flat/series.hpp"

namespace tallytree::TT_LEVEL {

namespace {

// log r of one piece for a variable whose deviation is not small, by the sum over frequencies.
double ratio_by_frequencies(const FlatPieceView& piece, double p, double q) {
  vec d0 = vec{}, d1 = vec{};
  for (int m = 0; m < piece.frequencies; m += kLanes) {
    const vec c = load(piece.cos_w + m), s = load(piece.sin_w + m);
    const vec gr = load(piece.wave_re + m), gi = load(piece.wave_im + m);
    const vec x = q + p * c, y = p * s, inv = 1.0 / (x * x + y * y);
    const vec hr = (gr * x + gi * y) * inv, hi = (gi * x - gr * y) * inv;
    d0 += hr;
    d1 += hr * c - hi * s;
  }
  return real::log(sum_lanes(d1) / sum_lanes(d0));
}

vec log_ratio(const FlatPieceView& piece, const Deviation& d) {
  vec value = series_at(piece.series, piece.terms, piece.split, d);
  for (int l = 0; piece.split && l < kLanes; l++)
    if (d.delta[l] >= 2 * kLargeDeviation) {
      const double half = 0.5 * d.delta[l];
      value[l] = d.sign[l] < 0 ? ratio_by_frequencies(piece, half, 1 - half)
                               : ratio_by_frequencies(piece, 1 - half, half);
    }
  return value;
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
struct Sides {
  vec on, off;
};

Sides mixture_sides(const FlatMixtureView& mixture, vec nu) {
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
  return {log_sum_exp(on, count + 1), log_sum_exp(off, count + 1)};
}

}  // namespace

// Calls put(i, d, value) with the series at the leaves i, i + 1, ... of one vector; several vectors are under way at once.
template <class Put>
inline void over_leaves(const double* nu, ptrdiff_t n, double tilt, const double* series, int terms, const Put& put) {
  constexpr int kAtOnce = 4;
  for (ptrdiff_t i = 0; i < n; i += kAtOnce * kLanes) {
    Deviation d[kAtOnce];
    vec x[kAtOnce], value[kAtOnce];
    for (int g = 0; g < kAtOnce; g++) {
      const ptrdiff_t at = i + g * kLanes, left = n - at;
      d[g] = deviation(load_up_to(nu + (left > 0 ? at : 0), left, 0.0) + tilt);
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
      const Sides s = mixture_sides(mixture, x);
      odds = s.on - s.off;
      message = odds - x;
    }
    store_up_to(out + i, put(odds, message), n - i);
  }
}

void marginals(const double* nu, ptrdiff_t n, const FlatMixtureView* mixture, double* out) {
  over_messages(nu, n, *mixture, out, [](vec odds, vec) {
    const vec e = exp(-abs(odds));
    return (odds < 0.0 ? e : splat(1.0)) / (1.0 + e);
  });
}

void messages(const double* nu, ptrdiff_t n, const FlatMixtureView* mixture, double* out) {
  over_messages(nu, n, *mixture, out, [](vec, vec message) { return message; });
}

}  // namespace tallytree::TT_LEVEL
