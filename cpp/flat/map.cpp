// Map: a solution turns logits into posterior log-odds and marginals, each variable by itself.
#include "flat/flat.hpp"

#include "base/constants.hpp"
#include "base/sigmoid.hpp"

namespace tallytree {

constexpr double kExtremeLogit = 300;  // half of the range of plain numbers
constexpr ptrdiff_t kBlock = 8192;     // logits that are widened, or freed of infinities, at a time

// The series of r from the series of log r, on a few more nodes, all of which Clenshaw's recurrence serves at once.
static std::vector<double> ratio_series(const Piece& piece) {
  const int count = piece.terms + kMoreNodes;
  const double *cosine = chebyshev_cosines(count), *log_ratio = piece.log_ratio.data();
  double x[kMaxNodes + kMoreNodes], value[kMaxNodes + kMoreNodes];
  double b1[kMaxNodes + kMoreNodes] = {}, b2[kMaxNodes + kMoreNodes] = {};
  for (int i = 0; i < count; i++) x[i] = cosine[2 * i + 1];
  for (int j = piece.terms - 1; j > 0; j--)
    for (int i = 0; i < count; i++) {
      const double b0 = 2 * x[i] * b1[i] - b2[i] + log_ratio[j];
      b2[i] = b1[i];
      b1[i] = b0;
    }
  for (int i = 0; i < count; i++) value[i] = std::exp(x[i] * b1[i] - b2[i] + log_ratio[0]);
  std::vector<double> series((size_t)count);
  chebyshev_fit(value, count, series.data());
  while (series.size() > 1 && std::fabs(series.back()) < 1e-17 * std::fabs(series[0])) series.pop_back();
  return series;
}

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

void FlatMap::answer(const double* nu, ptrdiff_t n, Wanted wanted, double* out) const {
  const FlatSolution& s = solution_;
  const bool marginals = wanted == Wanted::marginals;
  if (s.kind == FlatKind::impossible || (s.kind == FlatKind::series && s.pieces.empty())) {
    std::fill(out, out + n, __builtin_nan(""));
  } else if (s.kind == FlatKind::ends) {
    const double on = sigmoid(s.tilt + s.sum_logits);
    for (ptrdiff_t i = 0; i < n; i++) out[i] = marginals ? on : s.tilt + (s.sum_logits - nu[i]);
  } else if (s.kind == FlatKind::powers) {
    kernels_->power_answers(nu, n, *s.powers, marginals, out);
  } else if (!smooth()) {
    kernels_->mixture_answers(nu, n, mixture_, marginals, out);
  } else if (marginals && s.largest_logit <= kExtremeLogit) {
    kernels_->marginals_plain(nu, n, s.pieces[0].tilt, ratio_.data(), (int)ratio_.size(), out);
  } else {
    kernels_->messages_plain(nu, n, s.pieces[0].tilt, s.pieces[0].log_ratio.data(), s.pieces[0].terms, out);
    // Odds p r / q may leave the range of plain numbers where their logarithm does not.
    for (ptrdiff_t i = 0; marginals && i < n; i++) out[i] = sigmoid(nu[i] + out[i]);
  }
  for (ptrdiff_t i = 0; wanted == Wanted::log_odds && i < n; i++) out[i] += nu[i];
}

// -- logits in memory ----------------------------------------------------------------------------------------------

bool marginals_known(const FlatSolution& s) { return s.kind == FlatKind::direct && s.largest_logit <= kExtremeLogit; }

void flat_answers(const Logits& logits, const FlatSolution& s, Wanted wanted, double* out) {
  const bool marginals = wanted == Wanted::marginals;
  if (s.kind != FlatKind::direct) {
    const FlatMap map(logits.kernels, s);
    return in_chunks(logits, [&](ptrdiff_t from, ptrdiff_t length) {
      map.answer(logits.nu + from, length, wanted, out + from);
    });
  }
  if (marginals && marginals_known(s)) return (void)std::copy(s.marginal, s.marginal + logits.n, out);
  logits.kernels->messages_from_ratio(s.ratio, logits.n, s.tilt, out);
  for (ptrdiff_t i = 0; marginals && i < logits.n; i++) out[i] = sigmoid(logits.nu[i] + out[i]);
}

// -- chunks --------------------------------------------------------------------------------------------------------

template <class T>
void map_chunk(const FlatMap& map, int threads, const T* nu, ptrdiff_t n, Wanted wanted, T* out) {
  over_parts(n, kBlock, n >= kRowWorthThreads ? threads : 1, [&](ptrdiff_t from, ptrdiff_t length) {
    if (length < 1) return;
    double room[kBlock], answers[kBlock];
    const bool all = all_finite(nu + from, length);
    const double* finite = widened(nu + from, length, room);
    for (ptrdiff_t i = 0; !all && i < length; i++) room[i] = std::isinf(finite[i]) ? 0.0 : finite[i];
    if (!all) finite = room;
    map.answer(finite, length, wanted, answers);
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
