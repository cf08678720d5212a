// Tangents of a flat model from its characteristic functions, one piece of the posterior after the other.
//
// With G_m = Phat_m F_m / N as in piece.cpp and H_m the transform of f h, the direction moves a piece's waves by
//   dG_m = G_m S_m + Phat_m H_m / N,
// and the leave-one-out message at a leaf t by a(t) + v d/dt log r(t), a = A_1 / F_1 - A_0 / F_0, where A_b are the
// sums F_b over dG_m. Both functions of t are Chebyshev series. Any multiple of G_m may be subtracted from dG_m.
//
// The characteristic function moves by
//   S(w) = d log Phat(w) = sum_i v_i p_i q_i (e^{iw} - 1) / (q_i + p_i e^{iw}).
// In the notation of spectrum.cpp, d T_j / dt = j (T_{j-1} - T_{j+1}) / 4, so with the weighted deviation sums
// V_j = sum_i v_i sign_i^j (1 - T_j(|x_i|)), V_0 = 0,
//   S(w) = -1/2 sum_j (-i tau)^j (V_{j+1} - V_{j-1}).
// A direction that moves all variables alike acts like the table direction h(k) = k. That part, `shift`, is taken out
// of v, so that S has no term of first order in w and stays small; where a table hardly depends on the count it is left there,
// so that nothing large is added to the table. When the variance is small, with u = e^{iw} - 1,
//   S(w) = sum_j (-1)^{j-1} (u^j (P_j - P_{j+1}) - conj(u)^j (Q_j - Q_{j+1})) + the large deviations one by one,
// P_j and Q_j being the weighted power sums of p over the likely off and of q over the likely on.
#include "flat/batches.hpp"

#include <complex>

namespace tallytree {

namespace {

using complex = std::complex<double>;
constexpr ptrdiff_t kChunk = 8192;  // fixed, so that sums do not depend on the number of threads
constexpr ptrdiff_t kWorthThreads = 1 << 17;

// The characteristic function of one tilt, and its logarithmic derivative along every direction.
struct DirectedSpectrum {
  Spectrum spectrum;
  std::vector<double> shift;               // (directions,): the part of v that is counted in the table
  std::vector<double> mean;                // (directions,): sum of (v_i - shift) p_i
  std::vector<double> rate_re, rate_im;    // (directions, padded): S_m
  std::vector<double> rate_error;          // (directions, padded)
};

// Sums over chunks in extended precision.
WeightedSums sum_weighted(const Kernels& kernels, const Logits& logits, const double* v, double tilt, int count) {
  const ptrdiff_t chunks = (logits.n + kChunk - 1) / kChunk;
  std::vector<WeightedSums> parts((size_t)chunks);
  over_parts(logits.n, kChunk, logits.n >= kWorthThreads ? logits.threads : 1, [&](ptrdiff_t from, ptrdiff_t length) {
    kernels.flat->weighted_sums(logits.nu + from, v + from, length, tilt, count, &parts[(size_t)(from / kChunk)]);
  });
  if (chunks == 1) return parts[0];
  WeightedSums total;
  for (size_t j = 0; j < sizeof total / sizeof(double); j++) {
    long double sum = 0;
    for (const WeightedSums& part : parts) sum += ((const double*)&part)[j];
    ((double*)&total)[j] = (double)sum;
  }
  return total;
}

// S on the frequencies of the spectrum from sums V_1 .. V_{terms + 1}.
void rate_from_chebyshev(const Spectrum& s, const double* v, int terms, double* re, double* im, double* error) {
  std::vector<double> taus((size_t)s.frequencies);
  quarter_tangents(s.period, s.frequencies, taus.data());
  for (int m = 0; m < s.frequencies; m++) {
    const double tau = taus[(size_t)m];
    double a = 0, b = 0, size = 0;
    for (int j = terms; j >= 1; j--) {
      // (a, b) <- -i tau ((a, b) + V_{j+1} - V_{j-1})
      const double before = j > 1 ? v[j - 2] : 0.0, r = a + (v[j] - before);
      a = tau * b;
      b = -tau * r;
      size = tau * (size + std::fabs(v[j]) + std::fabs(before));
    }
    re[m] = -0.5 * a;
    im[m] = -0.5 * b;
    error[m] = kRoundOff * 16 * size;
  }
}

struct LargeDeviations {
  std::vector<double> p, v;
};

void rate_from_powers(const Spectrum& s, const WeightedPowers& sums, const LargeDeviations& large, double* re,
                      double* im, double* error) {
  for (int m = 0; m < s.frequencies; m++) {
    const double half = std::sin(s.w[m] / 2);
    const complex u(-2 * half * half, s.sin_w[m]), e(s.cos_w[m], s.sin_w[m]);
    complex off = 0, on = 0;
    for (int j = kPowers; j >= 1; j--) {
      const double sign = j % 2 ? 1.0 : -1.0;
      off = u * (off + sign * (sums.off[j - 1] - sums.off[j]));
      on = std::conj(u) * (on + sign * (sums.on[j - 1] - sums.on[j]));
    }
    complex total = off - on;
    double size = std::abs(off) + std::abs(on);
    for (size_t i = 0; i < large.p.size(); i++) {
      const double p = large.p[i], q = 1 - p;
      const complex term = large.v[i] * p * q * u / (q + p * e);
      total += term;
      size += std::abs(term) * (1 + 1 / std::abs(q + p * e));
    }
    re[m] = total.real();
    im[m] = total.imag();
    error[m] = kRoundOff * 32 * size;
  }
}

double split_rates(const Kernels& kernels, const Logits& logits, const Spectrum& s, const double* v, double* re,
                   double* im, double* error) {
  WeightedPowers sums;
  LargeDeviations large;
  large.p.resize((size_t)logits.n);
  large.v.resize((size_t)logits.n);
  const ptrdiff_t found =
      kernels.flat->weighted_powers(logits.nu, v, logits.n, s.tilt, &sums, large.p.data(), large.v.data());
  large.p.resize((size_t)found);
  large.v.resize((size_t)found);
  rate_from_powers(s, sums, large, re, im, error);
  double mean = sums.off[0] + sums.weight_on - sums.on[0];
  for (size_t i = 0; i < large.p.size(); i++) mean += large.p[i] * large.v[i];
  return mean;
}

DirectedSpectrum directed_spectrum(const Kernels& kernels, const Logits& logits, const TangentModel& model,
                                   const Piece& piece) {
  DirectedSpectrum d;
  const FlatTotals unused{};  // only the norm of the tilt would need it
  std::vector<WeightedSums> sums((size_t)model.directions);
  int count = piece.split ? 0 : std::min(piece.sums + 1, kMaxChebyshev + 1);
  if (count && model.directions) {
    for (int r = 0; r < model.directions; r++)
      sums[(size_t)r] = sum_weighted(kernels, logits, model.v_row(r), piece.tilt, count);
    Sums known;
    known.totals = unused;
    known.totals.likely_on = sums[0].likely_on;
    known.deviation.assign(sums[0].plain, sums[0].plain + count);
    d.spectrum = spectrum(logits, unused, piece.tilt, &known);
  } else {
    d.spectrum = spectrum(logits, unused, piece.tilt, nullptr);
  }
  const Spectrum& s = d.spectrum;
  const size_t cells = (size_t)(model.directions * s.padded);
  d.shift.assign((size_t)model.directions, 0.0);
  d.mean.assign((size_t)model.directions, 0.0);
  for (auto* x : {&d.rate_re, &d.rate_im, &d.rate_error}) x->assign(cells, 0.0);
  const int terms = (int)s.deviation.size();
  for (int r = 0; r < model.directions; r++) {
    double *re = &d.rate_re[(size_t)(r * s.padded)], *im = &d.rate_im[(size_t)(r * s.padded)];
    double* error = &d.rate_error[(size_t)(r * s.padded)];
    if (s.split) {
      d.mean[(size_t)r] = split_rates(kernels, logits, s, model.v_row(r), re, im, error);
      continue;
    }
    WeightedSums& w = sums[(size_t)r];
    if (terms + 1 > count) w = sum_weighted(kernels, logits, model.v_row(r), piece.tilt, terms + 1);
    const double shift = model.shifted ? w.weighted[1] / w.plain[1] : 0.0;
    for (int j = 0; j <= terms; j++) w.weighted[j] -= shift * w.plain[j];
    rate_from_chebyshev(s, w.weighted, terms, re, im, error);
    d.shift[(size_t)r] = shift;
    d.mean[(size_t)r] = (w.on - shift * w.likely_on) - 0.5 * w.weighted[0];
  }
  return d;
}

// A part of the posterior: a piece, or one end of the table.
struct Share {
  double share = 0;
  std::vector<double> level;  // d log of its weight, then of its share, per direction
};

// A piece with its derivatives.
struct Part : Share {
  DirectedSpectrum directed;
  Waves waves;
  PieceTangent tangent;
  Piece piece;
  std::vector<double> centre;  // what was subtracted from h: sum dG / Z
};

// Numbers here are far from the ends of their range.
inline double length_of(double x, double y) { return std::sqrt(x * x + y * y); }

// h(k) + shift (k - centre of the spectrum) where f is positive.
double directed_table(const Part& t, const TangentModel& model, int r, ptrdiff_t j) {
  if (!(t.waves.f[(size_t)j] > 0)) return 0;
  const ptrdiff_t k = t.waves.first + j;
  return model.table(r, k) + t.directed.shift[(size_t)r] * ((double)k - t.directed.spectrum.centre);
}

// dG along every direction.
void move_waves(const Logits& logits, const TangentModel& model, Part* t) {
  const Spectrum& s = t->directed.spectrum;
  const Waves& g = t->waves;
  const TurnsFrom turns(s, g.first);
  const size_t padded = (size_t)s.padded;
  PieceTangent& moved = t->tangent;
  moved.directions = model.directions;
  moved.bound.assign((size_t)model.directions, 0.0);
  for (auto* x : {&moved.re, &moved.im, &moved.error}) x->assign(padded * (size_t)model.directions, 0.0);
  std::vector<double> table(g.f.size());
  for (int r = 0; r < model.directions; r++) {
    double *re = &moved.re[r * padded], *im = &moved.im[r * padded], *error = &moved.error[r * padded];
    double mass = 0, size = std::fmax(moved.size[(size_t)r], 1e-300);
    for (ptrdiff_t j = 0; j < g.width; j++) {
      const double f = g.f[(size_t)j];
      table[(size_t)j] = f * directed_table(*t, model, r, j);
      mass += std::fabs(table[(size_t)j]);
      if (f > 0) size = std::fmax(size, f * std::fabs(model.table(r, g.first + j)));
    }
    moved.size[(size_t)r] = size;
    if (mass > 0) {
      logits.kernels->transform(turns.turns, table.data(), g.width, re, im);
      times_spectrum(s, g.table_error, mass, re, im, error);
    }
    double total = 0;
    for (size_t m = 0; m < padded; m++) {
      const double sr = t->directed.rate_re[r * padded + m], si = t->directed.rate_im[r * padded + m];
      re[m] += g.re[m] * sr - g.im[m] * si;
      im[m] += g.re[m] * si + g.im[m] * sr;
      error[m] += g.error[m] * length_of(sr, si) +
                  length_of(g.re[m], g.im[m]) * t->directed.rate_error[r * padded + m];
      total += re[m];
    }
    const double mean = total / g.value;
    for (size_t m = 0; m < padded; m++) {
      re[m] -= mean * g.re[m];
      im[m] -= mean * g.im[m];
      error[m] += kRoundOff * 4 * std::fabs(mean) * length_of(g.re[m], g.im[m]);
    }
    t->centre.push_back(mean);
    t->level.push_back(mean + t->directed.shift[(size_t)r] * s.centre + t->directed.mean[(size_t)r]);
  }
}

double largest_of(const double* x, ptrdiff_t n) {
  double largest = 0;
  for (ptrdiff_t i = 0; i < n; i++) largest = std::fmax(largest, std::fabs(x[i]));
  return largest;
}

// The ends of the table: all off and all on.
struct Ends {
  Share off, on;
};

Ends ends_of(const Logits& logits, const FlatSolution& s, const TangentModel& model, double log_total) {
  Ends e = {{std::exp(s.log_all_off - log_total), {}}, {std::exp(s.log_all_on - log_total), {}}};
  for (int r = 0; r < model.directions; r++) {
    long double total = 0;
    for (ptrdiff_t i = 0; e.on.share > 0 && i < logits.n; i++) total += model.v_row(r)[i];
    e.off.level.push_back(e.off.share > 0 ? model.table(r, 0) : 0.0);
    e.on.level.push_back(e.on.share > 0 ? (double)total + model.table(r, logits.n) : 0.0);
  }
  return e;
}

// Weights of pieces and ends are compared with the heaviest one, not with log Z, whose rounding would be common to all
// shares: they have to add up to one as closely as numbers can.
double log_total_weight(const FlatSolution& s) {
  double top = std::fmax(s.log_all_off, s.log_all_on), rest = 0;
  for (const Piece& piece : s.pieces) top = std::fmax(top, piece.log_weight);
  for (const Piece& piece : s.pieces) rest += std::exp(piece.log_weight - top);
  rest += std::exp(s.log_all_off - top) + std::exp(s.log_all_on - top);
  return top + (rest == 1 ? 0.0 : std::log(rest));
}

// Turns d log of the weights into d log of the shares: relative to the heaviest, then to the mean, so that nothing large
// cancels where one of them has almost all the weight.
void settle_shares(const std::vector<Share*>& all, int directions) {
  const auto lighter = [](const Share* a, const Share* b) { return a->share < b->share; };
  const Share* heaviest = *std::max_element(all.begin(), all.end(), lighter);
  for (size_t r = 0; r < (size_t)directions; r++) {
    const double level = heaviest->level[r];
    double mean = 0;
    for (Share* s : all) mean += s->share * (s->level[r] = s->share > 0 ? s->level[r] - level : 0.0);
    for (Share* s : all) s->level[r] -= mean;
  }
}

// P(z = k) and its derivatives on the window of a piece; returns the error of the former, adds that of the latter.
double piece_counts(const Logits& logits, const TangentModel& model, const Part& t, double* bound) {
  const Spectrum& s = t.directed.spectrum;
  const TurnsFrom turns(s, t.waves.first);
  const InverseTerms terms(s);
  const std::vector<double>&re = terms.re, &im = terms.im;
  std::vector<double> pmf((size_t)t.waves.width), moved((size_t)t.waves.width);
  logits.kernels->inverse(turns.turns, re.data(), im.data(), t.waves.width, pmf.data());
  const double scale = t.share / t.waves.value, wrong = pmf_error(s) * scale;
  if (model.counts)
    for (ptrdiff_t j = 0; j < t.waves.width; j++) model.counts[t.waves.first + j] += scale * t.waves.f[(size_t)j] * pmf[(size_t)j];
  for (int r = 0; r < model.directions && model.count_change; r++) {
    std::vector<double> turned_re(re.size()), turned_im(re.size());
    double largest = 0;
    for (size_t m = 0; m < re.size(); m++) {
      const double sr = t.directed.rate_re[(size_t)(r * s.padded) + m], si = t.directed.rate_im[(size_t)(r * s.padded) + m];
      turned_re[m] = re[m] * sr - im[m] * si;
      turned_im[m] = re[m] * si + im[m] * sr;
      largest = std::fmax(largest, length_of(sr, si));
    }
    logits.kernels->inverse(turns.turns, turned_re.data(), turned_im.data(), t.waves.width, moved.data());
    double* to = model.count_change + r * model.count_stride + t.waves.first;
    for (ptrdiff_t j = 0; j < t.waves.width; j++) {
      const double own = directed_table(t, model, r, j) - t.centre[(size_t)r] + t.level[(size_t)r];
      to[j] += scale * t.waves.f[(size_t)j] * (pmf[(size_t)j] * own + moved[(size_t)j]);
      largest = std::fmax(largest, t.waves.f[(size_t)j] * std::fabs(own));
    }
    bound[r] += wrong * largest;
  }
  return wrong;
}

void end_counts(const Logits& logits, const Ends& ends, const TangentModel& model) {
  if (model.counts) {
    model.counts[0] += ends.off.share;
    model.counts[logits.n] += ends.on.share;
  }
  for (int r = 0; r < model.directions && model.count_change; r++) {
    double* to = model.count_change + r * model.count_stride;
    to[0] += ends.off.share * ends.off.level[(size_t)r];
    to[logits.n] += ends.on.share * ends.on.level[(size_t)r];
  }
}

void apply(const Kernels& kernels, const Logits& logits, const TangentModel& model, const std::vector<Part>& pieces,
           const Ends& ends) {
  std::vector<TangentPieceView> views;
  for (const Part& t : pieces)
    views.push_back({view_of(t.piece, 0.0), t.share, (ptrdiff_t)t.piece.log_ratio.size() / (2 + model.directions),
                     t.directed.shift.data(), t.level.data(), t.tangent.re.data(), t.tangent.im.data()});
  const bool plain = views.size() == 1 && !views[0].split && ends.off.share == 0 && ends.on.share == 0;
  const TangentView view = {(int)views.size(), model.directions, views.data(), ends.on.share, ends.off.share,
                            ends.on.level.data(), ends.off.level.data()};
  in_chunks(logits, [&](ptrdiff_t from, ptrdiff_t length) {
    if (plain)
      kernels.flat->tangent_apply_plain(logits.nu + from, length, model.v + from, model.stride, views[0], model.directions,
                                   model.change + from, model.stride);
    else
      kernels.flat->tangent_apply(logits.nu + from, length, model.v + from, model.stride, view, model.change + from,
                             model.stride);
  });
}

}  // namespace

double series_tangent(const Kernels& kernels, int threads, const FlatSolution& solution, ptrdiff_t n,
                      const TangentModel& model) {
  const Logits logits = {kernels.flat, kernels.lanes, threads, model.nu, n};
  const double log_total = log_total_weight(solution);
  Ends ends = ends_of(logits, solution, model, log_total);
  std::vector<Part> pieces;
  std::vector<double> size((size_t)model.directions), bound((size_t)model.directions, 0.0);
  for (int r = 0; r < model.directions; r++) size[(size_t)r] = largest_of(model.v_row(r), n);
  double count_error = 0;
  for (const Piece& piece : solution.pieces) {
    Part t;
    t.share = std::exp(piece.log_weight - log_total);
    t.directed = directed_spectrum(kernels, logits, model, piece);
    const Spectrum& s = t.directed.spectrum;
    const ArrayTable table(logits.kernels, threads, model.log_f);
    if (!weave_table(logits, s, table, {piece.first, piece.first + piece.length - 1}, &t.waves)) return kInfinity;
    if (!(t.waves.value > 0)) return kInfinity;
    t.tangent.size = size;
    move_waves(logits, model, &t);
    t.piece.tilt = piece.tilt;
    t.piece.log_ratio = piece.log_ratio;
    if (model.change) solve_waves(logits, s, t.waves, &t.piece, &t.tangent);
    if (model.change && !(t.piece.bound < kInfinity)) return kInfinity;
    for (int r = 0; r < model.directions; r++) bound[(size_t)r] += 0.5 * t.share * t.tangent.bound[(size_t)r];
    pieces.push_back(std::move(t));
  }
  if (model.counts) std::fill_n(model.counts, n + 1, 0.0);
  for (int r = 0; r < model.directions && model.count_change; r++) std::fill_n(model.count_change + r * model.count_stride, n + 1, 0.0);
  std::vector<Share*> shares = {&ends.off, &ends.on};
  for (Part& t : pieces) shares.push_back(&t);
  settle_shares(shares, model.directions);
  for (const Part& t : pieces)
    if (model.counts || model.count_change) count_error += piece_counts(logits, model, t, bound.data());
  end_counts(logits, ends, model);
  if (model.change) apply(kernels, logits, model, pieces, ends);
  // The bounds of pieces are those of d log-odds. The error of Cov(y_i, s) is var(y_i) <= sd(y_i) / 2 times as large, so that
  // half of them as a share of the direction is a share of what could be there: |v| sd(y_i), whatever cancels.
  double worst = count_error;
  for (int r = 0; r < model.directions; r++) {
    double reference = 1e-300;
    for (const Part& t : pieces) reference = std::fmax(reference, t.tangent.size[(size_t)r]);
    if (model.change) reference = std::fmax(reference, largest_of(model.change + r * model.stride, n));
    if (model.count_change) reference = std::fmax(reference, largest_of(model.count_change + r * model.count_stride, n + 1));
    worst = std::fmax(worst, bound[(size_t)r] / reference);
  }
  return worst;
}

}  // namespace tallytree
