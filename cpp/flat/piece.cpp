// One piece of the posterior: a table on a window of counts against one tilted characteristic function.
//
//   Z = sum_k f(k) e^{-sk} P_s(k) = Re sum_m G_m,  G_m = Phat_m F_m / N,  F_m = sum_k f(k) e^{-sk - i w_m k}
//   d_p(0) = Re sum_m G_m / (q + p e^{iw}),  d_p(1) the same with e^{iw} in the numerator.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/constants.hpp"
#include "flat/flat.hpp"

namespace tallytree {

namespace {

constexpr double kSeriesTail = 1e-13, kSeriesLimit = 1e-9;

struct Waves {
  std::vector<double> re, im, error;
  double value = 0;     // Z
  double total = 0;     // error of Z by round-off
  double left_out = 0;  // absolute error of Z, d(0), d(1) by truncation
  double log_scale = 0, whole_scale = 0, scale_error = 0;
};

// `f` holds the table on the window, and zeros up to a multiple of 8; `table_error` is its rounding, `outside` the
// largest value beyond the window.
Waves weave(const Source& source, const Spectrum& s, const double* f, Range window, double table_error,
            double outside) {
  Waves waves;
  waves.re.assign((size_t)s.padded, 0.0);
  waves.im.assign((size_t)s.padded, 0.0);
  waves.error.assign((size_t)s.padded, 0.0);
  source.kernels->transform(TurnsFrom(s, window.first).turns, f, window.last - window.first + 1, waves.re.data(),
                            waves.im.data());
  const double mass = waves.re[0];
  times_spectrum(s, table_error, mass, waves.re.data(), waves.im.data(), waves.error.data());
  for (int m = 0; m < s.frequencies; m++) {
    waves.value += waves.re[m];
    waves.total += waves.error[m];
  }
  waves.left_out = std::exp(-kBudget + 2) * (4 * mass + 2 * outside);
  return waves;
}

bool weave_table(const Source& source, const Spectrum& s, const CountTable& table, Range counts, Waves* waves) {
  const Range window = {std::max(counts.first, s.low), std::min(counts.last, s.high)};
  const ptrdiff_t width = window.last - window.first + 1;
  if (width <= 0) return false;
  const FlatKernels& k = *source.kernels;
  std::vector<double> room;
  const double* inside = table.window(window.first, width, &room);
  const double top = k.max_table(inside, width, s.tilt, 0);
  if (!(top > -__builtin_inf())) return false;
  std::vector<double> f((size_t)(width + 8));
  k.exp_table(inside, width, s.tilt, 0, top, f.data());
  for (ptrdiff_t j = width; j < width + 8; j++) f[j] = 0;

  const double origin = (double)window.first;
  const double outside = std::fmax(table.largest({counts.first, window.first - 1}, s.tilt, origin),
                                   table.largest({window.last + 1, counts.last}, s.tilt, origin));
  *waves = weave(source, s, f.data(), window,
                 kRoundOff * (16 + std::fabs(top) + std::fabs(s.tilt) * (double)width),
                 std::exp(std::fmin(outside - top, 700.0)));
  waves->log_scale = top + s.tilt_norm.minus((double)window.first);
  waves->whole_scale = top + s.tilt_norm.whole_minus((double)window.first);
  waves->scale_error = s.tilt_norm.error((double)window.first) + 2 * kRoundOff * std::fabs(top);
  return true;
}

// The leaves at which log r is sampled, and their leave-one-out sums.
struct Nodes {
  std::vector<double> p, q, off, on, error;
  explicit Nodes(int count) {
    const size_t padded = (size_t)(count + 7) / 8 * 8;
    p.assign(padded, 0.0);
    q.assign(padded, 1.0);
    for (auto* v : {&off, &on, &error}) v->assign(padded, 0.0);
  }
  void evaluate(const Source& source, const Spectrum& s, const Waves& w) {
    source.kernels->leave_one_out(p.data(), q.data(), (int)p.size(), w.re.data(), w.im.data(), w.error.data(),
                                  s.cos_w.data(), s.sin_w.data(), s.frequencies, off.data(), on.data(), error.data());
  }
  // For the certificate of a nested model: see bound_ratios in flat.hpp.
  void report(int count, const Spectrum& s, const Waves& w, Piece* piece) const {
    for (int j = 0; j < count; j++) {
      piece->amplification = std::fmax(piece->amplification, w.value / (off[j] * (q[j] + p[j] * s.ratio_below)) +
                                                                 w.value / (on[j] * (p[j] + q[j] * s.ratio_above)));
      piece->largest_message = std::fmax(piece->largest_message, std::fabs(std::log(on[j] / off[j])));
    }
  }
  // Relative error of the sides at the first `count` leaves; inf if one of them is not positive.
  double worst(int count, const Waves& w, double* least_side) const {
    double bound = 0;
    for (int j = 0; j < count; j++) {
      const double side = std::fmin(off[j], on[j]), error_j = error[j] + 4 * w.left_out;
      if (!(side > 2 * error_j)) return __builtin_inf();
      bound = std::fmax(bound, error_j / (side - error_j));
      *least_side = std::fmin(*least_side, side / w.value);
    }
    return 2 * bound;
  }
};

// One series of log r; returns what its tail leaves out. A tail that is not small does not decay
// geometrically (log r is singular where a side vanishes) and says nothing.
double fit_series(const Nodes& nodes, int count, double* series) {
  std::vector<double> value((size_t)count);
  for (int j = 0; j < count; j++) value[j] = std::log(nodes.on[j] / nodes.off[j]);
  chebyshev_fit(value.data(), count, series);
  double tail = 0;
  for (int j = count - 3; j < count; j++) tail += std::fabs(series[j]);
  return tail < kSeriesLimit ? 2 * tail : __builtin_inf();
}

void solve_smooth(const Source& source, const Spectrum& s, const Waves& w, Piece* piece) {
  for (int count = nodes_to_begin(s.variance);; count = 2 * count < kMaxNodes ? 2 * count : kMaxNodes) {
    Nodes nodes(count);
    const double* cosine = chebyshev_cosines(count);
    for (int j = 0; j < count; j++) {
      nodes.p[j] = 0.5 + 0.5 * cosine[2 * j + 1];
      nodes.q[j] = 0.5 - 0.5 * cosine[2 * j + 1];
    }
    nodes.evaluate(source, s, w);
    piece->least_side = 1;
    const double bound = nodes.worst(count, w, &piece->least_side);
    if (!(bound < __builtin_inf())) return;
    piece->log_ratio.resize((size_t)count);
    const double tail = fit_series(nodes, count, piece->log_ratio.data());
    if (tail > kSeriesTail + 0.1 * bound && count < kMaxNodes) continue;
    piece->terms = count;
    while (piece->terms > 1 && std::fabs(piece->log_ratio[piece->terms - 1]) < 1e-17) piece->terms--;
    piece->bound = bound + tail;
    nodes.report(count, s, w, piece);
    return;
  }
}

void solve_split(const Source& source, const Spectrum& s, const Waves& w, Piece* piece) {
  constexpr int kCount = 20;
  const int large = (int)s.large.size();
  piece->split = true;
  piece->terms = kCount;
  piece->log_ratio.assign(2 * kCount, 0.0);
  piece->least_side = 1;
  double bound = 0;
  Nodes big(large);
  for (int j = 0; j < large; j++) {
    big.p[j] = s.large[j];
    big.q[j] = 1 - s.large[j];
  }
  big.evaluate(source, s, w);
  bound = big.worst(large, w, &piece->least_side);
  big.report(large, s, w, piece);
  for (int on = 0; on < 2; on++) {
    const double leaves = on ? s.likely_on : (double)source.n - large - s.likely_on;
    if (leaves <= 0) continue;
    Nodes nodes(kCount);
    for (int j = 0; j < kCount; j++) {
      const double rare = 0.5 * kLargeDeviation * (1 + chebyshev_cosines(kCount)[2 * j + 1]);
      nodes.p[j] = on ? 1 - rare : rare;
      nodes.q[j] = on ? rare : 1 - rare;
    }
    nodes.evaluate(source, s, w);
    const double worst = nodes.worst(kCount, w, &piece->least_side);
    bound = std::fmax(bound, worst);
    if (!(bound < __builtin_inf())) break;
    nodes.report(kCount, s, w, piece);
    bound += fit_series(nodes, kCount, &piece->log_ratio[(size_t)on * kCount]);
  }
  piece->bound += bound;
  piece->wave_re = w.re;
  piece->wave_im = w.im;
  piece->cos_w = s.cos_w;
  piece->sin_w = s.sin_w;
}

}  // namespace

namespace {

void solve_waves(const Source& source, const Spectrum& s, const Waves& w, Piece* piece) {
  const double error = w.total + w.left_out;
  if (!(w.value > 2 * error)) return;
  piece->log_weight = std::log(w.value) + w.log_scale;
  piece->log_total = std::log(w.value) + w.whole_scale;
  piece->weight_error = w.scale_error;
  if (s.split) {
    piece->bound = error / (w.value - error);
    solve_split(source, s, w, piece);
  } else {
    solve_smooth(source, s, w, piece);
    if (piece->terms) piece->bound += error / (w.value - error);
  }
}

}  // namespace

Piece solve_piece(const Source& source, const Spectrum& s, const CountTable& table, Range counts) {
  Piece piece;
  piece.tilt = s.tilt;
  piece.sums = (int)s.deviation.size();
  piece.first = counts.first;
  piece.length = counts.last - counts.first + 1;
  Waves w;
  if (!weave_table(source, s, table, counts, &w)) return piece;
  solve_waves(source, s, w, &piece);
  return piece;
}

Piece solve_linear(const Source& source, const Spectrum& s, const double* f, ptrdiff_t first, ptrdiff_t length,
                   double outside) {
  Piece piece;
  piece.tilt = s.tilt;
  solve_waves(source, s, weave(source, s, f, {first, first + length - 1}, kRoundOff * 16, outside), &piece);
  return piece;
}

// -- Chebyshev series of a function from its values at the nodes cos((2 i + 1) pi / (2 count)) --------------------

namespace {

constexpr int kSumsAtOnce = 4;  // sums under way at once hide the latency of an addition

std::vector<double> cosines_of(int count) {
  std::vector<double> cosine((size_t)(4 * count));
  for (int i = 0; i <= count; i++) {
    const double c = i < count ? std::cos(kPi * i / (2 * count)) : 0.0;
    cosine[(size_t)i] = c;
    cosine[(size_t)(2 * count - i)] = cosine[(size_t)((2 * count + i) % (4 * count))] = -c;
    cosine[(size_t)((4 * count - i) % (4 * count))] = c;
  }
  return cosine;
}

// One table per number of nodes, made when it is first asked for and never changed.
struct Cosines {
  std::once_flag made[kMaxNodes + kMoreNodes + 1];
  std::vector<double> table[kMaxNodes + kMoreNodes + 1];
};

}  // namespace

const double* chebyshev_cosines(int count) {
  static Cosines all;
  std::call_once(all.made[count], [&] { all.table[count] = cosines_of(count); });
  return all.table[count].data();
}

void chebyshev_fit(const double* value, int count, double* series) {
  const double* cosine = chebyshev_cosines(count);
  for (int first = 0; first < count; first += kSumsAtOnce) {
    double sum[kSumsAtOnce] = {};
    int at[kSumsAtOnce], step[kSumsAtOnce];
    for (int g = 0; g < kSumsAtOnce; g++) {
      at[g] = first + g < count ? first + g : first;
      step[g] = 2 * at[g];
    }
    for (int i = 0; i < count; i++)
      for (int g = 0; g < kSumsAtOnce; g++) {
        sum[g] += value[i] * cosine[at[g]];  // cos(j (2 i + 1) pi / (2 count))
        at[g] += step[g];
        at[g] -= at[g] >= 4 * count ? 4 * count : 0;
      }
    for (int g = 0; g < kSumsAtOnce && first + g < count; g++)
      series[first + g] = sum[g] * (first + g ? 2.0 : 1.0) / count;
  }
}

}  // namespace tallytree
