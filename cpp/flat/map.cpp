// Map: a solution turns logits into posterior log-odds and marginals, each variable by itself.
#include "flat/flat.hpp"

#include <algorithm>
#include <cmath>

#include "base/constants.hpp"
#include "base/sigmoid.hpp"
#include "flat/infinite_logits.hpp"

namespace tallytree {

namespace {

constexpr double kExtremeLogit = 300;  // half of the range of plain numbers
constexpr ptrdiff_t kBlock = 8192;     // logits that are widened, or freed of infinities, at a time

constexpr int kRecurrences = 4;  // of Clenshaw under way at once hide their latency

// The series of r from the series of log r, on a few more nodes.
std::vector<double> ratio_series(const Piece& piece) {
  const int count = piece.terms + kMoreNodes;
  const double* cosine = chebyshev_cosines(count);
  double value[kMaxNodes + kMoreNodes] = {};
  for (int first = 0; first < count; first += kRecurrences) {
    double x[kRecurrences], b1[kRecurrences] = {}, b2[kRecurrences] = {};
    for (int g = 0; g < kRecurrences; g++) x[g] = cosine[2 * std::min(first + g, count - 1) + 1];
    for (int j = piece.terms - 1; j > 0; j--)
      for (int g = 0; g < kRecurrences; g++) {
        const double b0 = 2 * x[g] * b1[g] - b2[g] + piece.log_ratio[(size_t)j];
        b2[g] = b1[g];
        b1[g] = b0;
      }
    for (int g = 0; g < kRecurrences && first + g < count; g++)
      value[first + g] = std::exp(x[g] * b1[g] - b2[g] + piece.log_ratio[0]);
  }
  std::vector<double> series((size_t)count);
  chebyshev_fit(value, count, series.data());
  while (series.size() > 1 && std::fabs(series.back()) < 1e-17 * std::fabs(series[0])) series.pop_back();
  return series;
}

// Doubles without infinities, in `room` where they have to be made.
inline const double* widened(const double* nu, ptrdiff_t n, bool finite, double* room) {
  if (finite) return nu;
  for (ptrdiff_t i = 0; i < n; i++) room[i] = std::isinf(nu[i]) ? 0.0 : nu[i];
  return room;
}

inline const double* widened(const float* nu, ptrdiff_t n, bool finite, double* room) {
  for (ptrdiff_t i = 0; i < n; i++) room[i] = nu[i];
  return widened(room, n, finite, room);
}

}  // namespace

FlatPieceView view_of(const Piece& p, double log_share) {
  return {p.tilt, log_share, p.split, p.terms, p.log_ratio.data(), (int)p.wave_re.size(), p.wave_re.data(),
          p.wave_im.data(), p.cos_w.data(), p.sin_w.data()};
}

FlatMap::FlatMap(const FlatKernels* kernels, const FlatSolution& s) : kernels_(kernels), solution_(s) {
  for (const Piece& p : s.pieces) piece_.push_back(view_of(p, p.log_weight - s.log_mean));
  mixture_ = {(int)piece_.size(), piece_.data(), s.log_all_off - s.log_mean, s.log_all_on - s.log_mean};
  if (s.kind == FlatKind::series && smooth()) ratio_ = ratio_series(s.pieces[0]);
}

bool FlatMap::smooth() const {
  const FlatSolution& s = solution_;
  return s.pieces.size() == 1 && !s.pieces[0].split && s.log_all_off == -kInfinity && s.log_all_on == -kInfinity;
}

void FlatMap::marginals(const double* nu, ptrdiff_t n, double* out) const {
  const FlatSolution& s = solution_;
  if (s.kind == FlatKind::impossible || (s.kind == FlatKind::series && s.pieces.empty())) {
    std::fill(out, out + n, __builtin_nan(""));
  } else if (s.kind == FlatKind::ends) {
    std::fill(out, out + n, sigmoid(s.tilt + s.sum_logits));
  } else if (s.kind == FlatKind::powers) {
    kernels_->power_marginals(nu, n, *s.powers, out);
  } else if (!smooth()) {
    kernels_->marginals(nu, n, &mixture_, out);
  } else if (s.largest_logit > kExtremeLogit) {
    // Odds p r / q may leave the range of plain numbers where their logarithm does not.
    messages(nu, n, out);
    for (ptrdiff_t i = 0; i < n; i++) out[i] = sigmoid(nu[i] + out[i]);
  } else {
    kernels_->marginals_plain(nu, n, s.pieces[0].tilt, ratio_.data(), (int)ratio_.size(), out);
  }
}

void FlatMap::messages(const double* nu, ptrdiff_t n, double* out) const {
  const FlatSolution& s = solution_;
  if (s.kind == FlatKind::impossible || (s.kind == FlatKind::series && s.pieces.empty())) {
    std::fill(out, out + n, __builtin_nan(""));
  } else if (s.kind == FlatKind::ends) {
    for (ptrdiff_t i = 0; i < n; i++) out[i] = s.tilt + (s.sum_logits - nu[i]);
  } else if (s.kind == FlatKind::powers) {
    kernels_->power_messages(nu, n, *s.powers, out);
  } else if (smooth()) {
    const Piece& piece = s.pieces[0];
    kernels_->messages_plain(nu, n, piece.tilt, piece.log_ratio.data(), piece.terms, out);
  } else {
    kernels_->messages(nu, n, &mixture_, out);
  }
}

// -- logits in memory ----------------------------------------------------------------------------------------------

bool marginals_known(const FlatSolution& s) { return s.kind == FlatKind::direct && s.largest_logit <= kExtremeLogit; }

void flat_marginals(const Logits& logits, const FlatSolution& s, double* out) {
  if (marginals_known(s)) {
    std::copy(s.marginal, s.marginal + logits.n, out);
  } else if (s.kind == FlatKind::direct) {
    flat_messages(logits, s, out);
    for (ptrdiff_t i = 0; i < logits.n; i++) out[i] = sigmoid(logits.nu[i] + out[i]);
  } else {
    const FlatMap map(logits.kernels, s);
    in_chunks(logits, [&](ptrdiff_t from, ptrdiff_t length) { map.marginals(logits.nu + from, length, out + from); });
  }
}

void flat_messages(const Logits& logits, const FlatSolution& s, double* out) {
  if (s.kind == FlatKind::direct) return logits.kernels->messages_from_ratio(s.ratio, logits.n, s.tilt, out);
  const FlatMap map(logits.kernels, s);
  in_chunks(logits, [&](ptrdiff_t from, ptrdiff_t length) { map.messages(logits.nu + from, length, out + from); });
}

// -- chunks --------------------------------------------------------------------------------------------------------

template <class T>
void map_chunk(const FlatMap& map, int threads, const T* nu, ptrdiff_t n, Wanted wanted, T* out) {
  const ptrdiff_t blocks = (n + kBlock - 1) / kBlock;
  parallel_for(blocks, n >= kRowWorthThreads ? threads : 1, [&](ptrdiff_t b) {
    const ptrdiff_t from = b * kBlock, length = std::min(kBlock, n - from);
    if (length < 1) return;
    double room[kBlock], answers[kBlock];
    const bool all = all_finite(nu + from, length);
    const double* finite = widened(nu + from, length, all, room);
    if (wanted == Wanted::marginals) {
      map.marginals(finite, length, answers);
    } else {
      map.messages(finite, length, answers);
      for (ptrdiff_t i = 0; i < length; i++) answers[i] += finite[i];
    }
    for (ptrdiff_t i = 0; !all && i < length; i++)
      if (std::isinf(nu[from + i])) answers[i] = wanted == Wanted::marginals ? nu[from + i] > 0 : nu[from + i];
    for (ptrdiff_t i = 0; i < length; i++) out[from + i] = (T)answers[i];  // only now: `out` may be `nu`
  });
}

template void map_chunk(const FlatMap&, int, const double*, ptrdiff_t, Wanted, double*);
template void map_chunk(const FlatMap&, int, const float*, ptrdiff_t, Wanted, float*);

// -- solutions as plain numbers, and back: what travels to whoever maps a chunk ------------------------------------

namespace {

// One description of what a solution consists of serves both ways: `visit` meets every number and every list in turn.
template <class Visit>
void visit_solution(FlatSolution& s, double* kind, double* pieces, double* terms, const Visit& visit) {
  visit.number(*kind);
  for (double* x : {&s.log_mean, &s.log_norm, &s.bound, &s.log_all_off, &s.log_all_on, &s.sum_logits, &s.largest_logit,
                    &s.tilt})
    visit.number(*x);
  visit.number(*pieces);
  s.pieces.resize((size_t)*pieces);
  for (Piece& p : s.pieces) {
    double split = p.split, count = p.terms, sums = p.sums, first = (double)p.first, length = (double)p.length;
    for (double* x : {&p.tilt, &p.log_weight, &p.bound, &p.weight_error, &p.least_side, &split, &count, &sums, &first,
                      &length})
      visit.number(*x);
    p.split = split != 0;
    p.terms = (int)count;
    p.sums = (int)sums;
    p.first = (ptrdiff_t)first;
    p.length = (ptrdiff_t)length;
    for (auto* v : {&p.log_ratio, &p.wave_re, &p.wave_im, &p.cos_w, &p.sin_w}) visit.list(*v);
  }
  visit.number(*terms);
  if (*terms == 0) return;
  if (!s.powers) s.powers = std::make_unique<PowerForm>();
  s.powers->terms = (int)*terms;
  for (int j = 0; j < s.powers->terms; j++)
    for (double* x : {&s.powers->rate[j], &s.powers->on[j], &s.powers->off[j]}) visit.number(*x);
}

struct Write {
  std::vector<double>* out;
  void number(double& x) const { out->push_back(x); }
  void list(std::vector<double>& v) const {
    out->push_back((double)v.size());
    out->insert(out->end(), v.begin(), v.end());
  }
};

struct Read {
  const double** next;
  void number(double& x) const { x = *(*next)++; }
  void list(std::vector<double>& v) const {
    const size_t count = (size_t)*(*next)++;
    v.assign(*next, *next + count);
    *next += count;
  }
};

}  // namespace

std::vector<double> packed(FlatSolution& s) {
  std::vector<double> out;
  double kind = (double)(int)s.kind, pieces = (double)s.pieces.size(), terms = s.powers ? s.powers->terms : 0;
  visit_solution(s, &kind, &pieces, &terms, Write{&out});
  return out;
}

FlatSolution unpacked(const double* numbers) {
  FlatSolution s;
  double kind = 0, pieces = 0, terms = 0;
  visit_solution(s, &kind, &pieces, &terms, Read{&numbers});
  s.kind = (FlatKind)(int)kind;
  return s;
}

}  // namespace tallytree
