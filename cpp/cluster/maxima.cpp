// The exact optimum by bounds: guess how far it lies below the upper bound U of the model without counts, leave out
// whatever cannot reach that, and see. A configuration found at or above U - slack is the best one: only what lies below
// was left out. One found below it says which slack is enough. Nothing found: a larger guess.
#include "cluster/max_pass.hpp"

#include <algorithm>
#include <cmath>

#include "base/constants.hpp"
#include "base/parallel.hpp"

namespace tallytree {

namespace {

constexpr int kRounds = 12;
constexpr double kGrowth = 8, kShare = 0.125;  // of a guess; of all work, beyond which leaving out is not worth it

struct Search {
  MaxPass pass, bounds;
  double top, margin_per_unit;

  Search(const Kernels& kernels, const MaxModel& model, int depth, int threads)
      : pass(kernels, model, true, threads), bounds(kernels, model, false, 1),
        // Partial sums of non-positive terms are at most the whole; those of one level are disjoint.
        margin_per_unit(16 * kUnitRoundoff * (depth + 8)) {}

  double margin(double threshold) const { return margin_per_unit * (1 + std::fabs(threshold)); }

  // With `pass` holding the values (and adjoints) of everything that matters; false: leave nothing out.
  bool found(double slack, bool marginals) {
    const double most = kShare * pass.most_work();
    bounds.down();
    if (marginals) {
      bool missing;
      const double lowest = bounds.smallest_belief(bounds, &missing);
      if (lowest < top) slack = 4 * slack + 1.05 * (top - lowest);
    }
    slack = std::max(slack, 2 * margin(top));
    for (int round = 0; round < kRounds; round++) {
      const double threshold = top - slack;
      const MaxPass::Found state = pass.up(&bounds, threshold - margin(threshold), most);
      if (state == MaxPass::Found::kTooMuch) return false;
      double lowest = state == MaxPass::Found::kValues ? pass.total() : -HUGE_VAL;
      if (lowest >= threshold && marginals) {
        bool missing;
        pass.down();
        lowest = std::min(lowest, pass.smallest_belief(bounds, &missing));
        if (missing) lowest = -HUGE_VAL;
      }
      if (lowest >= threshold) return true;
      const double enough = top - lowest;
      slack = std::isfinite(enough) ? enough * (1 + 1e-9) + margin(lowest) : kGrowth * slack;
    }
    return false;
  }
};

void one_model(const Kernels& kernels, const MaxModel& model, const MaximaInput& in, const MaximaOutput& out, size_t b,
               int threads) {
  const size_t D = (size_t)model.program.variables, K = (size_t)model.states;
  Search search(kernels, model, in.depth, threads);
  search.bounds.up(nullptr, 0, HUGE_VAL);
  search.top = search.bounds.total();
  double* value = out.value + b;
  *value = -HUGE_VAL;
  out.known[b] = true;
  if (out.states) std::fill_n(out.states + b * D, D, 0);
  if (out.messages) std::fill_n(out.messages + b * D * K, D * K, -HUGE_VAL);
  if (out.counts) std::fill_n(out.counts + b * in.entries, in.entries, -HUGE_VAL);
  if (search.top == -HUGE_VAL) return;
  const bool downwards = out.messages || out.counts;
  if (!(std::isfinite(in.slack[b]) && search.found(in.slack[b], downwards))) {
    out.known[b] = !in.give_up;
    if (in.give_up) return;
    search.pass.up(nullptr, 0, HUGE_VAL);
    if (downwards) search.pass.down();
  }
  *value = search.pass.total();
  if (*value == -HUGE_VAL) return;
  if (out.states) search.pass.states(out.states + b * D);
  if (out.messages) search.pass.messages(out.messages + b * D * K);
  if (out.counts) search.pass.counts(out.counts + b * in.entries);
}

}  // namespace

void find_maxima(const Kernels& kernels, const MaximaInput& in, const MaximaOutput& out, int threads) {
  const size_t D = (size_t)in.first.program.variables, K = (size_t)in.first.states;
  const int used = thread_count(threads), inside = in.batch > 1 ? 1 : used;
  parallel_for((ptrdiff_t)in.batch, in.batch > 1 ? used : 1, [&](ptrdiff_t row) {
    const size_t b = (size_t)row;
    MaxModel model = in.first;
    model.log_leaf += b * D * K;
    if (!in.shared_edges) model.log_edges += b * in.edges * K * K;
    if (!in.shared_tables) model.tables += b * in.entries;
    one_model(kernels, model, in, out, b, inside);
  });
}

}  // namespace tallytree
