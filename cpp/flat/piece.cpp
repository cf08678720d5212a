// One piece of the posterior: a table on a window of counts against one tilted characteristic function.
//
//   Z = sum_k f(k) e^{-sk} P_s(k) = Re sum_m G_m,  G_m = Phat_m F_m / N,  F_m = sum_k f(k) e^{-sk - i w_m k}
//   d_p(0) = Re sum_m G_m / (q + p e^{iw}),  d_p(1) the same with e^{iw} in the numerator.
// With derivatives (tangent.cpp), log r = log(d_p(1) / d_p(0)) is not alone: its slope in t and, with A_b the sums d_p(b)
// over dG_m, its change A_1 / d_p(1) - A_0 / d_p(0) along every direction are sampled at the same leaves.

#include "base/constants.hpp"
#include "flat/flat.hpp"

namespace tallytree {

namespace {

constexpr double kSeriesTail = 1e-13, kSeriesLimit = 1e-9, kInvisible = 1e-17;

// `f` holds the table on the window, and zeros up to a multiple of 8; `outside` is the largest value beyond the window.
void weave(const Source& source, const Spectrum& s, const double* f, ptrdiff_t first, ptrdiff_t width, double outside,
           Waves* waves) {
  for (auto* x : {&waves->re, &waves->im, &waves->error}) x->assign((size_t)s.padded, 0.0);
  source.kernels->transform(TurnsFrom(s, first).turns, f, width, waves->re.data(), waves->im.data());
  const double mass = waves->re[0];
  times_spectrum(s, waves->table_error, mass, waves->re.data(), waves->im.data(), waves->error.data());
  for (int m = 0; m < s.frequencies; m++) {
    waves->value += waves->re[m];
    waves->total += waves->error[m];
  }
  waves->left_out = std::exp(-kBudget + 2) * (4 * mass + 2 * outside);
}

// The leaves at which log r is sampled, and their leave-one-out sums.
struct Nodes {
  int count;
  std::vector<double> p, q, off, on, error, slope;
  std::vector<double> change;  // (directions, count)

  explicit Nodes(int leaves) : count(leaves) {
    const size_t padded = (size_t)(count + 7) / 8 * 8;
    p.assign(padded, 0.0);
    q.assign(padded, 1.0);
    for (auto* v : {&off, &on, &error}) v->assign(padded, 0.0);
  }
  // Relative error of the sides at all leaves; inf if one of them is not positive.
  double evaluate(const Source& source, const Spectrum& s, const Waves& w, PieceTangent* t, double* least_side) {
    const auto sums = [&](const double* re, const double* im, const double* e, double* to_off, double* to_on, double* to_e,
                          double* to_slope) {
      source.kernels->leave_one_out(p.data(), q.data(), (int)p.size(), re, im, e, s.cos_w.data(), s.sin_w.data(),
                                    s.frequencies, to_off, to_on, to_e, to_slope);
    };
    if (t) slope.resize(p.size());
    sums(w.re.data(), w.im.data(), w.error.data(), off.data(), on.data(), error.data(), t ? slope.data() : nullptr);
    double bound = 0;
    for (int j = 0; j < count; j++) {
      const double side = std::fmin(off[j], on[j]), error_j = error[j] + 4 * w.left_out;
      if (!(side > 2 * error_j)) return kInfinity;
      bound = std::fmax(bound, error_j / (side - error_j));
      *least_side = std::fmin(*least_side, side / w.value);
    }
    std::vector<double> moved_off(t ? p.size() : 0), moved_on(moved_off), wrong(moved_off);
    for (int r = 0; t && r < t->directions; r++) {
      const size_t at = (size_t)(r * s.padded);
      sums(&t->re[at], &t->im[at], &t->error[at], moved_off.data(), moved_on.data(), wrong.data(), nullptr);
      for (int j = 0; j < count; j++) {
        const double a = moved_on[j] / on[j], b = moved_off[j] / off[j], error_j = error[j] + 4 * w.left_out;
        const double lost = wrong[j] + (std::fabs(a) + std::fabs(b)) * error_j;
        change.push_back(a - b);
        t->bound[(size_t)r] = std::fmax(t->bound[(size_t)r], 2 * lost / (std::fmin(off[j], on[j]) - error_j));
      }
    }
    return 2 * bound;
  }
  // For the certificate of a nested model: see bound_ratios in flat.hpp.
  void report(const Spectrum& s, const Waves& w, Piece* piece) const {
    for (int j = 0; j < count; j++) {
      piece->amplification = std::fmax(piece->amplification, w.value / (off[j] * (q[j] + p[j] * s.ratio_below)) +
                                                                 w.value / (on[j] * (p[j] + q[j] * s.ratio_above)));
      piece->largest_message = std::fmax(piece->largest_message, std::fabs(std::log(on[j] / off[j])));
    }
  }
  double sample(int family, int j) const {
    return family == 0 ? std::log(on[j] / off[j]) : family == 1 ? slope[j] : change[(size_t)((family - 2) * count + j)];
  }
};

int families_of(const PieceTangent* t) { return t ? 2 + t->directions : 1; }
double size_of(const PieceTangent* t, int family) { return family < 2 ? 1.0 : t->size[(size_t)family - 2]; }

// The series of all families; returns what the tails leave out, relative to their sizes. A tail that is not small does not
// decay geometrically (log r is singular where a side vanishes) and says nothing.
double fit_series(const Nodes& nodes, int halves, int half, PieceTangent* t, Piece* piece) {
  const int count = nodes.count;
  std::vector<double> value((size_t)count);
  double worst = 0;
  for (int family = 0; family < families_of(t); family++) {
    double* series = &piece->log_ratio[(size_t)((family * halves + half) * count)];
    for (int j = 0; j < count; j++) value[(size_t)j] = nodes.sample(family, j);
    chebyshev_fit(value.data(), count, series);
    double tail = 0;
    for (int j = count - 3; j < count; j++) tail += std::fabs(series[j]);
    worst = std::fmax(worst, tail / size_of(t, family));
  }
  return worst < kSeriesLimit ? 2 * worst : kInfinity;
}

void add_tail(double tail, PieceTangent* t) {
  for (int r = 0; t && r < t->directions; r++) t->bound[(size_t)r] += tail * t->size[(size_t)r];
}

// Begins with as many nodes as `log_ratio` has room for, if any.
void solve_smooth(const Source& source, const Spectrum& s, const Waves& w, Piece* piece, PieceTangent* t) {
  int count = piece->log_ratio.empty() ? nodes_to_begin(s.variance) : std::max((int)piece->log_ratio.size(), 8);
  for (;; count = std::min(2 * count, kMaxNodes)) {
    Nodes nodes(count);
    const double* cosine = chebyshev_cosines(count);
    for (int j = 0; j < count; j++) {
      nodes.p[j] = 0.5 + 0.5 * cosine[2 * j + 1];
      nodes.q[j] = 0.5 - 0.5 * cosine[2 * j + 1];
    }
    piece->least_side = 1;
    const double bound = nodes.evaluate(source, s, w, t, &piece->least_side);
    if (!(bound < kInfinity)) return;
    piece->log_ratio.resize((size_t)(count * families_of(t)));
    const double tail = fit_series(nodes, 1, 0, t, piece);
    if (tail > kSeriesTail + (t ? 0.0 : 0.1 * bound) && count < kMaxNodes) continue;
    const auto visible = [&](int j) {
      for (int family = 0; family < families_of(t); family++)
        if (!(std::fabs(piece->log_ratio[(size_t)(family * count + j)]) < kInvisible * size_of(t, family))) return true;
      return false;
    };
    piece->terms = count;
    while (piece->terms > 1 && !visible(piece->terms - 1)) piece->terms--;
    piece->bound = bound + tail;
    add_tail(tail, t);
    nodes.report(s, w, piece);
    return;
  }
}

void solve_split(const Source& source, const Spectrum& s, const Waves& w, Piece* piece, PieceTangent* t) {
  constexpr int kCount = 20;
  const int large = (int)s.large.size();
  piece->split = true;
  piece->terms = kCount;
  piece->log_ratio.assign((size_t)(2 * kCount * families_of(t)), 0.0);
  piece->least_side = 1;
  Nodes big(large);
  for (int j = 0; j < large; j++) {
    big.p[j] = s.large[j];
    big.q[j] = 1 - s.large[j];
  }
  double bound = big.evaluate(source, s, w, t, &piece->least_side);
  big.report(s, w, piece);
  for (int on = 0; on < 2; on++) {
    const double leaves = on ? s.likely_on : (double)source.n - large - s.likely_on;
    if (leaves <= 0) continue;
    Nodes nodes(kCount);
    for (int j = 0; j < kCount; j++) {
      const double rare = 0.5 * kLargeDeviation * (1 + chebyshev_cosines(kCount)[2 * j + 1]);
      nodes.p[j] = on ? 1 - rare : rare;
      nodes.q[j] = on ? rare : 1 - rare;
    }
    bound = std::fmax(bound, nodes.evaluate(source, s, w, t, &piece->least_side));
    if (!(bound < kInfinity)) break;
    nodes.report(s, w, piece);
    const double tail = fit_series(nodes, 2, on, t, piece);
    bound += tail;
    add_tail(tail, t);
  }
  piece->bound += bound;
  piece->wave_re = w.re;
  piece->wave_im = w.im;
  piece->cos_w = s.cos_w;
  piece->sin_w = s.sin_w;
}

}  // namespace

bool weave_table(const Source& source, const Spectrum& s, const CountTable& table, Range counts, Waves* waves) {
  const ptrdiff_t first = waves->first = std::max(counts.first, s.low), last = std::min(counts.last, s.high);
  const ptrdiff_t width = waves->width = last - first + 1;
  if (width <= 0) return false;
  const FlatKernels& k = *source.kernels;
  std::vector<double> room;
  const double* inside = table.window(first, width, &room);
  // Relative to the mean, so that a table is rounded at the size of its differences from there, not at its own.
  const ptrdiff_t mean = std::clamp((ptrdiff_t)s.centre, first, last) - first;
  const double base = std::isfinite(inside[mean]) ? inside[mean] : 0.0, origin = (double)(first + mean);
  const double top = k.max_table(inside, width, s.tilt, -(double)mean) - base;
  if (!(top > -kInfinity)) return false;
  waves->f.resize((size_t)(width + 8));
  k.exp_table(inside, width, s.tilt, -(double)mean, base, top, waves->f.data());
  std::fill(waves->f.begin() + width, waves->f.end(), 0.0);

  const double outside = std::fmax(table.largest({counts.first, first - 1}, s.tilt, origin),
                                   table.largest({last + 1, counts.last}, s.tilt, origin)) - base;
  double mass = 0, away = 0;
  for (ptrdiff_t j = 0; j < width; j++) {
    mass += waves->f[(size_t)j];
    away += waves->f[(size_t)j] * std::fabs((double)(j - mean));
  }
  waves->table_error = kRoundOff * (16 + std::fabs(top) + 2 * std::fabs(s.tilt) * away / mass);
  weave(source, s, waves->f.data(), first, width, std::exp(std::fmin(outside - top, 700.0)), waves);
  waves->log_scale = (top + base) + s.tilt_norm.minus(origin);
  waves->whole_scale = (top + base) + s.tilt_norm.whole_minus(origin);
  waves->scale_error = s.tilt_norm.error(origin) + 2 * kRoundOff * (std::fabs(top) + std::fabs(base));
  return true;
}

void solve_waves(const Source& source, const Spectrum& s, const Waves& w, Piece* piece, PieceTangent* t) {
  const double error = w.total + w.left_out;
  if (!(w.value > 2 * error)) return;
  piece->log_weight = std::log(w.value) + w.log_scale;
  piece->log_total = std::log(w.value) + w.whole_scale;
  piece->weight_error = w.scale_error;
  if (s.split) {
    piece->bound = error / (w.value - error);
    solve_split(source, s, w, piece, t);
  } else {
    solve_smooth(source, s, w, piece, t);
    if (piece->terms) piece->bound += error / (w.value - error);
  }
}

Piece solve_piece(const Source& source, const Spectrum& s, const CountTable& table, Range counts) {
  Piece piece;
  piece.tilt = s.tilt;
  piece.sums = (int)s.deviation.size();
  piece.first = counts.first;
  piece.length = counts.last - counts.first + 1;
  Waves w;
  if (weave_table(source, s, table, counts, &w)) solve_waves(source, s, w, &piece, nullptr);
  return piece;
}

Piece solve_linear(const Source& source, const Spectrum& s, const double* f, ptrdiff_t first, ptrdiff_t length,
                   double outside) {
  Piece piece;
  piece.tilt = s.tilt;
  Waves w;
  w.table_error = kRoundOff * 16;
  weave(source, s, f, first, length, outside, &w);
  solve_waves(source, s, w, &piece, nullptr);
  return piece;
}

// -- Chebyshev series of a function from its values at the nodes cos((2 i + 1) pi / (2 count)) --------------------

constexpr int kSumsAtOnce = 4;  // sums under way at once hide the latency of an addition

using Cosines = std::vector<double>;

static std::unique_ptr<Cosines> cosines_of(int count) {
  auto made = std::make_unique<Cosines>((size_t)(4 * count));
  Cosines& cosine = *made;
  for (int i = 0; i <= count; i++) {
    const double c = i < count ? std::cos(kPi * i / (2 * count)) : 0.0;
    cosine[(size_t)i] = c;
    cosine[(size_t)(2 * count - i)] = cosine[(size_t)((2 * count + i) % (4 * count))] = -c;
    cosine[(size_t)((4 * count - i) % (4 * count))] = c;
  }
  return made;
}

const double* chebyshev_cosines(int count) {
  static std::atomic<Cosines*> all[kMaxNodes + kMoreNodes + 1] = {};
  return made_once(all[count], [&] { return cosines_of(count); }).data();
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
