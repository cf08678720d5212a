#include "tree/spectral_blocks.hpp"

#include <algorithm>
#include <cmath>

namespace tallytree {

namespace {

constexpr int32_t kFiniteLeast = 32;  // below that the rest of the group is better off in the tree
constexpr double kLostAtMost = -998;  // log2 of what underflow may take from a gradient scaled to about 1

void no_messages(const WaveBlock& wave, TreeItem& item) {
  for (int32_t j = 0; j < wave.count; j++) item.messages[wave.leaves[j]] = 0.0;
  item.notes[wave.node].block_bound = kInfinity;
}

bool leave_out_infinite(const WaveBlock& wave, const double* nu, WaveState* state) {
  std::vector<double> values;
  for (int32_t j = 0; j < wave.count; j++) {
    const double x = nu[wave.leaves[j]];
    state->forced += x == kInfinity;
    if (!std::isfinite(x)) continue;
    values.push_back(x);
    state->finite.push_back(j);
  }
  state->gathered = std::move(values);
  state->logits.nu = state->gathered.data();
  state->logits.n = (ptrdiff_t)state->gathered.size();
  return state->logits.n >= kFiniteLeast;
}

void write_messages(const Logits& logits, const Piece& piece, double* out) {
  if (!piece.split)
    return logits.kernels->messages_plain(logits.nu, logits.n, piece.tilt, piece.log_ratio.data(), piece.terms, out);
  const FlatPieceView view = view_of(piece, 0.0);
  const FlatMixtureView only = {1, &view, -kInfinity, -kInfinity};
  logits.kernels->mixture_answers(logits.nu, logits.n, only, false, out);
}

}  // namespace

bool prepare_wave(const Kernels& kernels, int threads, const WaveBlock& wave, const double* nu, double tilt,
                  bool cavities, WaveState* state) {
  const double* values = nu + wave.leaves[0];
  if (!wave.side_by_side) {
    state->gathered.resize((size_t)wave.count);
    for (int32_t j = 0; j < wave.count; j++) state->gathered[(size_t)j] = nu[wave.leaves[j]];
    values = state->gathered.data();
  }
  state->logits = {kernels.flat, kernels.lanes, threads, values, wave.count};
  Sums untilted = state->logits.sums(0, first_sums(wave.count));
  if (untilted.totals.infinite > 0) {
    if (cavities || !leave_out_infinite(wave, nu, state)) return false;
    untilted = state->logits.sums(0, first_sums(state->logits.n));
  }
  state->spectrum = spectrum(state->logits, untilted.totals, tilt, tilt == 0 ? &untilted : nullptr);
  bound_ratios(state->logits, &state->spectrum);
  return true;
}

Interval possible_counts(const WaveState& state) {
  return {state.forced, state.forced + (int32_t)state.logits.n};
}

// The weights of a tilted pass are q and p e^s, so its messages are those of the tilted law times e^{K(s) - K(0)}, and
// e^s for every forced variable.
void wave_up(const TreeKernels& kernels, const WaveBlock& wave, const WaveState& state, TreeItem& item,
             Worker& worker) {
  const Spectrum& s = state.spectrum;
  const Interval support = item.support[item.tree->leaves + wave.node];
  const ptrdiff_t low = std::max<ptrdiff_t>(s.low, support.lo - state.forced);
  const ptrdiff_t high = std::min<ptrdiff_t>(s.high, support.hi - state.forced);
  const double log_norm = s.tilt_norm.minus(0) + item.tilt * state.forced, scale = std::round(log_norm / kLn2);
  const double norm = std::exp(log_norm - scale * kLn2);
  WaveMessage message = {worker.scratch, (int32_t)low + state.forced, (int32_t)(high - low + 1), scale, norm,
                         norm * pmf_error(s),
                         norm * std::exp(-kBudget + 2)};
  if (message.length <= 0) {  // the counts that are possible lie too far out
    message = {worker.scratch, support.lo, 1, 0.0, 0.0, kInfinity, kInfinity};
    message.value[0] = 0;
    kernels.wave_up(item, worker, wave.node, message);
    item.notes[wave.node].lost_up = kInfinity;
    return;
  }
  const InverseTerms terms(s, norm);
  state.logits.kernels->inverse(TurnsFrom(s, low).turns, terms.re.data(), terms.im.data(), message.length, message.value);
  for (int32_t k = 0; k < message.length; k++) message.value[k] = std::fmax(message.value[k], 0.0);
  kernels.wave_up(item, worker, wave.node, message);
}

void wave_down(const TreeKernels& kernels, const WaveBlock& wave, const WaveState& state, TreeItem& item,
               Worker& worker) {
  NodeNotes& note = item.notes[wave.node];
  const Message& down = item.down[wave.node];
  double* g = worker.scratch;
  kernels.wave_gradient(item, worker, wave.node, g);
  const Piece piece = solve_linear(state.logits, state.spectrum, g, down.lo - state.forced, down.length,
                                   note.outside_table * note.down_limit);
  if (!(piece.bound < kInfinity)) return no_messages(wave, item);
  note.block_amplification = piece.amplification;
  note.block_message = piece.largest_message + std::fabs(item.tilt);
  note.block_bound = piece.bound + note.path_error * piece.amplification;
  const double lost = std::fmax(note.lost_down + 1, kLostAtMost);
  note.block_bound += lost > 0 ? kInfinity : 4 * std::exp2(lost) / (piece.least_side * std::exp(piece.log_weight));
  if (!(note.block_bound >= 0)) note.block_bound = kInfinity;

  if (state.gathered.empty()) return write_messages(state.logits, piece, item.messages + wave.leaves[0]);
  std::vector<double> messages(state.gathered.size());
  write_messages(state.logits, piece, messages.data());
  if (state.finite.empty()) {
    for (int32_t j = 0; j < wave.count; j++) item.messages[wave.leaves[j]] = messages[(size_t)j];
    return;
  }
  for (int32_t j = 0; j < wave.count; j++) item.messages[wave.leaves[j]] = item.nu[wave.leaves[j]];
  for (size_t j = 0; j < messages.size(); j++) item.messages[wave.leaves[state.finite[j]]] = messages[j];
}

// Sums of many independent counts.
//
// The count of the star is the sum of its children's, so its characteristic function is the product of theirs, and with
// a variance V only frequencies up to about sqrt(2 nats / V) matter. That must be proved, because children may live on a
// lattice (all of them even, say). Pair the counts k and k + h of a message p: then |p(k) + p(k+h) e^{iwh}| is at most
// (a + b) - (1 - cos hw) a b / (a + b) with a = p(k), b = p(k+h), so
//   |phat(w)| <= 1 - (1 - cos hw) b_h <= exp(-(1 - cos hw) b_h),  b_h = sum over pairs of a b / (a + b),
// and the shifts h together cover all frequencies. Tails of the sum are cut where Chernoff's bound allows.

namespace {

constexpr double kNats = 46;          // what is left out is below e^-46
constexpr double kLeastVariance = 100;
constexpr double kLeastFactor = 0.02;  // smallest |phat| of a child at the frequencies in use
constexpr int kMostFrequencies = 192;

// re + i im times a + i b.
void multiply(double& re, double& im, double a, double b) {
  const double old = re;
  re = old * a - im * b;
  im = old * b + im * a;
}

struct Totals {
  double variance = 0, mean_offset = 0, lost = -kInfinity;
  double spread = 0;  // largest standard deviation of a child's count
  double overlap[kStarShiftCount] = {}, largest_overlap[kStarShiftCount] = {};
  int32_t longest = 0;
  ptrdiff_t lowest = 0, highest = 0;
};

// Children in pieces of fixed size, on all workers if the star is worked on alone.
template <class Task>
void over_children(size_t children, std::vector<Worker>& workers, int thread, bool alone, const Task& task) {
  constexpr size_t kPiece = 16;
  const size_t pieces = (children + kPiece - 1) / kPiece;
  const auto piece = [&](size_t k, int t) {
    for (size_t c = k * kPiece; c < std::min(children, (k + 1) * kPiece); c++) task(c, workers[(size_t)t]);
  };
  if (alone)
    run_tasks(pieces, (int)workers.size(), piece);
  else
    for (size_t k = 0; k < pieces; k++) piece(k, thread);
}

bool total_up(const Kernels& kernels, const Star& star, const TreeItem& item, std::vector<Worker>& workers, int thread,
              bool alone, Totals* totals) {
  std::vector<ChildShape> shape(star.children.size());
  for (const int32_t child : star.children)
    if (!(item.notes[child].sum > 0)) return false;
  over_children(shape.size(), workers, thread, alone, [&](size_t c, Worker&) {
    const Message& up = item.up[star.children[c]];
    kernels.tree->child_shape(up.value, up.length, item.notes[star.children[c]].sum, &shape[c]);
  });
  for (size_t c = 0; c < shape.size(); c++) {
    const Message& up = item.up[star.children[c]];
    totals->variance += shape[c].variance;
    totals->spread = std::max(totals->spread, std::sqrt(shape[c].variance));
    totals->mean_offset += shape[c].mean / (double)shape.size();
    totals->lost = std::max(totals->lost, item.notes[star.children[c]].lost_up);
    totals->longest = std::max(totals->longest, up.length);
    totals->lowest += up.lo;
    totals->highest += up.lo + up.length - 1;
    for (int j = 0; j < kStarShiftCount; j++) {
      totals->overlap[j] += shape[c].overlap[j];
      totals->largest_overlap[j] = std::max(totals->largest_overlap[j], shape[c].overlap[j]);
    }
  }
  return totals->variance >= kLeastVariance;
}

// From here to pi the product of all children but any one is below e^-kNats; 2 pi if that cannot be shown.
double last_frequency(const Totals& totals) {
  double edge = kPi;
  for (int j = 0; j < kStarShiftCount; j++) {
    const double left = totals.overlap[j] - totals.largest_overlap[j];
    if (!(left > kNats / 2)) continue;
    const double h = kStarShifts[j], x = std::acos(1 - kNats / left);  // 1 - cos(h w) >= kNats / left on [x, 2 pi - x]
    if ((2 * kPi - x) / h >= edge) edge = std::min(edge, x / h);
  }
  return edge < kPi ? edge : 2 * kPi;
}

// Counts to keep, by Chernoff's bound at both ends.
bool find_window(const Kernels& kernels, const Star& star, const TreeItem& item, std::vector<Worker>& workers,
                 int thread, bool alone, const Totals& totals, ptrdiff_t centre, int32_t offset, Spectrum* grid) {
  const double s = std::sqrt(2 * kNats / totals.variance);
  if (s * totals.longest > 600) return false;
  const size_t children = star.children.size();
  std::vector<double> right(children), left(children);
  over_children(children, workers, thread, alone, [&](size_t c, Worker&) {
    const Message& up = item.up[star.children[c]];
    const double sum = item.notes[star.children[c]].sum;
    right[c] = kernels.tree->child_log_mgf(up.value, up.length, sum, s, offset);
    left[c] = kernels.tree->child_log_mgf(up.value, up.length, sum, -s, offset);
  });
  double above = kNats, below = kNats;
  for (size_t c = 0; c < children; c++) above += right[c], below += left[c];
  if (!(std::isfinite(above) && std::isfinite(below))) return false;
  grid->low = std::max(totals.lowest, centre - (ptrdiff_t)std::ceil(below / s));
  grid->high = std::min(totals.highest, centre + (ptrdiff_t)std::ceil(above / s));
  return grid->low <= grid->high;
}

// A sum over a child's counts turns by e^{-iw lanes} from vector to vector. The stored rotation is off by a relative e,
// the same for all children, so entries in vector v are off by v e and the product of all children by e times the sum
// of their mean v. That is known and taken out; what remains for a child is the spread of v around its mean.
void settle_errors(const Kernels& kernels, const Totals& totals, size_t children, StarState* state) {
  const Spectrum& grid = state->grid;
  const double lanes = kernels.lanes, count = (double)children;
  const bool corrected = totals.longest <= kRotorRestart * kernels.lanes;
  const double mean = corrected ? count * std::max(0.0, (totals.mean_offset - 0.5 * (lanes - 1)) / lanes) : 0.0;
  const double spread = corrected ? 2 * totals.spread / lanes + 1 : (double)kRotorRestart;
  for (auto* v : {&state->relative_error, &state->drift_re, &state->drift_im}) v->assign((size_t)grid.padded, 0.0);
  for (int m = 0; m < grid.frequencies; m++) {
    const double re = grid.lane_error_re[m], im = -grid.lane_error_im[m];  // conjugated, like the children
    state->drift_re[(size_t)m] = 1 - mean * re;
    state->drift_im[(size_t)m] = -mean * im;
    // Other errors of the children, at most 16 units each, are independent, but for one unit of the first rotation.
    state->relative_error[(size_t)m] =
        kRoundOff * (16 * std::sqrt(count) + count) + count * spread * std::hypot(re, im);
  }
}

}  // namespace

bool star_up(const Kernels& kernels, const Star& star, TreeItem& item, std::vector<Worker>& workers, int thread,
             bool alone, StarState* state) {
  Totals totals;
  if (!total_up(kernels, star, item, workers, thread, alone, &totals)) return false;
  const size_t children = star.children.size();
  const int32_t offset = (int32_t)std::lround(totals.mean_offset);
  const ptrdiff_t centre = totals.lowest + (ptrdiff_t)children * offset;
  Spectrum& grid = state->grid;
  if (!find_window(kernels, star, item, workers, thread, alone, totals, centre, offset, &grid)) return false;
  grid.centre = 0;
  grid.period = (grid.high - grid.low + totals.longest + 9) | 1;
  const double widest = last_frequency(totals);
  grid.frequencies = 1 + (int)std::min(std::ceil(widest * (double)grid.period / (2 * kPi)), 1e6);
  if (grid.frequencies > kMostFrequencies || 2 * grid.frequencies > grid.period) return false;
  fill_frequencies(kernels.lanes, &grid);

  // Characteristic functions of the children, conjugated: sum_k p(k) e^{-iw (k - lo - offset)}.
  const size_t padded = (size_t)grid.padded;
  state->re.resize(children * padded);
  state->im.resize(children * padded);
  const TurnsFrom turns(grid, -offset);
  std::vector<double> sums(children);
  over_children(children, workers, thread, alone, [&](size_t c, Worker&) {
    const Message& up = item.up[star.children[c]];
    double *re = &state->re[c * padded], *im = &state->im[c * padded];
    kernels.flat->transform(turns.turns, up.value, up.length, re, im);
    sums[c] = re[0];
    const double inverse = 1 / re[0];
    for (int m = 0; m < grid.frequencies; m++) {
      re[m] = m ? re[m] * inverse : 1.0;
      im[m] = m ? im[m] * inverse : 0.0;
    }
  });
  std::fill(grid.re.begin(), grid.re.end(), 1.0);
  state->least.assign(padded, 1.0);
  double norm = 1, scale = 0;  // product of the sums
  for (size_t c = 0; c < children; c++) {
    for (size_t m = 0; m < padded; m++) {
      const double re = state->re[c * padded + m], im = state->im[c * padded + m];
      multiply(grid.re[m], grid.im[m], re, im);
      state->least[m] = std::min(state->least[m], re * re + im * im);
    }
    int exponent;
    norm = std::frexp(norm * sums[c], &exponent);
    scale += exponent + item.up[star.children[c]].scale;
  }
  for (int m = 0; m < grid.frequencies; m++) {
    state->least[(size_t)m] = std::sqrt(state->least[(size_t)m]);
    if (!(state->least[(size_t)m] > kLeastFactor)) return false;
  }
  // What the overlaps could not show before, the product shows now.
  while (grid.frequencies > 2) {
    const size_t m = (size_t)grid.frequencies - 1;
    if (std::hypot(grid.re[m], grid.im[m]) > std::exp(-kNats) * state->least[m]) break;
    grid.frequencies--;
  }
  settle_errors(kernels, totals, children, state);
  for (int m = 0; m < grid.frequencies; m++)
    multiply(grid.re[m], grid.im[m], state->drift_re[(size_t)m], state->drift_im[(size_t)m]);
  state->shared_offset = offset;
  state->lost = totals.lost + 2 + std::log2((double)children * (double)totals.longest);

  Worker& worker = workers[(size_t)thread];
  const Interval support = item.support[item.tree->leaves + star.node];
  const ptrdiff_t low = std::max<ptrdiff_t>(grid.low, support.lo), high = std::min<ptrdiff_t>(grid.high, support.hi);
  if (low > high) return false;
  std::vector<double> re(padded), im(padded);
  double error = std::exp(-kNats + 2);
  for (int m = 0; m < grid.frequencies; m++) {
    const double share = (m ? 2.0 : 1.0) / (double)grid.period;
    re[(size_t)m] = share * norm * grid.re[m];
    im[(size_t)m] = -share * norm * grid.im[m];
    error += share * std::hypot(grid.re[m], grid.im[m]) * state->relative_error[(size_t)m] / state->least[(size_t)m];
  }
  const WaveMessage message = {worker.scratch, (int32_t)low, (int32_t)(high - low + 1), scale, norm, norm * error,
                               norm * std::exp(-kNats + 1)};
  kernels.flat->inverse(TurnsFrom(grid, low - centre).turns, re.data(), im.data(), message.length, message.value);
  for (int32_t k = 0; k < message.length; k++) message.value[k] = std::max(message.value[k], 0.0);
  for (const int32_t i : star.merges) item.notes[i] = {};
  kernels.tree->wave_up(item, worker, star.node, message);
  NodeNotes& note = item.notes[star.node];
  if (totals.lost > -kInfinity) note.lost_up = std::max(note.lost_up, state->lost) + 1;
  grid.centre = (double)centre;
  state->used = true;
  return true;
}

// down_c(k) = sum_z g(z) P(all but c is z - k) = Re sum_m conj(T_m) F_m e^{iw k}, T the (conjugated) product of the other
// children and F the transform of g = f . down. Products from the left and from the right leave out one child each
// without a division.
void star_down(const Kernels& kernels, const Star& star, const StarState& state, TreeItem& item,
               std::vector<Worker>& workers, int thread, bool alone) {
  const Spectrum& grid = state.grid;
  const size_t children = star.children.size(), padded = (size_t)grid.padded;
  const Message& down = item.down[star.node];
  const NodeNotes& note = item.notes[star.node];
  double* g = workers[(size_t)thread].scratch;
  kernels.tree->wave_gradient(item, workers[(size_t)thread], star.node, g);
  double largest = note.outside_table * note.down_limit, mass = 0;
  for (int32_t k = 0; k < down.length; k++) {
    largest = std::max(largest, g[k]);
    mass += g[k];
  }
  std::vector<double> wave_re(padded), wave_im(padded);
  kernels.flat->transform(TurnsFrom(grid, down.lo).turns, g, down.length, wave_re.data(), wave_im.data());
  double rounding = 0;
  for (int m = 0; m < grid.frequencies; m++) {
    const double share = (m ? 2.0 : 1.0) / (double)grid.period;
    wave_re[(size_t)m] *= share;
    wave_im[(size_t)m] *= -share;  // conj(F)
    multiply(wave_re[(size_t)m], wave_im[(size_t)m], state.drift_re[(size_t)m], state.drift_im[(size_t)m]);
    // Without one child the product is at most 1, and at most 1 / `least` times the whole one.
    const double least = state.least[(size_t)m], others = std::min(1.0, std::hypot(grid.re[m], grid.im[m]) / least);
    const double size = std::hypot(wave_re[(size_t)m], wave_im[(size_t)m]);
    rounding += (6 * size * state.relative_error[(size_t)m] / least + 8 * kRoundOff * share * mass) * others;
  }
  const double error = rounding + std::exp(-kNats + 2) * (largest + mass);
  double lost = std::max(note.lost_down + 1, -998.0);
  if (state.lost > -kInfinity) lost = std::max(lost, state.lost + std::log2(largest)) + 1;

  // Conjugated product of everything right of c, times conj(F); then from the left.
  std::vector<double> rest_re(children * padded), rest_im(children * padded);
  std::vector<double> run_re(wave_re), run_im(wave_im);
  for (size_t c = children; c-- > 0;)
    for (size_t m = 0; m < padded; m++) {
      rest_re[c * padded + m] = run_re[m];
      rest_im[c * padded + m] = run_im[m];
      multiply(run_re[m], run_im[m], state.re[c * padded + m], state.im[c * padded + m]);
    }
  std::fill(run_re.begin(), run_re.end(), 1.0);
  std::fill(run_im.begin(), run_im.end(), 0.0);
  for (size_t c = 0; c < children; c++)
    for (size_t m = 0; m < padded; m++) {
      multiply(rest_re[c * padded + m], rest_im[c * padded + m], run_re[m], run_im[m]);
      multiply(run_re[m], run_im[m], state.re[c * padded + m], state.im[c * padded + m]);
    }

  Spectrum of_child = grid;
  of_child.centre = 0;
  const TurnsFrom usual(of_child, -state.shared_offset);
  over_children(children, workers, thread, alone, [&](size_t c, Worker& worker) {
    const int32_t child = star.children[c];
    const Message& up = item.up[child];
    const Interval domain = kernels.tree->star_domain(item, child);
    const int32_t n = domain.hi - domain.lo + 1;
    double* value = worker.scratch + worker.scratch_stride;
    const double *re = &rest_re[c * padded], *im = &rest_im[c * padded];
    if (domain.lo == up.lo)
      kernels.flat->inverse(usual.turns, re, im, n, value);
    else
      kernels.flat->inverse(TurnsFrom(of_child, domain.lo - up.lo - state.shared_offset).turns, re, im, n, value);
    kernels.tree->star_child(item, worker, star.node, child, value, error, largest, lost);
  });
}

}  // namespace tallytree
