// Tangents of a flat model from its characteristic functions, one piece of the posterior after the other.
//
// With G_m = Phat_m F_m / N as in piece.cpp and H_m the transform of f h, the direction moves a piece's waves by
//   dG_m = G_m S_m + Phat_m H_m / N,
// and the leave-one-out message at a leaf t by a(t) + v d/dt log r(t), a = A_1 / F_1 - A_0 / F_0, where A_b are the
// sums F_b over dG_m. Both functions of t are Chebyshev series. Any multiple of G_m may be subtracted from dG_m.
#include "flat/tangent.hpp"

#include <algorithm>
#include <cmath>

#include "base/constants.hpp"

namespace tallytree {

namespace {

constexpr double kSeriesTail = 1e-13;
constexpr int kSplitTerms = 20;
constexpr double kVanishing = 1e-3;  // answers smaller than this share of the direction count as cancelled

// A piece with the derivatives of its waves and, fitted to them, its series.
struct PieceTangent {
  DirectedSpectrum directed;
  ptrdiff_t first = 0, width = 0;
  std::vector<double> table;                      // f on the window, at most 1
  std::vector<double> re, im, error;              // G
  std::vector<double> change_re, change_im, change_error;  // dG, per direction
  std::vector<double> level;                      // d log of the piece's weight, per direction
  std::vector<double> centre;                     // what was subtracted from h: sum dG / Z
  double value = 0, left_out = 0;
  int terms = 0;
  std::vector<double> log_ratio, slope, change, drift;
  std::vector<double> size;   // per direction: the largest of |v| and of f |h|
  std::vector<double> bound;  // per direction: of d log-odds
  double share = 0;
};

// Numbers here are far from the ends of their range.
inline double length_of(double x, double y) { return std::sqrt(x * x + y * y); }

// The window of the piece's table; false if nothing is in it.
bool take_table(const Logits& logits, const double* log_f, const Piece& piece, PieceTangent* t, double* table_error) {
  const Spectrum& s = t->directed.spectrum;
  t->first = std::max(piece.first, s.low);
  t->width = std::min(piece.first + piece.length - 1, s.high) - t->first + 1;
  if (t->width <= 0) return false;
  const double* inside = log_f + t->first;
  const double top = logits.kernels->max_table(inside, t->width, s.tilt, 0);
  if (!(top > -kInfinity)) return false;
  t->table.assign((size_t)(t->width + 8), 0.0);
  logits.kernels->exp_table(inside, t->width, s.tilt, 0, top, t->table.data());
  std::fill(t->table.begin() + t->width, t->table.end(), 0.0);
  *table_error = kRoundOff * (16 + std::fabs(top) + std::fabs(s.tilt) * (double)t->width);
  return true;
}

// h(k) + shift (k - centre of the spectrum) where f is positive.
double directed_table(const PieceTangent& t, const Directions& d, int r, ptrdiff_t j) {
  if (!(t.table[(size_t)j] > 0)) return 0;
  const ptrdiff_t k = t.first + j;
  return d.table(r, k) + t.directed.shift[(size_t)r] * ((double)k - t.directed.spectrum.centre);
}

void make_waves(const Logits& logits, const Directions& d, double table_error, PieceTangent* t) {
  const Spectrum& s = t->directed.spectrum;
  const TurnsFrom turns(s, t->first);
  const size_t padded = (size_t)s.padded;
  for (auto* x : {&t->re, &t->im, &t->error}) x->assign(padded, 0.0);
  for (auto* x : {&t->change_re, &t->change_im, &t->change_error}) x->assign(padded * (size_t)d.count, 0.0);
  logits.kernels->transform(turns.turns, t->table.data(), t->width, t->re.data(), t->im.data());
  t->left_out = std::exp(-kBudget + 2) * 4 * t->re[0];
  times_spectrum(s, table_error, t->re[0], t->re.data(), t->im.data(), t->error.data());
  for (double x : t->re) t->value += x;
  std::vector<double> moved(t->table.size());
  for (int r = 0; r < d.count; r++) {
    double *re = &t->change_re[r * padded], *im = &t->change_im[r * padded], *error = &t->change_error[r * padded];
    double mass = 0;
    for (ptrdiff_t j = 0; j < t->width; j++) {
      moved[(size_t)j] = t->table[(size_t)j] * directed_table(*t, d, r, j);
      mass += std::fabs(moved[(size_t)j]);
      if (t->table[(size_t)j] > 0)
        t->size[(size_t)r] = std::fmax(t->size[(size_t)r], t->table[(size_t)j] * std::fabs(d.table(r, t->first + j)));
    }
    t->size[(size_t)r] = std::fmax(t->size[(size_t)r], 1e-300);
    if (mass > 0) {
      logits.kernels->transform(turns.turns, moved.data(), t->width, re, im);
      times_spectrum(s, table_error, mass, re, im, error);
    }
    double total = 0;
    for (size_t m = 0; m < padded; m++) {
      const double sr = t->directed.rate_re[r * padded + m], si = t->directed.rate_im[r * padded + m];
      re[m] += t->re[m] * sr - t->im[m] * si;
      im[m] += t->re[m] * si + t->im[m] * sr;
      error[m] += t->error[m] * length_of(sr, si) +
                  length_of(t->re[m], t->im[m]) * t->directed.rate_error[r * padded + m];
      total += re[m];
    }
    const double mean = total / t->value;
    for (size_t m = 0; m < padded; m++) {
      re[m] -= mean * t->re[m];
      im[m] -= mean * t->im[m];
      error[m] += kRoundOff * 4 * std::fabs(mean) * length_of(t->re[m], t->im[m]);
    }
    t->centre.push_back(mean);
    t->level.push_back(mean + t->directed.shift[(size_t)r] * s.centre + t->directed.mean[(size_t)r]);
  }
}

WavesView waves_of(const PieceTangent& t, int directions) {
  const Spectrum& s = t.directed.spectrum;
  return {s.padded,      directions,           s.cos_w.data(),       s.sin_w.data(),         t.re.data(), t.im.data(),
          t.error.data(), t.change_re.data(), t.change_im.data(), t.change_error.data()};
}

// log r, its slope and the change along every direction at one leaf, to value[0], value[stride], ...; raises the bounds.
bool sample_leaf(const Kernels& kernels, double p, int directions, PieceTangent* t, double* value, ptrdiff_t stride) {
  double off[kMaxDirections], on[kMaxDirections], error[kMaxDirections];
  NodeSums sums = {0, 0, 0, 0, off, on, error};
  kernels.flat->tangent_node(waves_of(*t, directions), p, 1 - p, &sums);
  const double side = std::fmin(sums.off, sums.on), lost = sums.error + 4 * t->left_out;
  if (!(side > 2 * lost)) return false;
  value[0] = std::log(sums.on / sums.off);
  value[stride] = sums.slope;
  for (int r = 0; r < directions; r++) {
    const double a = on[r] / sums.on, b = off[r] / sums.off;
    value[(2 + r) * stride] = a - b;
    const double wrong = (error[r] + (std::fabs(a) + std::fabs(b)) * lost) / (side - lost);
    t->bound[(size_t)r] = std::fmax(t->bound[(size_t)r], 2 * wrong);
  }
  return true;
}

// Samples at the nodes of a series, family by family, `count` of each.
bool sample(const Kernels& kernels, int directions, int count, double (*leaf)(int, int), PieceTangent* t,
            std::vector<double>* value) {
  value->assign((size_t)(count * (2 + directions)), 0.0);
  for (int j = 0; j < count; j++)
    if (!sample_leaf(kernels, leaf(j, count), directions, t, &(*value)[(size_t)j], count)) return false;
  return true;
}

double chebyshev_node(int j, int count) { return chebyshev_cosines(count)[2 * j + 1]; }
double smooth_leaf(int j, int count) { return 0.5 + 0.5 * chebyshev_node(j, count); }
double rare_leaf(int j, int count) { return 0.5 * kLargeDeviation * (1 + chebyshev_node(j, count)); }
double frequent_leaf(int j, int count) { return 1 - rare_leaf(j, count); }

// Series of all families from their samples; returns the largest tail, relative to the families' sizes.
double fit(const std::vector<double>& value, int count, int directions, const PieceTangent& t,
           std::vector<double>* series) {
  series->assign(value.size(), 0.0);
  double worst = 0;
  for (int family = 0; family < 2 + directions; family++) {
    double* to = &(*series)[(size_t)(family * count)];
    chebyshev_fit(&value[(size_t)(family * count)], count, to);
    double tail = 0;
    for (int j = count - 3; j < count; j++) tail += std::fabs(to[j]);
    worst = std::fmax(worst, tail / (family < 2 ? 1.0 : t.size[(size_t)family - 2]));
  }
  return worst;
}

bool fit_smooth(const Kernels& kernels, const Piece& piece, int directions, PieceTangent* t) {
  int count = std::clamp((int)piece.log_ratio.size(), 8, kMaxNodes);
  std::vector<double> value, series;
  double tail = 0;
  for (;; count = std::min(2 * count, kMaxNodes)) {
    if (!sample(kernels, directions, count, smooth_leaf, t, &value)) return false;
    tail = fit(value, count, directions, *t, &series);
    if (tail <= kSeriesTail || count == kMaxNodes) break;
  }
  for (int r = 0; r < directions; r++) t->bound[(size_t)r] += 2 * tail * t->size[(size_t)r];
  const auto visible = [&](int j) {
    for (int family = 0; family < 2 + directions; family++)
      if (std::fabs(series[(size_t)(family * count + j)]) > 1e-17 * (family < 2 ? 1.0 : t->size[(size_t)family - 2]))
        return true;
    return false;
  };
  t->terms = count;
  while (t->terms > 1 && !visible(t->terms - 1)) t->terms--;
  const auto take = [&](int family, std::vector<double>* to) {
    const auto from = series.begin() + family * count;
    to->insert(to->end(), from, from + t->terms);
  };
  take(0, &t->log_ratio);
  take(1, &t->slope);
  for (int r = 0; r < directions; r++) take(2 + r, &t->change);
  return tail < 1e-9;
}

bool fit_split(const Kernels& kernels, const Logits& logits, int directions, PieceTangent* t) {
  constexpr int n = kSplitTerms;
  const Spectrum& s = t->directed.spectrum;
  t->terms = n;
  t->log_ratio.assign(2 * n, 0.0);
  t->slope.assign(2 * n, 0.0);
  t->change.assign((size_t)(2 * n * directions), 0.0);
  std::vector<double> value((size_t)(2 + directions)), series;
  for (int on = 0; on < 2; on++) {
    if ((on ? s.likely_on : (double)logits.n - (double)s.large.size() - s.likely_on) <= 0) continue;
    if (!sample(kernels, directions, n, on ? frequent_leaf : rare_leaf, t, &value)) return false;
    const double tail = fit(value, n, directions, *t, &series);
    if (!(tail < 1e-9)) return false;
    for (int r = 0; r < directions; r++) t->bound[(size_t)r] += 2 * tail * t->size[(size_t)r];
    std::copy_n(&series[0], n, &t->log_ratio[(size_t)(on * n)]);
    std::copy_n(&series[n], n, &t->slope[(size_t)(on * n)]);
    for (int r = 0; r < directions; r++)
      std::copy_n(&series[(size_t)((2 + r) * n)], n, &t->change[(size_t)((2 * r + on) * n)]);
  }
  for (const double p : s.large)  // for the bounds only
    if (!sample_leaf(kernels, p, directions, t, value.data(), 1)) return false;
  return true;
}

double largest_of(const double* x, ptrdiff_t n) {
  double largest = 0;
  for (ptrdiff_t i = 0; i < n; i++) largest = std::fmax(largest, std::fabs(x[i]));
  return largest;
}

// The ends of the table: all off and all on.
struct Ends {
  double off, on;               // shares
  std::vector<double> off_level, on_level;  // d log of their weights
};

Ends ends_of(const Logits& logits, const FlatSolution& s, const Directions& d, double log_total) {
  Ends e = {std::exp(s.log_all_off - log_total), std::exp(s.log_all_on - log_total), {}, {}};
  for (int r = 0; r < d.count; r++) {
    long double total = 0;
    if (e.on > 0)
      for (ptrdiff_t i = 0; i < logits.n; i++) total += d.v_row(r)[i];
    e.off_level.push_back(e.off > 0 ? d.table(r, 0) : 0.0);
    e.on_level.push_back(e.on > 0 ? (double)total + d.table(r, logits.n) : 0.0);
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
void settle_shares(std::vector<PieceTangent>& pieces, Ends& ends, int directions) {
  for (size_t r = 0; r < (size_t)directions; r++) {
    double heaviest = ends.off, level = ends.off_level[r];
    if (ends.on > heaviest) heaviest = ends.on, level = ends.on_level[r];
    for (const PieceTangent& t : pieces)
      if (t.share > heaviest) heaviest = t.share, level = t.level[r];
    ends.off_level[r] = ends.off > 0 ? ends.off_level[r] - level : 0.0;
    ends.on_level[r] = ends.on > 0 ? ends.on_level[r] - level : 0.0;
    double mean = ends.off * ends.off_level[r] + ends.on * ends.on_level[r];
    for (PieceTangent& t : pieces) {
      t.level[r] -= level;
      mean += t.share * t.level[r];
    }
    for (PieceTangent& t : pieces) t.drift.push_back(t.level[r] - mean);
    ends.off_level[r] -= mean;
    ends.on_level[r] -= mean;
  }
}

// P(z = k) and its derivatives on the window of a piece; returns the error of the former, adds that of the latter.
double piece_counts(const Logits& logits, const Directions& d, const PieceTangent& t, const TangentOut& out,
                    double* bound) {
  const Spectrum& s = t.directed.spectrum;
  const TurnsFrom turns(s, t.first);
  const InverseTerms terms(s);
  const std::vector<double>&re = terms.re, &im = terms.im;
  std::vector<double> pmf((size_t)t.width), moved((size_t)t.width);
  logits.kernels->inverse(turns.turns, re.data(), im.data(), t.width, pmf.data());
  const double scale = t.share / t.value, wrong = pmf_error(s) * scale;
  if (out.counts)
    for (ptrdiff_t j = 0; j < t.width; j++) out.counts[t.first + j] += scale * t.table[(size_t)j] * pmf[(size_t)j];
  for (int r = 0; r < d.count && out.count_change; r++) {
    std::vector<double> turned_re(re.size()), turned_im(re.size());
    double largest = 0;
    for (size_t m = 0; m < re.size(); m++) {
      const double sr = t.directed.rate_re[(size_t)(r * s.padded) + m], si = t.directed.rate_im[(size_t)(r * s.padded) + m];
      turned_re[m] = re[m] * sr - im[m] * si;
      turned_im[m] = re[m] * si + im[m] * sr;
      largest = std::fmax(largest, length_of(sr, si));
    }
    logits.kernels->inverse(turns.turns, turned_re.data(), turned_im.data(), t.width, moved.data());
    double* to = out.count_change + r * out.count_stride + t.first;
    for (ptrdiff_t j = 0; j < t.width; j++) {
      const double own = directed_table(t, d, r, j) - t.centre[(size_t)r] + t.drift[(size_t)r];
      to[j] += scale * t.table[(size_t)j] * (pmf[(size_t)j] * own + moved[(size_t)j]);
      largest = std::fmax(largest, t.table[(size_t)j] * std::fabs(own));
    }
    bound[r] += wrong * largest;
  }
  return wrong;
}

void end_counts(const Logits& logits, const Ends& ends, int directions, const TangentOut& out) {
  if (out.counts) {
    out.counts[0] += ends.off;
    out.counts[logits.n] += ends.on;
  }
  for (int r = 0; r < directions && out.count_change; r++) {
    double* to = out.count_change + r * out.count_stride;
    to[0] += ends.off * ends.off_level[(size_t)r];
    to[logits.n] += ends.on * ends.on_level[(size_t)r];
  }
}

void apply(const Kernels& kernels, const Logits& logits, const Directions& d, const std::vector<PieceTangent>& pieces,
           const Ends& ends, const TangentOut& out) {
  std::vector<TangentPieceView> views;
  for (const PieceTangent& t : pieces)
    views.push_back({t.directed.spectrum.tilt, t.share, t.directed.spectrum.split, t.terms, t.log_ratio.data(),
                     t.slope.data(), t.change.data(), t.directed.shift.data(), t.drift.data(), waves_of(t, d.count)});
  const bool plain = views.size() == 1 && !views[0].split && ends.off == 0 && ends.on == 0;
  const TangentView view = {(int)views.size(), d.count, views.data(), ends.on, ends.on_level.data()};
  in_chunks(logits, [&](ptrdiff_t from, ptrdiff_t length) {
    if (plain)
      kernels.flat->tangent_apply_plain(logits.nu + from, length, d.v + from, d.v_stride, views[0], d.count,
                                   out.change + from, out.change_stride);
    else
      kernels.flat->tangent_apply(logits.nu + from, length, d.v + from, d.v_stride, view, out.change + from,
                             out.change_stride);
  });
}

}  // namespace

double series_tangent(const Kernels& kernels, int threads, const FlatSolution& solution, const double* nu, ptrdiff_t n,
                      const double* log_f, const Directions& d, const TangentOut& out) {
  const Logits logits = {kernels.flat, kernels.lanes, threads, nu, n};
  const double log_total = log_total_weight(solution);
  Ends ends = ends_of(logits, solution, d, log_total);
  std::vector<PieceTangent> pieces;
  std::vector<double> size((size_t)d.count), bound((size_t)d.count, 0.0);
  for (int r = 0; r < d.count; r++) size[(size_t)r] = largest_of(d.v_row(r), n);
  double count_error = 0;
  for (const Piece& piece : solution.pieces) {
    PieceTangent t;
    double table_error;
    t.share = std::exp(piece.log_weight - log_total);
    t.directed = directed_spectrum(kernels, logits, d, piece);
    if (!take_table(logits, log_f, piece, &t, &table_error)) return kInfinity;
    t.size = size;
    t.bound.assign((size_t)d.count, 0.0);
    make_waves(logits, d, table_error, &t);
    if (!(t.value > 0)) return kInfinity;
    if (out.change && !(t.directed.spectrum.split ? fit_split(kernels, logits, d.count, &t)
                                                  : fit_smooth(kernels, piece, d.count, &t)))
      return kInfinity;
    for (int r = 0; r < d.count; r++) bound[(size_t)r] += t.share * t.bound[(size_t)r];
    pieces.push_back(std::move(t));
  }
  if (out.counts) std::fill_n(out.counts, n + 1, 0.0);
  for (int r = 0; r < d.count && out.count_change; r++) std::fill_n(out.count_change + r * out.count_stride, n + 1, 0.0);
  settle_shares(pieces, ends, d.count);
  for (const PieceTangent& t : pieces)
    if (out.counts || out.count_change) count_error += piece_counts(logits, d, t, out, bound.data());
  end_counts(logits, ends, d.count, out);
  if (out.change) apply(kernels, logits, d, pieces, ends, out);
  // Errors are measured against the largest entry of an answer, unless all of them vanish.
  double worst = count_error;
  for (int r = 0; r < d.count; r++) {
    double reference = 1e-300;
    for (const PieceTangent& t : pieces) reference = std::fmax(reference, kVanishing * t.size[(size_t)r]);
    if (out.change) reference = std::fmax(reference, largest_of(out.change + r * out.change_stride, n));
    if (out.count_change) reference = std::fmax(reference, largest_of(out.count_change + r * out.count_stride, n + 1));
    worst = std::fmax(worst, bound[(size_t)r] / reference);
  }
  return worst;
}

}  // namespace tallytree
