// The flat ladder for finite logits, and the passes that turn a solution into marginals and messages.
#include <algorithm>
#include <cmath>

#include "flat/chunks.hpp"

namespace tallytree {

namespace {

constexpr double kInfinity = __builtin_inf();
constexpr double kExtremeLogit = 300;  // half of the range of plain numbers
constexpr double kNegligible = 44;  // nats: what is left out is below 1e-19

double log_add(double a, double b) {
  const double high = std::fmax(a, b);
  return high == -kInfinity ? high : high + std::log1p(std::exp(std::fmin(a, b) - high));
}

bool has_interior_support(const double* log_f, ptrdiff_t n) {
  for (ptrdiff_t k = 1; k < n; k++)
    if (log_f[k] > -kInfinity) return true;
  return false;
}

// Whether the untilted count gets to what the table allows: it goes further than this many standard deviations with a
// probability below the rounding of any sum, so that no certificate could hold.
bool within_reach(const Sums& untilted, const double* log_f, ptrdiff_t n) {
  const double reach = 9 * std::sqrt(untilted.variance()) + 30, low = untilted.mean() - reach;
  const ptrdiff_t first = (ptrdiff_t)std::fmax(1.0, std::floor(low));
  const ptrdiff_t last = (ptrdiff_t)std::fmin((double)n - 1, std::ceil(low + 2 * reach));
  for (ptrdiff_t k = first; k <= last; k++)
    if (log_f[k] > -kInfinity) return true;
  return false;
}

// The counts 0 and n have closed forms, and messages of -inf and +inf; the rest is solved without them.
void take_ends(const Logits& logits, const FlatTotals& untilted, const double* log_f, FlatSolution* s) {
  s->log_all_off = log_f[0] - softplus(untilted);
  s->log_all_on = log_f[logits.n] - (untilted.negative + untilted.log_norm);
  s->sum_logits = untilted.positive - untilted.negative;
}

void solve_ends_only(const FlatTotals& untilted, const double* log_f, ptrdiff_t n, FlatSolution* s) {
  s->kind = log_f[0] > -kInfinity || log_f[n] > -kInfinity ? FlatKind::ends : FlatKind::impossible;
  s->log_mean = log_add(s->log_all_off, s->log_all_on);
  s->tilt = log_f[n] - log_f[0];  // log-odds of "all on" before the logits; may be infinite
  const double tables = std::isfinite(s->tilt) ? std::fabs(log_f[0]) + std::fabs(log_f[n]) : 0;
  const double sums = std::isfinite(s->tilt) ? untilted.positive + untilted.negative : 0;
  s->bound = kRoundOff * (16 + 4 * std::sqrt((double)n) + 4 * (tables + sums));
}

// Ends that cannot be seen are dropped: "all off" carries at most W / P(y_i = 0) of d_i(0), and under the tilt
// P(y_i = 0) = q_i d(0) / Z with q_i >= 1 / (1 + e^{largest + s}); "all on" is the mirror image. Where pieces
// and ends are compared, rounding of their log weights counts, and so does that of the logits, which are subtracted
// from posterior log-odds.
void settle_ends(const Logits& logits, const FlatTotals& untilted, double interior, FlatSolution* s) {
  const double tilt = s->pieces[0].tilt, visible = interior - kNegligible + std::log(s->pieces[0].least_side);
  if (s->log_all_off < visible - std::fmax(0.0, untilted.largest + tilt)) s->log_all_off = -kInfinity;
  if (s->log_all_on < visible - std::fmax(0.0, -untilted.smallest - tilt)) s->log_all_on = -kInfinity;
  s->log_mean = log_add(interior, log_add(s->log_all_off, s->log_all_on));
  const bool off = s->log_all_off > -kInfinity, on = s->log_all_on > -kInfinity;
  if (s->pieces.size() == 1 && !off && !on) return;
  double error = 0;
  for (const Piece& piece : s->pieces)
    error = std::fmax(error, piece.weight_error + kRoundOff * std::fabs(piece.log_weight));
  const double norm = untilted.log_norm + 4 * std::sqrt((double)logits.n);
  if (off) error = std::fmax(error, 2 * kRoundOff * (untilted.positive + norm + std::fabs(s->log_all_off)));
  if (on) error = std::fmax(error, 2 * kRoundOff * (untilted.negative + norm + std::fabs(s->log_all_on)));
  s->bound += 2 * error + 8 * kRoundOff * std::fmax(untilted.largest, -untilted.smallest);
}

std::vector<FlatPieceView> views(const FlatSolution& s) {
  std::vector<FlatPieceView> result;
  for (const Piece& p : s.pieces) result.push_back(view_of(p, p.log_weight - s.log_mean));
  return result;
}

bool one_smooth_piece(const FlatSolution& s) {
  return s.pieces.size() == 1 && !s.pieces[0].split && s.log_all_off == -kInfinity && s.log_all_on == -kInfinity;
}

// The series of r from the series of log r, on as many nodes.
std::vector<double> ratio_series(const Piece& piece) {
  const double pi = 3.14159265358979323846;
  const int count = piece.terms + 6;
  std::vector<double> value((size_t)count), series((size_t)count);
  for (int i = 0; i < count; i++) {
    const double x = std::cos(pi * (i + 0.5) / count);
    double b1 = 0, b2 = 0;
    for (int j = piece.terms - 1; j > 0; j--) {
      const double b0 = 2 * x * b1 - b2 + piece.log_ratio[j];
      b2 = b1;
      b1 = b0;
    }
    value[i] = std::exp(x * b1 - b2 + piece.log_ratio[0]);
  }
  chebyshev_fit(value.data(), count, series.data());
  while (series.size() > 1 && std::fabs(series.back()) < 1e-17 * std::fabs(series[0])) series.pop_back();
  return series;
}

double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

}  // namespace

FlatPieceView view_of(const Piece& p, double log_share) {
  return {p.tilt, log_share, p.split, p.terms, p.log_ratio.data(), (int)p.wave_re.size(), p.wave_re.data(),
          p.wave_im.data(), p.cos_w.data(), p.sin_w.data()};
}

int first_sums(ptrdiff_t n) {
  return n < 700 ? 40 : n < 768 ? 32 : n < 1536 ? 28 : n < 4096 ? 24 : n < 32768 ? 16 : 12;
}

FlatSolution solve_series(const Logits& logits, const double* log_f, const Sums& untilted) {
  const ptrdiff_t n = logits.n;
  FlatSolution s;
  s.softplus = softplus(untilted.totals);
  s.largest_logit = std::fmax(untilted.totals.largest, -untilted.totals.smallest);
  take_ends(logits, untilted.totals, log_f, &s);
  if (!has_interior_support(log_f, n)) {
    solve_ends_only(untilted.totals, log_f, n, &s);
    return s;
  }
  s.kind = FlatKind::series;
  Piece plain;
  if (within_reach(untilted, log_f, n))
    plain = solve_piece(logits, spectrum(logits, untilted.totals, 0, &untilted), log_f + 1, 1, n - 1);
  s.bound = plain.bound;
  if (plain.bound <= kTolerance) {
    s.pieces.push_back(std::move(plain));
  } else {
    s.bound = kInfinity;
    solve_by_segments(logits, untilted, log_f, &s);
    if (!(s.bound <= plain.bound)) {
      s.bound = plain.bound;
      s.pieces.clear();
      if (plain.bound < kInfinity) s.pieces.push_back(std::move(plain));
    }
  }
  if (s.pieces.empty()) {
    s.bound = kInfinity;
    return s;
  }
  double interior = s.pieces[0].log_weight, rest = 1;
  for (size_t j = 1; j < s.pieces.size(); j++) rest += std::exp(s.pieces[j].log_weight - interior);
  settle_ends(logits, untilted.totals, interior + std::log(rest), &s);
  if (!(s.bound < kMeaningful)) s.bound = kInfinity;
  return s;
}

bool marginals_known(const FlatSolution& s) { return s.kind == FlatKind::direct && s.largest_logit <= kExtremeLogit; }

void flat_marginals(const Logits& logits, const FlatSolution& s, double* out) {
  const FlatKernels& k = *logits.kernels;
  const double* nu = logits.nu;
  if (s.kind == FlatKind::impossible || (s.kind == FlatKind::series && s.pieces.empty())) {
    std::fill(out, out + logits.n, __builtin_nan(""));
  } else if (s.kind == FlatKind::ends) {
    std::fill(out, out + logits.n, sigmoid(s.tilt + s.sum_logits));
  } else if (s.kind == FlatKind::powers) {
    in_chunks(logits, [&](ptrdiff_t from, ptrdiff_t length) {
      k.power_marginals(nu + from, length, *s.powers, out + from);
    });
  } else if (marginals_known(s)) {
    std::copy(s.marginal, s.marginal + logits.n, out);
  } else if (s.kind == FlatKind::direct || (one_smooth_piece(s) && s.largest_logit > kExtremeLogit)) {
    // Odds p r / q may leave the range of plain numbers where their logarithm does not.
    flat_messages(logits, s, out);
    for (ptrdiff_t i = 0; i < logits.n; i++) out[i] = sigmoid(nu[i] + out[i]);
  } else if (one_smooth_piece(s)) {
    const std::vector<double> series = ratio_series(s.pieces[0]);
    in_chunks(logits, [&](ptrdiff_t from, ptrdiff_t length) {
      k.marginals_plain(nu + from, length, s.pieces[0].tilt, series.data(), (int)series.size(), out + from);
    });
  } else {
    const std::vector<FlatPieceView> piece = views(s);
    const FlatMixtureView mixture = {(int)piece.size(), piece.data(), s.log_all_off - s.log_mean,
                                     s.log_all_on - s.log_mean};
    in_chunks(logits, [&](ptrdiff_t from, ptrdiff_t length) { k.marginals(nu + from, length, &mixture, out + from); });
  }
}

void flat_messages(const Logits& logits, const FlatSolution& s, double* out) {
  const FlatKernels& k = *logits.kernels;
  const double* nu = logits.nu;
  if (s.kind == FlatKind::impossible || (s.kind == FlatKind::series && s.pieces.empty())) {
    std::fill(out, out + logits.n, __builtin_nan(""));
  } else if (s.kind == FlatKind::ends) {
    for (ptrdiff_t i = 0; i < logits.n; i++) out[i] = s.tilt + (s.sum_logits - nu[i]);
  } else if (s.kind == FlatKind::powers) {
    in_chunks(logits, [&](ptrdiff_t from, ptrdiff_t length) {
      k.power_messages(nu + from, length, *s.powers, out + from);
    });
  } else if (s.kind == FlatKind::direct) {
    k.messages_from_ratio(s.ratio, logits.n, s.tilt, out);
  } else if (one_smooth_piece(s)) {
    const Piece& piece = s.pieces[0];
    in_chunks(logits, [&](ptrdiff_t from, ptrdiff_t length) {
      k.messages_plain(nu + from, length, piece.tilt, piece.log_ratio.data(), piece.terms, out + from);
    });
  } else {
    const std::vector<FlatPieceView> piece = views(s);
    const FlatMixtureView mixture = {(int)piece.size(), piece.data(), s.log_all_off - s.log_mean,
                                     s.log_all_on - s.log_mean};
    in_chunks(logits, [&](ptrdiff_t from, ptrdiff_t length) { k.messages(nu + from, length, &mixture, out + from); });
  }
}

}  // namespace tallytree
