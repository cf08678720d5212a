// Potentials f(c) = sum_j a_j r_j^c with real terms, r_j >= -1: closed forms with a certificate.
//
// With W_j = prod_i g_ij, E f = sum_j a_j W_j, and the message to variable i is the log of
// sum_j a_j r_j W_j / g_ij over sum_j a_j W_j / g_ij. All terms positive: nothing cancels. Otherwise one term
// has to dominate: with x_j a bound of the share of term j in terms of the dominant one, what cancels is at most
// (1 + x) / (1 - x), x = sum_j x_j, and errors of W_j count with the weight x_j.
#include <algorithm>
#include <cmath>

#include "base/constants.hpp"
#include "flat/flat.hpp"

namespace tallytree {

namespace {

constexpr double kDominated = 0.9;  // a share above this leaves too little of the dominant term
constexpr double kFaint = 650;      // logs beyond this are not held by plain numbers
constexpr double kUnseen = -60;     // logs of shares below this change nothing

struct Term {
  double rate;
  double log_size, error;  // of W_j; absolute error of the log
  double sign, smallest, largest;
};

// Every log of a factor is right to a few units of its own size, except where q + p r cancels; a rate that was rounded
// moves it by as much as a count of one does.
Term settle(const PowerSum& sum, double rate, ptrdiff_t n) {
  const double log_size = sum.log_size + sum.lost;
  double error = 2 * kRoundOff * (8 * std::fabs(log_size) + (rate == 1 ? 0 : (double)n));
  if (rate < 0) error += 8 * kRoundOff * (double)n / sum.smallest;
  return {rate, log_size, error, std::fmod(sum.negative, 2) == 0 ? 1.0 : -1.0, sum.smallest, sum.largest};
}

double largest_error(const std::vector<Term>& term) {
  double error = 0;
  for (const Term& t : term) error = std::fmax(error, 2 * t.error);
  return error;
}

// Bound of the relative error of sum_j c_j W_j / h_j for all h_j between the smallest and the largest factor of term j,
// where term `top` is positive; infinite if the others may cancel it.
double relative_error(const std::vector<Term>& term, const double* c, size_t top) {
  bool positive = true;
  double others = 0, error = 0;
  for (size_t j = 0; j < term.size(); j++) {
    positive = positive && c[j] >= 0 && term[j].rate >= 0;
    if (j == top || c[j] == 0) continue;
    const double share = std::fabs(c[j] / c[top]) * std::exp(term[j].log_size - term[top].log_size) *
                         std::fmax(1.0, term[top].largest / term[j].smallest);
    others += share;
    error += share * (term[j].error + term[top].error);
  }
  if (positive) return std::fmin(error, others > 0 ? largest_error(term) : 0.0);
  return others < kDominated ? (error + 8 * kRoundOff * (1 + others)) / (1 - others) : kInfinity;
}

}  // namespace

void solve_powers(ptrdiff_t n, const PowerSums& sums, const double* coefficient, const double* rate, int terms,
                  FlatSolution* s) {
  *s = FlatSolution();
  s->kind = FlatKind::series;  // without pieces: no answer
  s->bound = kInfinity;
  if (n == 0) return;
  s->softplus = sums.softplus;
  std::vector<Term> term;
  std::vector<double> log_weight;
  for (int j = 0; j < terms; j++) {
    const PowerSum& sum = sums.term[j];
    if (!(sum.smallest > kSmallestFactor && sum.largest < 1 / kSmallestFactor)) return;
    term.push_back(settle(sum, rate[j], n));
    log_weight.push_back(std::log(std::fabs(coefficient[j])) + term.back().log_size);
  }
  const size_t top = (size_t)(std::max_element(log_weight.begin(), log_weight.end()) - log_weight.begin());
  if (!(coefficient[top] > 0 && rate[top] > 0 && log_weight[top] > -kInfinity)) return;

  s->powers = std::make_unique<PowerForm>();
  s->powers->terms = terms;
  double total = 0, cavity[kMaxPowers] = {};
  for (size_t j = 0; j < term.size(); j++) {
    double relative = term[j].log_size - term[top].log_size;
    const double most = log_weight[j] - log_weight[top] + std::fmax(0.0, std::log(std::fabs(rate[j]) / rate[top])) +
                        std::log(term[top].largest / term[j].smallest);
    if (most < kUnseen) relative = -kInfinity;  // whatever it is, no variable can see it
    if (relative > -kInfinity && !(std::fabs(relative) < kFaint)) return;
    s->powers->rate[j] = rate[j];
    s->powers->off[j] = coefficient[j] * term[j].sign * std::exp(relative);
    s->powers->on[j] = rate[j] * s->powers->off[j];
    total += s->powers->off[j];
    cavity[j] = coefficient[j] * rate[j];
  }
  s->log_mean = std::log(total) + term[top].log_size;
  s->log_norm = s->log_mean + s->softplus;
  const double bound = relative_error(term, coefficient, top) + relative_error(term, cavity, top) + 16 * kRoundOff;
  if (!(bound < kMeaningful)) return;
  s->bound = bound;
  s->kind = FlatKind::powers;
}

}  // namespace tallytree
