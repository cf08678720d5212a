#include "tree/spectral_blocks.hpp"
#include "base/constants.hpp"

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

}  // namespace tallytree
