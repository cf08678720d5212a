// The flat solver: E f(z) and all leave-one-out messages for z a sum of independent Bernoulli variables.
#pragma once
#include <memory>

#include "base/kernels.hpp"
#include "flat/source.hpp"

namespace tallytree {

// The logarithm of a potential as the solver sees it: on windows, and by its largest value under a slope. A potential
// over 10^9 variables need not have a table of that length.

// Counts first .. last; none if last < first.
struct Range {
  ptrdiff_t first, last;
  bool empty() const { return last < first; }
};

// The first and the last entry above -inf; count and -1 if there is none.
ptrdiff_t first_possible(const FlatKernels& kernels, const double* log_f, ptrdiff_t count);
ptrdiff_t last_possible(const FlatKernels& kernels, const double* log_f, ptrdiff_t count);

class CountTable {
 public:
  virtual double at(ptrdiff_t k) const = 0;
  // log f at first, first + 1, ...; valid until `room` is changed.
  virtual const double* window(ptrdiff_t first, ptrdiff_t length, std::vector<double>* room) const = 0;
  // Largest log f(k) - slope (k - origin) of the range; -inf if it is empty or impossible.
  virtual double largest(Range range, double slope, double origin) const = 0;
  // First and last possible count of the range.
  virtual Range possible(Range range) const = 0;
  virtual bool any_possible(Range range) const { return !possible(range).empty(); }

 protected:
  ~CountTable() = default;
};

// A table in memory, counts first, first + 1, ...
class ArrayTable final : public CountTable {
 public:
  ArrayTable(const FlatKernels* kernels, int threads, const double* log_f, ptrdiff_t first = 0)
      : kernels_(kernels), threads_(threads), log_f_(log_f), first_(first) {}
  double at(ptrdiff_t k) const override { return log_f_[k - first_]; }
  const double* window(ptrdiff_t first, ptrdiff_t, std::vector<double>*) const override {
    return log_f_ + (first - first_);
  }
  double largest(Range range, double slope, double origin) const override;
  Range possible(Range range) const override;
  bool any_possible(Range range) const override;

 private:
  const FlatKernels* kernels_;
  int threads_;
  const double* log_f_;
  ptrdiff_t first_;
};

// The flat solver: E f(z) and all leave-one-out messages for z a sum of independent Bernoulli variables.

// log sum_i of the norms: K(0) = softplus(totals) needs a pass with tilt 0.
inline double softplus(const FlatTotals& untilted) { return untilted.positive + untilted.log_norm; }

// K(s) - K(0) - s k, from sums that do not cancel, and K(s) - s k, in which large logits may cancel exactly.
struct TiltNorm {
  double tilt = 0, likely_on = 0, rest = 0, magnitude = 0, plain = 0;
  double whole_minus(double k) const { return tilt * (likely_on - k) + plain; }
  double minus(double k) const { return tilt * (likely_on - k) + rest; }
  // Rounding that differs between tilts; K(0) is common to all.
  double error(double k) const { return 2.2204460492503131e-16 * (std::fabs(tilt * (likely_on - k)) + magnitude); }
};
inline TiltNorm tilt_norm(const FlatTotals& untilted, const FlatTotals& tilted, double tilt) {
  if (tilt == 0) return {0, 0, 0, 0, softplus(untilted)};
  const double on = (untilted.positive + tilted.positive) + (untilted.positive_lost + tilted.positive_lost);
  return {tilt, tilted.likely_on, tilted.positive + (tilted.log_norm - untilted.log_norm),
          std::fabs(tilted.positive) + tilted.log_norm, on + tilted.log_norm};
}

// The characteristic function of the tilted count on the frequencies that matter, centred at `centre`.
struct Spectrum {
  double tilt, mean, variance;
  TiltNorm tilt_norm;
  ptrdiff_t low, high;         // counts outside carry less than 2 exp(-kBudget)
  ptrdiff_t period;            // N; w_m = 2 pi m / N
  double centre;
  int frequencies, padded;     // m = 0 .. frequencies - 1; arrays are zero up to `padded`
  std::vector<double> w, cos_w, sin_w, cos_lanes, sin_lanes, re, im;  // lanes: e^{i w lanes}
  std::vector<double> lane_error_re, lane_error_im;  // relative rounding error of e^{i w lanes} as it is stored
  bool split;                  // small variance: deviations above kLargeDeviation were treated one by one
  std::vector<double> large;   // p of those
  double likely_on;            // small deviations whose likely state is on
  std::vector<double> deviation;  // the sums behind it
  // Lower bounds of P(k-1) / P(k) at low and above, and of P(k+1) / P(k) at high and below; see bound_ratios.
  double ratio_below = 0, ratio_above = 0;
};
constexpr double kBudget = 44;
constexpr double kSmallVariance = 50;  // below it a spectrum is split
// `variance` is what is expected of it, if anything.
Spectrum spectrum(const Source& source, const FlatTotals& untilted, double tilt, const Sums* known,
                  double variance = 0);

// Round-off of log Phat_m: base + slope w_m, in absolute terms.
struct SpectrumError {
  double base, slope;
};
SpectrumError spectrum_error(const Spectrum& s);
// (re, im) *= share_m Phat_m, and to `error` the error that Phat and the table bring in.
void times_spectrum(const Spectrum& s, double table_error, double mass, double* re, double* im, double* error);
constexpr double kRoundOff = 1.1102230246251565e-16;

// The part of the posterior whose counts are solved under one tilt.
struct Piece {
  double tilt = 0, log_weight = 0, bound = __builtin_inf();
  double log_total = 0;  // its part of Z itself: log_weight is relative to K(0)
  double weight_error = 0;  // of log_weight, by rounding; matters where pieces are compared
  double least_side = 0;  // min over leaves of d(0) / Z, d(1) / Z, in the tilted frame
  double amplification = 0;    // what an error of the table, as a share of Z, becomes in a leaf's log-odds
  double largest_message = 0;
  bool split = false;
  int terms = 0;
  int sums = 0;                      // deviation sums that its spectrum was made of
  ptrdiff_t first = 0, length = 0;  // its counts
  std::vector<double> log_ratio;                     // series, two of them when split
  std::vector<double> wave_re, wave_im, cos_w, sin_w;  // only when split
};
// A table on a window of counts, and G_m = Phat_m F_m / N: see piece.cpp.
struct Waves {
  std::vector<double> f;           // the table on the window, at most 1, and zeros up to a multiple of 8
  ptrdiff_t first = 0, width = 0;  // the window
  double table_error = 0;          // its rounding
  std::vector<double> re, im, error;
  double value = 0;     // Z
  double total = 0;     // error of Z by round-off
  double left_out = 0;  // absolute error of Z, d(0), d(1) by truncation
  double log_scale = 0, whole_scale = 0, scale_error = 0;
};
// False if the table allows nothing in the window.
bool weave_table(const Source& source, const Spectrum& s, const CountTable& table, Range counts, Waves* waves);

// How directions move a piece. Its series then hold those of the slope of log r and of its changes too: see
// TangentPieceView.
struct PieceTangent {
  int directions = 0;
  std::vector<double> re, im, error;  // dG_m, (directions, padded)
  std::vector<double> size, bound;    // per direction: the largest of |v| and of f |h|; the error of d log-odds
};
// The series of a piece at its waves; without an answer its bound stays infinite. `tangent` may be null.
void solve_waves(const Source& source, const Spectrum& s, const Waves& waves, Piece* piece, PieceTangent* tangent);
// The table on `counts`; all others have probability 0. Mass that the window leaves out is part of the bound.
Piece solve_piece(const Source& source, const Spectrum& s, const CountTable& table, Range counts);

// cos_w, sin_w, cos_lanes, sin_lanes and their errors from the period and the number of frequencies.
void fill_frequencies(int lanes, Spectrum* s);

// Roots of unity to the last bit: all rotations of a spectrum are powers of one of them.
// Where roots go: `cos` and `sin`, and, unless null, what is to be taken from them to have the exact numbers.
struct RootsTo {
  double *cos, *sin, *off_cos, *off_sin;
};
// e^{2 pi i m step / period} for m < count.
void roots_of_unity(ptrdiff_t period, ptrdiff_t step, int count, const RootsTo& out);
// tan(2 pi m / (4 period)) for m < count, count <= (period + 1) / 2.
void quarter_tangents(ptrdiff_t period, int count, double* out);

// The rotations of a sum over the counts first, first + 1, ...
struct TurnsFrom {
  std::vector<double> cos_first, sin_first;
  Turns turns;
  TurnsFrom(const Spectrum& s, ptrdiff_t first);
  TurnsFrom(const TurnsFrom&) = delete;
};

// Sets the two ratios of a spectrum. Without leaf i, P_i(k) / P(k) = 1 / (q + p P_i(k-1) / P_i(k)), and the ratio
// P_i(k-1) / P_i(k) is at least P(k-1) / P(k) because P_i is log-concave. So an error of a table f at count k that
// shifts sum_k f(k) P(k) by a share h of Z shifts sum_k f(k) P_i(k) by at most h Z / (q + p ratio_below).
void bound_ratios(const Source& source, Spectrum* s);
// Absolute error of every probability that the inverse transform of the spectrum gives.
double pmf_error(const Spectrum& s);
// The part of it that is alike at all counts; the rest is an error of the cumulants, which moves P(k) by about the share
// slope |k - mean| / variance of itself.
double pmf_noise(const Spectrum& s);
// The terms of the inverse transform, times `norm`: P_s(k) is the sum of their real parts, turned to k.
struct InverseTerms {
  std::vector<double> re, im;  // as long as the spectrum's
  explicit InverseTerms(const Spectrum& s, double norm = 1);
};
// P_s(first), P_s(first + 1), ... by the inverse transform; the window low .. high holds them all.
void spectrum_pmf(const FlatKernels& kernels, const Spectrum& s, ptrdiff_t first, ptrdiff_t length, double* out);

// A piece whose table is given as plain numbers on (part of) the window; `outside` bounds the table elsewhere, and f has
// zeros up to a multiple of 8. Without an answer its bound is infinite.
Piece solve_linear(const Source& source, const Spectrum& s, const double* f, ptrdiff_t first, ptrdiff_t length,
                   double outside);
FlatPieceView view_of(const Piece& piece, double log_share);

// Chebyshev coefficients from values at x_i = cos(pi (i + 1/2) / count).
void chebyshev_fit(const double* value, int count, double* series);
// cos(k pi / (2 count)) for k < 4 count; the nodes are those of odd k. At most kMaxNodes + kMoreNodes.
const double* chebyshev_cosines(int count);

enum class FlatKind { impossible, ends, series, direct, powers };

struct FlatSolution {
  FlatKind kind = FlatKind::impossible;
  double log_mean = -__builtin_inf(), softplus = 0, bound = 0;
  double log_norm = __builtin_nan("");  // log Z; series only. log_mean + softplus may lose digits
  std::vector<Piece> pieces;
  double log_all_off = -__builtin_inf(), log_all_on = -__builtin_inf();  // logs of f(0) P(0), f(n) P(n)
  double sum_logits = 0;
  double largest_logit = 0;       // not below any |nu|
  double tilt = 0;                // direct: tilt, leave-one-out ratios and marginals, n of each
  double *ratio = nullptr, *marginal = nullptr;  // in `own`, or in memory shared by the rows of a batch
  std::vector<double> own;
  std::unique_ptr<PowerForm> powers;
  bool any_infinite = false;
  double message_excluded = 0, message_forced = 0;  // of variables with infinite logits
};

// Solve: the ladder of series, from sums alone.
FlatSolution solve_series(const Source& source, const CountTable& table, const Sums& untilted);
// f(c) = sum_j a_j r_j^c, r_j >= -1, from the sums over n logits; the bound is infinite where terms may cancel.
void solve_powers(ptrdiff_t n, const PowerSums& sums, const double* coefficient, const double* rate, int terms,
                  FlatSolution* solution);
int sums_needed(double variance);    // deviation sums that the spectrum needs
int sums_expected(double variance);  // the same from about the variance
int first_sums(ptrdiff_t n);         // when nothing is known
int nodes_to_begin(double variance);  // nodes at which the leave-one-out ratio is sampled first
// Outcome of the ladder beyond tilt 0: several tilts (hull.cpp).
void solve_by_segments(const Source& source, const Sums& untilted, const CountTable& table, FlatSolution* solution);
// Variables below the first logit are off and those above the second on, but for a share of e^-50 of the weight of all that
// any of them, or anybody else, can see.
struct OpenLogits {
  double low = -__builtin_inf(), high = __builtin_inf();
};
OpenLogits open_logits(const Source& source, const FlatTotals& untilted, const CountTable& table);
// A tilt whose mean is about the posterior mean; false if there is no interior support.
bool posterior_tilt(const Source& source, const FlatTotals& untilted, const CountTable& table, double* tilt);

// Bounds above this are worth another rung of the ladder.
constexpr double kTolerance = 5e-11;
// Bounds are first order; larger ones certify nothing.
constexpr double kMeaningful = 1e-6;

enum class Wanted { marginals, messages, log_odds };  // P(y_i = 1); posterior log-odds less the logits; posterior log-odds

// A solution that needs nothing but a logit to answer for its variable: made ready once, used for any part of the logits.
// It borrows the solution. Direct trees list their answers instead, see flat_answers.
class FlatMap {
 public:
  FlatMap(const FlatKernels* kernels, const FlatSolution& solution);
  FlatMap(const FlatMap&) = delete;
  void answer(const double* nu, ptrdiff_t n, Wanted wanted, double* out) const;

 private:
  bool smooth() const;
  const FlatKernels* kernels_;
  const FlatSolution& solution_;
  std::vector<FlatPieceView> piece_;
  FlatMixtureView mixture_;
  std::vector<double> ratio_;  // series of r itself, of one smooth piece
};

// A chunk of any logits, infinite ones too, in single or double precision; on threads, block by block.
template <class T>
void map_chunk(const FlatMap& map, int threads, const T* nu, ptrdiff_t n, Wanted wanted, T* out);

// A solution without a direct tree as plain numbers, and back.
std::vector<double> packed(FlatSolution& solution);
FlatSolution unpacked(const double* numbers);

bool marginals_known(const FlatSolution& solution);  // a direct tree's, where plain numbers can hold the odds
void flat_answers(const Logits& logits, const FlatSolution& solution, Wanted wanted, double* out);
void flat_log_pmf(const Logits& logits, double* out);

// The logits as far as tilts are concerned: a histogram that knows the mean and the spread inside each bin.
//
// It serves to choose tilts, where nothing depends on its accuracy, and to bound K(s) from above, which is rigorous:
// inside a bin, K is at most its value at the mean plus half the spread times the largest K'' of the bin.
struct Tilt {
  double s, log_norm /* K(s), from above */, mean, variance;
  double rate() const { return s * mean - log_norm; }
};

class LogitSummary {
 public:
  LogitSummary(const Source& source, const FlatTotals& untilted);
  // For a search that looks at many tilts: wider bins, where they are much fewer than what there is.
  void gather();
  Tilt at(double s) const;
  // The tilt whose mean is about `target`, 0 < target < n.
  Tilt with_mean(double target, double start) const;
  // The same to a tenth of a standard deviation, and without log_norm.
  Tilt roughly_with_mean(double target) const;

 private:
  void add(const Bin& bin, double low, double step);
  void take_all(std::vector<double> logits);
  void divide(double* x, ptrdiff_t n, double* room);
  void moments(double s, bool with_norm, double* out) const;
  // The tilt whose mean is within `near` standard deviations of `target`; `found` are its mean and variance.
  double solve(double target, double start, double near, double* found) const;
  const FlatKernels* kernels_;
  std::vector<double> value_, weight_, spread_;
  std::vector<double> weight_above_, sum_above_;  // from every bin on, where they are in increasing order; else empty
  double count_, growth_ = 1, smallest_, largest_;
};

}  // namespace tallytree
