// (max, +) over a program of clusters: best configurations and max-marginals of one model.
//
// The value of a cluster is the best weight of what it holds, for every state of its boundary and every count; the adjoint of an
// entry is the best weight of everything else. Without counting, a potential stands for its largest value: that gives an upper
// bound for every part of the model, and with it a pass that counts can leave out what no configuration worth having can use.
// On the way down to a best configuration every cluster hands its operands the states and counts of the first of the largest
// terms that made it.
#include <algorithm>
#include <cmath>

#include "base/max_plus.hpp"
#include "base/parallel.hpp"
#include "base/workspace.hpp"
#include "cluster/pass.hpp"
#include "cluster/program_pass.hpp"

namespace tallytree {

namespace {

constexpr int kShort = 4;  // widths up to which a simple loop is quickest
constexpr int32_t kNodesBetweenSignals = 1024;

struct MaxRows {
  double* value;
  int count, width;

  double* operator[](int s) const { return value + (ptrdiff_t)s * width; }
};

// The largest of some sums of two numbers.
struct Largest {
  double value = -HUGE_VAL;

  void add(const MaxRows& g, int s, const MaxRows& x, int t, int from, int n) {
    for (int j = from; j < from + n; j++) value = std::max(value, g[s][j] + x[t][j]);
  }
  void add(const Largest& x) { value = std::max(value, x.value); }
  Largest times(double log_weight) const { return {value + log_weight}; }
  double log_share(const Largest&) const { return value; }
};

// out[j] = max(itself, weight + x[j])
void raise(double* out, const double* x, double weight, int n) {
  for (int j = 0; j < n; j++) out[j] = std::max(out[j], weight + x[j]);
}

struct MaxNumbers : ProgramNumbers {
  using Rows = MaxRows;
  using Sum = Largest;
  static constexpr double kOne = 0;
  const Kernels& kernels;
  const bool counting;
  const int threads;
  // Ends of clusters of which `outside`, a pass without counts that went up and down, says that no configuration of weight
  // `threshold` can have them are cut off.
  const Cluster* outside = nullptr;
  double threshold = 0;
  bool nothing_left = false;

  MaxRows zero(int count, int width) {
    MaxRows rows = {arena_take(w.scratch.arena, (size_t)count * (size_t)width), count, width};
    std::fill_n(rows.value, (size_t)count * (size_t)width, -HUGE_VAL);
    return rows;
  }
  MaxRows rows_of(int node, double* value) const {
    return {value, states_at(node), item.clusters[node].width};
  }
  MaxRows values(int node) const { return rows_of(node, item.clusters[node].value); }
  void add(const MaxRows& out, int to, const MaxRows& x, int from, double log_weight) { raise(out[to], x[from], log_weight, x.width); }

  void set_leaf(const MaxRows& rows, int state, int at, int vertex) const {
    rows[state][at] = log_weight(vertex, state);
  }
  void set_one(const MaxRows& rows, int state) const { rows[state][0] = 0; }
  double potential(int set, int count) const {
    if (!counting) return item.table_top[set];
    const int64_t place = item.offset[set] + count;
    return place < item.offset[set + 1] ? item.tables[place] : -HUGE_VAL;
  }
  void weigh(int node, const MaxRows& x, const MaxRows& rows) const {
    const int set = item.program->ref[node], lo = table_from(node);
    for (int j = 0; j < x.width; j++) {
      const double weight = potential(set, lo + j);
      for (int s = 0; s < x.count; s++) {
        double& out = rows[s][item.program->top[set] ? 0 : j];
        out = std::max(out, x[s][j] + weight);
      }
    }
  }
  void weigh_back(int node, const MaxRows& x, const MaxRows& rows) const {
    const int set = item.program->ref[node], lo = table_from(node), shift = item.clusters[node].lo - lo;
    const MaxRows g = rows_of(node, item.clusters[node].adjoint);
    const bool ends = item.program->top[set];
    for (int j = ends ? 0 : std::max(0, shift); j < (ends ? x.width : std::min(x.width, g.width + shift)); j++) {
      const double weight = potential(set, lo + j);
      for (int s = 0; s < x.count; s++) rows[s][j] = g[s][ends ? 0 : j - shift] + weight;
    }
  }

  // Rows without the ends that are worth nothing; `nothing_left` if that is all of them.
  void keep(int node, const MaxRows& rows, int lo) {
    Cluster& c = item.clusters[node];
    Interval kept = {0, rows.width};
    if (outside) {
      const double* rest = outside[node].adjoint;
      kept = visible_window(rows.count, rows.width, [&](int s, int j) { return rows[s][j] + rest[s] >= threshold; });
      nothing_left = nothing_left || kept.hi <= kept.lo;
      if (nothing_left) return;
    }
    c.width = kept.hi - kept.lo;
    c.lo = lo + kept.lo;
    c.adjoint = nullptr;
    c.value = arena_take(w.kept.arena, (size_t)rows.count * (size_t)c.width);
    for (int s = 0; s < rows.count; s++) std::copy_n(rows[s] + kept.lo, c.width, c.value + (ptrdiff_t)s * c.width);
  }
  void settle(int operand, int, const MaxRows& rows) {
    const size_t all = (size_t)rows.count * (size_t)rows.width;
    item.clusters[operand].adjoint = arena_take(w.kept.arena, all);
    std::copy_n(rows.value, all, item.clusters[operand].adjoint);
  }

  // out[i + j] = max(itself, x[i] + y[j])
  void multiply(int, const MaxRows& x, const MaxRows& y, const Terms& terms, int, const MaxRows& rows) {
    const bool swapped = x.width > y.width;
    const MaxRows &shorter = swapped ? y : x, &longer = swapped ? x : y;
    const MaxRows found = zero(1, rows.width);
    for (const Term& t : terms) {
      const double *p = shorter[swapped ? t.y : t.x], *q = longer[swapped ? t.x : t.y];
      if (shorter.width <= kShort) {
        for (int i = 0; i < shorter.width; i++) raise(rows[t.out] + i, q, p[i], longer.width);
        continue;
      }
      max_plus_rows(kernels, 1, p, shorter.width, q, longer.width, 0, rows.width, threads, found.value);
      raise(rows[t.out], found.value, 0.0, rows.width);
    }
  }
  MaxRows moved(int node, int shift, int width) {
    const MaxRows g = rows_of(node, item.clusters[node].adjoint), out = zero(g.count, width);
    for (int s = 0; s < g.count; s++) std::copy_n(g[s], g.width, out[s] + shift);
    return out;
  }
  // out[i] = max(itself, g[i + j] + y[j])
  void correlate(const double* g, int ng, const double* y, int ny, double* out, int n) {
    if (std::min(ny, n) <= kShort) {
      for (int j = 0; j < ny; j++) raise(out, g + j, y[j], n);
      return;
    }
    double *turned = zero(1, ny).value, *found = zero(1, n).value;
    std::reverse_copy(y, y + ny, turned);
    max_plus_rows(kernels, 1, turned, ny, g, ng, ny - 1, n, threads, found);
    raise(out, found, 0.0, n);
  }
  void divide(int, const MaxRows& g, const MaxRows& x, const MaxRows& y, const Terms& terms, const MaxRows& gx, const MaxRows& gy) {
    for (const Term& t : terms) {
      correlate(g[t.out], g.width, y[t.y], y.width, gx[t.x], x.width);
      correlate(g[t.out], g.width, x[t.x], x.width, gy[t.y], y.width);
    }
  }

  // Best weights without the vertex's own.
  void leaf_down(int node) {
    const int v = item.program->ref[node];
    const MaxRows g = rows_of(node, item.clusters[node].adjoint);
    for (int k = 0; k < item.states; k++) {
      const int j = place(v, k) - item.clusters[node].lo;
      item.messages[(ptrdiff_t)v * item.states + k] = j >= 0 && j < g.width ? g[k][j] : -HUGE_VAL;
    }
  }
};

// The first of the largest weights on offer.
struct Best {
  const MaxNumbers& of;
  double weight = -HUGE_VAL;
  int n = 0, best = 0;

  void begin(int) {}
  void take(double w) {
    if (w > weight) weight = w, best = n;
    n++;
  }
  void offer(const MaxRows& x, int s, int i, const MaxRows& y, int t, int j, double w) { take(x[s][i] + (w + y[t][j])); }
  void offer(const MaxRows& x, int s, int i, double w) { take(w + x[s][i]); }
  void offer(const MaxRows& x, int s, int i, int set, int count) { take(x[s][i] + of.potential(set, count)); }
  int pick() const { return best; }
};

class MaxPass {
 public:
  enum class Found { kValues, kNothing, kTooMuch };

  MaxPass(const Kernels& kernels, const ClusterInput& models, size_t b, bool counting, int threads)
      : models_(models), view_(models.program), clusters_((size_t)view_.nodes), identity_(identity_of(models.states, true)),
        messages_((size_t)view_.variables * (size_t)models.states), uncounted_((size_t)view_.variables, 0),
        item_(models.item(b, clusters_.data())), worker_{{&arena_, nullptr, 0}, {&scratch_, nullptr, 0}},
        pass_{{{item_, worker_}, kernels, counting, thread_count(threads)}} {
    if (!counting) view_.counted = uncounted_.data();
    item_.program = &view_;
    std::vector<Term> list((size_t)(models.states * models.states * models.states));
    for (int op = kRake; op <= kOuter; op++) terms_[op] = list_terms(op, models.states, list.data());
    for (size_t s = 0; s < models.sets; s++)
      table_top_.push_back(*std::max_element(item_.tables + item_.offset[s], item_.tables + item_.offset[s + 1]));
    item_.table_top = table_top_.data();
    item_.identity = identity_.data();
    item_.messages = messages_.data();
  }
  MaxPass(const MaxPass&) = delete;

  // Values of all clusters, without what `outside` and `threshold` cut off (see MaxNumbers). Gives up after `most_work` sums.
  Found up(const MaxPass* outside, double threshold, double most_work) {
    const ClusterView& view = view_;
    pass_.outside = outside ? outside->clusters_.data() : nullptr;
    pass_.threshold = threshold;
    pass_.nothing_left = false;
    arena_.reset();
    double work = 0;
    for (int32_t i = 0; i < view.nodes; i++) {
      if (i % kNodesBetweenSignals == 0) let_signals_through();
      const int node = models_.order[i];
      pass_.up(node);
      scratch_.reset();
      if (pass_.nothing_left) return Found::kNothing;
      if (view.op[node] >= kRake)
        work += terms_[view.op[node]] * clusters_[(size_t)view.a[node]].width * clusters_[(size_t)view.b[node]].width;
      if (work > most_work) return Found::kTooMuch;
    }
    return Found::kValues;
  }

  // Best weight, after `up`.
  double total() const {
    double sum = 0;
    for (size_t i = 0; i < models_.n_roots; i++) sum += clusters_[(size_t)models_.roots[i]].value[0];
    return sum;
  }

  // What `up` takes if nothing is cut off.
  double most_work() const {
    const ClusterView& view = view_;
    std::vector<double> width((size_t)view.nodes, 1.0);
    double work = 0;
    for (int32_t i = 0; i < view.nodes; i++) {
      const int node = models_.order[i], op = view.op[node];
      double& own = width[(size_t)node];
      if (op == kLeaf) {
        own = leaf_width(view, models_.score, view.ref[node], models_.states);
      } else if (op >= kRake) {
        const double x = width[(size_t)view.a[node]], y = width[(size_t)view.b[node]];
        work += terms_[view.op[node]] * x * y;
        own = x + y - 1;
      } else if (op != kOnes) {
        own = op == kTable && view.top[view.ref[node]] ? 1.0 : width[(size_t)view.a[node]];
      }
    }
    return work;
  }

  // Best weights without a vertex's own, `messages`, and, if there is room for them, by count of every set.
  void down(double* counts) {
    const double all = total();
    item_.log_counts = counts;
    std::fill(messages_.begin(), messages_.end(), -HUGE_VAL);
    for (size_t i = 0; i < models_.n_roots; i++) {
      Cluster& c = clusters_[(size_t)models_.roots[i]];
      c.adjoint = arena_take(&arena_, 1);
      c.adjoint[0] = all > -HUGE_VAL ? all - c.value[0] : -HUGE_VAL;
    }
    for (int32_t i = view_.nodes; i-- > 0;) {
      if (i % kNodesBetweenSignals == 0) let_signals_through();
      pass_.down(models_.order[i]);
      scratch_.reset();
    }
  }
  const std::vector<double>& messages() const { return messages_; }

  // The smallest of all max-marginals that are possible by the bounds of a pass without counts.
  double smallest_belief(const MaxPass& bounds, bool* missing) const {
    double smallest = HUGE_VAL;
    *missing = false;
    for (size_t i = 0; i < messages_.size(); i++) {
      if (item_.log_leaf[i] + bounds.messages_[i] == -HUGE_VAL) continue;
      const double belief = item_.log_leaf[i] + messages_[i];
      if (belief == -HUGE_VAL) *missing = true;
      else smallest = std::min(smallest, belief);
    }
    return smallest;
  }

  // A best configuration (D,), after `up`.
  void states(int64_t* out) {
    const ClusterView& view = view_;
    std::vector<int> state((size_t)view.nodes, 0), count(state);
    for (int32_t i = view.nodes; i-- > 0;) {
      const int node = models_.order[i];
      if (view.op[node] == kLeaf) out[view.ref[node]] = state[(size_t)node];
      pass_.choose(node, Best{pass_}, state.data(), count.data());
      scratch_.reset();
    }
  }

 private:
  const ClusterInput& models_;
  ClusterView view_;  // in which no vertex is counted if the pass does not count
  std::vector<Cluster> clusters_;
  std::vector<double> identity_, messages_, table_top_;
  std::vector<int8_t> uncounted_;
  double terms_[kOuter + 1] = {};  // products of rows that make a cluster, by its operation
  Arena arena_, scratch_;
  ClusterItem item_;
  ClusterWorker worker_;
  ProgramPass<MaxNumbers> pass_;
};

// The exact optimum by bounds: guess how far it lies below the upper bound U of the model without counts, leave out
// whatever cannot reach that, and see. A configuration found at or above U - slack is the best one: only what lies below
// was left out. One found below it says which slack is enough. Nothing found: a larger guess.

constexpr int kRounds = 12;
constexpr double kGrowth = 8, kShare = 0.125;  // of a guess; of all work, beyond which leaving out is not worth it

struct Search {
  MaxPass pass, bounds;
  double top, margin_per_unit;

  Search(const Kernels& kernels, const ClusterInput& models, size_t b, int threads)
      : pass(kernels, models, b, true, threads), bounds(kernels, models, b, false, 1),
        // Partial sums of non-positive terms are at most the whole; those of one level are disjoint.
        margin_per_unit(16 * kUnitRoundoff * (models.levels + 8)) {}

  double margin(double threshold) const { return margin_per_unit * (1 + std::fabs(threshold)); }

  // With `pass` holding the values (and adjoints) of everything that matters; false: leave nothing out.
  bool found(double slack, bool marginals) {
    const double most = kShare * pass.most_work();
    bounds.down(nullptr);
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
        pass.down(nullptr);
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

void one_model(const Kernels& kernels, const ClusterInput& models, double slack, bool give_up, const MaximaOutput& out, size_t b,
               int threads) {
  const size_t D = (size_t)models.program.variables, K = (size_t)models.states;
  Search search(kernels, models, b, threads);
  search.bounds.up(nullptr, 0, HUGE_VAL);
  search.top = search.bounds.total();
  double *value = out.value + b, *counts = out.counts ? out.counts + b * models.entries : nullptr;
  *value = -HUGE_VAL;
  out.known[b] = true;
  if (out.states) std::fill_n(out.states + b * D, D, 0);
  if (out.messages) std::fill_n(out.messages + b * D * K, D * K, -HUGE_VAL);
  if (counts) std::fill_n(counts, models.entries, -HUGE_VAL);
  if (search.top == -HUGE_VAL) return;
  const bool downwards = out.messages || out.counts;
  if (!(std::isfinite(slack) && search.found(slack, downwards))) {
    out.known[b] = !give_up;
    if (give_up) return;
    search.pass.up(nullptr, 0, HUGE_VAL);
  }
  *value = search.pass.total();
  if (*value == -HUGE_VAL) return;
  if (out.states) search.pass.states(out.states + b * D);
  if (!downwards) return;
  search.pass.down(counts);
  if (out.messages) std::copy(search.pass.messages().begin(), search.pass.messages().end(), out.messages + b * D * K);
}

}  // namespace

void find_maxima(const Kernels& kernels, const ClusterInput& models, const double* slack, bool give_up, const MaximaOutput& out,
                 int threads) {
  const int used = thread_count(threads), inside = models.batch > 1 ? 1 : used;
  parallel_for((ptrdiff_t)models.batch, models.batch > 1 ? used : 1, [&](ptrdiff_t b) {
    one_model(kernels, models, slack[b], give_up, out, (size_t)b, inside);
  });
}

}  // namespace tallytree
