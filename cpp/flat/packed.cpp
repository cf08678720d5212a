// A solution as plain numbers, and back: what travels to whoever maps a chunk.
#include <memory>

#include "flat/map.hpp"

namespace tallytree {

namespace {

// One description of what a solution consists of serves both ways: `visit` meets every number and every list in turn.
template <class Visit>
void visit_solution(FlatSolution& s, double* kind, double* pieces, double* terms, const Visit& visit) {
  visit.number(*kind);
  for (double* x : {&s.log_mean, &s.softplus, &s.bound, &s.log_all_off, &s.log_all_on, &s.sum_logits, &s.largest_logit,
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
