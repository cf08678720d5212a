// (max, +) over a program of clusters: best weights of clusters, operands before results; best weights of everything else,
// results before operands; and a best configuration, from the roots down: every cluster hands its operands the states and
// counts of the first of the largest terms that made it.
#include "cluster/max_pass.hpp"

#include <algorithm>
#include <cmath>

#include "base/max_plus.hpp"
#include "base/parallel.hpp"

namespace tallytree {

namespace {

constexpr int kShort = 4;  // widths up to which a simple loop is quickest
constexpr int32_t kNodesBetweenSignals = 1024;

// The first of the largest weights on offer.
struct Best {
  double weight = -HUGE_VAL;
  bool any = false;

  bool offer(double w) {
    if (any && !(w > weight)) return false;
    any = true;
    weight = w;
    return true;
  }
};

// out[j] = max(itself, weight + x[j])
void raise(double* out, const double* x, double weight, int n) {
  for (int j = 0; j < n; j++) out[j] = std::max(out[j], weight + x[j]);
}

// Rows (states) of counts lo .. lo+width-1. The adjoint of an entry is the best weight of everything else.
struct MaxCluster {
  double *value, *adjoint;
  int32_t lo, width;
};

class MaxPass {
 public:
  enum class Found { kValues, kNothing, kTooMuch };

  MaxPass(const Kernels& kernels, const MaxModel& model, bool counting, int threads)
      : kernels_(kernels), model_(model), counting_(counting), threads_(thread_count(threads)), K_(model.states),
        clusters_((size_t)model.program.nodes), identity_((size_t)(K_ * K_), -HUGE_VAL), table_top_(model.sets) {
    for (int op = kRake; op <= kOuter; op++) {
      terms_[op].resize((size_t)(K_ * K_ * K_));
      terms_[op].resize((size_t)list_terms(op, K_, terms_[op].data()));
    }
    for (int k = 0; k < K_; k++) identity_[(size_t)(k * K_ + k)] = 0;
    for (size_t s = 0; s < model.sets; s++)
      table_top_[s] = *std::max_element(model.tables + model.offset[s], model.tables + model.offset[s + 1]);
  }

  // Values of all clusters. With `outside`, a pass without counts that went up and down, counts are cut off at the ends
  // of a cluster where no configuration of weight `threshold` can have them. Gives up after `most_work` sums.
  Found up(const MaxPass* outside, double threshold, double most_work) {
    outside_ = outside;
    threshold_ = threshold;
    arena_.reset();
    work_ = 0;
    for (int32_t i = 0; i < model_.program.nodes; i++) {
      if (i % kNodesBetweenSignals == 0) let_signals_through();
      const int node = model_.order[i], op = model_.program.op[node];
      const bool left = op == kLeaf || op == kOnes ? leaf_up(node) : op < kRake ? single_up(node) : product_up(node);
      scratch_.reset();
      if (!left) return Found::kNothing;
      if (work_ > most_work) return Found::kTooMuch;
    }
    return Found::kValues;
  }

  // Best weight, after `up`.
  double total() const {
    double sum = 0;
    for (size_t i = 0; i < model_.n_roots; i++) sum += clusters_[(size_t)model_.roots[i]].value[0];
    return sum;
  }

  // What `up` takes if nothing is cut off.
  double most_work() const {
    const ClusterView& view = model_.program;
    std::vector<double> width((size_t)view.nodes, 1.0);
    double work = 0;
    for (int32_t i = 0; i < view.nodes; i++) {
      const int node = model_.order[i], op = view.op[node];
      double& own = width[(size_t)node];
      if (op == kLeaf) {
        own = leaf_width(view, model_.score, view.ref[node], K_);
      } else if (op >= kRake) {
        const double x = width[(size_t)view.a[node]], y = width[(size_t)view.b[node]];
        work += (double)terms_[op].size() * x * y;
        own = x + y - 1;
      } else if (op != kOnes) {
        own = op == kTable && view.top[view.ref[node]] ? 1.0 : width[(size_t)view.a[node]];
      }
    }
    return work;
  }

  void down() {
    const double all = total();
    for (size_t i = 0; i < model_.n_roots; i++) {
      MaxCluster& c = clusters_[(size_t)model_.roots[i]];
      c.adjoint = arena_take(&arena_, 1);
      c.adjoint[0] = all > -HUGE_VAL ? all - c.value[0] : -HUGE_VAL;
    }
    for (int32_t i = model_.program.nodes; i-- > 0;) {
      if (i % kNodesBetweenSignals == 0) let_signals_through();
      const int node = model_.order[i];
      if (model_.program.op[node] < kRake) single_down(node);
      else product_down(node);
      scratch_.reset();
    }
  }

  // Best weights without the vertex's own (D, K), after `down`.
  void messages(double* out) const {
    const ClusterView& view = model_.program;
    for (int32_t node = 0; node < view.nodes; node++) {
      if (view.op[node] != kLeaf) continue;
      const int v = view.ref[node];
      const MaxCluster& c = clusters_[(size_t)node];
      for (int k = 0; k < K_; k++) {
        const int j = (counting_ && view.counted[v] ? model_.score[(ptrdiff_t)v * K_ + k] : 0) - c.lo;
        out[(ptrdiff_t)v * K_ + k] = j >= 0 && j < c.width ? c.adjoint[(ptrdiff_t)k * c.width + j] : -HUGE_VAL;
      }
    }
  }

  // Best weights by count of every set, packed, after `down`.
  void counts(double* out) const {
    const ClusterView& view = model_.program;
    for (int32_t node = 0; node < view.nodes; node++) {
      if (view.op[node] != kTable) continue;
      const MaxCluster& x = clusters_[(size_t)view.a[node]];
      const int states = states_of(view.kind[node], K_);
      double* to = out + model_.offset[view.ref[node]];
      // The adjoint of what a potential was added to has the potential in it.
      for (int s = 0; s < states; s++)
        for (int j = 0; j < x.width; j++) {
          const ptrdiff_t cell = (ptrdiff_t)s * x.width + j;
          to[x.lo + j] = std::max(to[x.lo + j], x.value[cell] + x.adjoint[cell]);
        }
    }
  }

  // The smallest of all max-marginals that are possible by the bounds of a pass without counts.
  double smallest_belief(const MaxPass& bounds, bool* missing) const {
    const size_t n = (size_t)model_.program.variables * (size_t)K_;
    std::vector<double> own(n, -HUGE_VAL), most(n, -HUGE_VAL);
    messages(own.data());
    bounds.messages(most.data());
    double smallest = HUGE_VAL;
    *missing = false;
    for (size_t i = 0; i < n; i++) {
      if (model_.log_leaf[i] + most[i] == -HUGE_VAL) continue;
      const double belief = model_.log_leaf[i] + own[i];
      if (belief == -HUGE_VAL) *missing = true;
      else smallest = std::min(smallest, belief);
    }
    return smallest;
  }

  // A best configuration (D,), after `up`.
  void states(int64_t* out) {
    const ClusterView& view = model_.program;
    state_.assign((size_t)view.nodes, 0);
    count_.assign((size_t)view.nodes, 0);
    for (int32_t i = view.nodes; i-- > 0;) {
      const int node = model_.order[i];
      if (view.op[node] == kLeaf) out[view.ref[node]] = state_[(size_t)node];
      if (view.op[node] < kRake) walk_single(node);
      else walk_product(node);
      scratch_.reset();
    }
  }

 private:
  // Filled with -inf.
  static double* empty(Arena* arena, size_t n) {
    double* p = arena_take(arena, n);
    std::fill_n(p, n, -HUGE_VAL);
    return p;
  }
  double* scratch(size_t n) { return empty(&scratch_, n); }  // forgotten after every cluster
  double* nothing(size_t n) { return empty(&arena_, n); }

  double potential(int set, int count) const {
    if (!counting_) return table_top_[(size_t)set];
    const int64_t place = model_.offset[set] + count;
    return place < model_.offset[set + 1] ? model_.tables[place] : -HUGE_VAL;
  }

  // out[i + j] = max(itself, x[i] + y[j])
  void convolve(const double* x, int nx, const double* y, int ny, double* out) {
    if (nx > ny) {
      std::swap(x, y);
      std::swap(nx, ny);
    }
    if (nx <= kShort) {
      for (int i = 0; i < nx; i++)
        for (int j = 0; j < ny; j++) out[i + j] = std::max(out[i + j], x[i] + y[j]);
      return;
    }
    const int width = nx + ny - 1;
    double* found = scratch((size_t)width);
    max_plus_rows(kernels_, 1, x, nx, y, ny, 0, width, threads_, found);
    raise(out, found, 0.0, width);
  }

  // out[i] = max(itself, g[i + j - shift] + y[j])
  void correlate(const double* g, int ng, int shift, const double* y, int ny, double* out, int n) {
    if (std::min(ny, n) <= kShort) {
      for (int j = 0; j < ny; j++) {
        const int stop = std::min(n, ng + shift - j);
        for (int i = std::max(0, shift - j); i < stop; i++) out[i] = std::max(out[i], g[i + j - shift] + y[j]);
      }
      return;
    }
    double *turned = scratch((size_t)ny), *found = scratch((size_t)n);
    std::reverse_copy(y, y + ny, turned);
    max_plus_rows(kernels_, 1, turned, ny, g, ng, ny - 1 - shift, n, threads_, found);
    raise(out, found, 0.0, n);
  }

  // The second operand across the edge: best over the state behind it.
  Second second_operand(int node) {
    const MaxCluster& c = clusters_[(size_t)model_.program.b[node]];
    return tallytree::second_operand(model_.program, node, K_, model_.log_edges, identity_.data(), c.value, c.width,
                                     [&](size_t n) { return scratch(n); }, raise);
  }

  // Store rows of n counts, without the ends that are worth nothing; false if that is all of them.
  bool keep(int node, const double* rows, int states, int n, int lo) {
    MaxCluster& c = clusters_[(size_t)node];
    Interval kept = {0, n};
    if (outside_) {
      const double* rest = outside_->clusters_[(size_t)node].adjoint;
      kept = visible_window(states, n, [&](int s, int j) { return rows[(ptrdiff_t)s * n + j] + rest[s] >= threshold_; });
      if (kept.hi <= kept.lo) return false;
    }
    c.width = kept.hi - kept.lo;
    c.lo = lo + kept.lo;
    c.adjoint = nullptr;
    c.value = arena_take(&arena_, (size_t)states * (size_t)c.width);
    for (int s = 0; s < states; s++)
      std::copy_n(rows + (ptrdiff_t)s * n + kept.lo, c.width, c.value + (ptrdiff_t)s * c.width);
    return true;
  }

  bool product_up(int node) {
    const ClusterView& view = model_.program;
    const MaxCluster &x = clusters_[(size_t)view.a[node]], &b = clusters_[(size_t)view.b[node]];
    const Second y = second_operand(node);
    const std::vector<Term>& terms = terms_[view.op[node]];
    const int states = states_of(view.kind[node], K_), n = x.width + y.width - 1;
    double* rows = scratch((size_t)states * (size_t)n);
    for (const Term& t : terms)
      convolve(x.value + (ptrdiff_t)t.x * x.width, x.width, y.rows + (ptrdiff_t)t.y * y.width, y.width,
               rows + (ptrdiff_t)t.out * n);
    work_ += (double)terms.size() * x.width * y.width;
    return keep(node, rows, states, n, x.lo + b.lo);
  }

  bool leaf_up(int node) {
    const ClusterView& view = model_.program;
    const int K = K_, v = view.ref[node];
    const bool leaf = view.op[node] == kLeaf, counted = leaf && counting_ && view.counted[v];
    const int width = counted ? leaf_width(view, model_.score, v, K) : 1;
    double* rows = scratch((size_t)(K * width));
    for (int k = 0; k < K; k++) {
      const ptrdiff_t at = (ptrdiff_t)v * K + k;
      rows[k * width + (counted ? model_.score[at] : 0)] = leaf ? model_.log_leaf[at] : 0.0;
    }
    return keep(node, rows, K, width, 0);
  }

  bool single_up(int node) {
    const ClusterView& view = model_.program;
    const MaxCluster& x = clusters_[(size_t)view.a[node]];
    const int n = x.width, states = states_of(view.kind[node], K_);
    if (view.op[node] == kTable) {
      const bool ends = view.top[view.ref[node]];
      const int width = ends ? 1 : n;
      double* rows = scratch((size_t)states * (size_t)width);
      for (int i = 0; i < states; i++)
        for (int j = 0; j < n; j++) {
          double& out = rows[(ptrdiff_t)i * width + (ends ? 0 : j)];
          out = std::max(out, x.value[(ptrdiff_t)i * n + j] + potential(view.ref[node], x.lo + j));
        }
      return keep(node, rows, states, width, ends ? 0 : x.lo);
    }
    double* rows = scratch((size_t)states * (size_t)n);
    link_rows(view, node, K_, model_.log_edges, 0.0, [&](int to, int from, double w) {
      raise(rows + (ptrdiff_t)to * n, x.value + (ptrdiff_t)from * n, w, n);
    });
    return keep(node, rows, states, n, x.lo);
  }

  void product_down(int node) {
    const ClusterView& view = model_.program;
    const MaxCluster& c = clusters_[(size_t)node];
    MaxCluster &x = clusters_[(size_t)view.a[node]], &b = clusters_[(size_t)view.b[node]];
    const Second y = second_operand(node);
    const int K = K_, shift = c.lo - x.lo - b.lo, n = y.width;
    const int x_states = states_of(first_kind(view.op[node], view.kind[node]), K);
    x.adjoint = nothing((size_t)x_states * (size_t)x.width);
    b.adjoint = nothing((size_t)states_of(view.kind[view.b[node]], K) * (size_t)n);
    double* to = y.table ? scratch((size_t)y.count * (size_t)n) : b.adjoint;
    for (const Term& t : terms_[view.op[node]]) {
      const double* g = c.adjoint + (ptrdiff_t)t.out * c.width;
      const double *from_x = x.value + (ptrdiff_t)t.x * x.width, *from_y = y.rows + (ptrdiff_t)t.y * n;
      correlate(g, c.width, shift, from_y, n, x.adjoint + (ptrdiff_t)t.x * x.width, x.width);
      correlate(g, c.width, shift, from_x, x.width, to + (ptrdiff_t)t.y * n, n);
    }
    if (!y.table) return;
    across(y, K, [&](int here, int behind, double w) {
      raise(b.adjoint + (ptrdiff_t)behind * n, to + (ptrdiff_t)here * n, w, n);
    });
  }

  void single_down(int node) {
    const ClusterView& view = model_.program;
    const int op = view.op[node], set = view.ref[node];
    if (op == kLeaf || op == kOnes) return;
    const MaxCluster& c = clusters_[(size_t)node];
    MaxCluster& x = clusters_[(size_t)view.a[node]];
    const int n = x.width, shift = c.lo - x.lo, states = states_of(first_kind(op, view.kind[node]), K_);
    const bool ends = op == kTable && view.top[set];
    const int first = ends ? 0 : std::max(0, shift), stop = ends ? n : std::min(n, c.width + shift);
    x.adjoint = nothing((size_t)states * (size_t)n);
    if (op == kTable) {
      for (int s = 0; s < states; s++)
        for (int j = first; j < stop; j++)
          x.adjoint[(ptrdiff_t)s * n + j] =
              c.adjoint[ends ? s : (ptrdiff_t)s * c.width + j - shift] + potential(set, x.lo + j);
      return;
    }
    link_rows(view, node, K_, model_.log_edges, 0.0, [&](int from, int to, double w) {
      raise(x.adjoint + (ptrdiff_t)to * n + first, c.adjoint + (ptrdiff_t)from * c.width + first - shift, w, stop - first);
    });
  }

  void walk_product(int node) {
    const ClusterView& view = model_.program;
    const size_t a = (size_t)view.a[node], b = (size_t)view.b[node];
    const MaxCluster &x = clusters_[a], &y = clusters_[b];
    const Crossing edge = crossing(view, node, K_, model_.log_edges, identity_.data());
    const std::vector<Term>& terms = terms_[view.op[node]];
    const int z = count_[(size_t)node] - x.lo - y.lo;
    Best best;
    each_way(edge, K_, terms.data(), (int)terms.size(), state_[(size_t)node], 0.0, [&](int from, int to, double w) {
      for (int i = std::max(0, z - y.width + 1); i <= std::min(z, x.width - 1); i++) {
        if (!best.offer(x.value[(ptrdiff_t)from * x.width + i] + (w + y.value[(ptrdiff_t)to * y.width + z - i]))) continue;
        state_[a] = from;
        state_[b] = to;
        count_[a] = x.lo + i;
      }
    });
    count_[b] = count_[(size_t)node] - count_[a];
  }

  void walk_single(int node) {
    const ClusterView& view = model_.program;
    const int op = view.op[node], state = state_[(size_t)node], count = count_[(size_t)node];
    if (op == kLeaf || op == kOnes) return;
    const size_t a = (size_t)view.a[node];
    const MaxCluster& x = clusters_[a];
    state_[a] = state;
    count_[a] = count;
    Best best;
    if (op == kTable && view.top[view.ref[node]]) {
      for (int j = 0; j < x.width; j++)
        if (best.offer(x.value[(ptrdiff_t)state * x.width + j] + potential(view.ref[node], x.lo + j))) count_[a] = x.lo + j;
    } else if (op != kTable) {
      link_rows(view, node, K_, model_.log_edges, 0.0, [&](int to, int from, double w) {
        if (to == state && best.offer(w + x.value[(ptrdiff_t)from * x.width + count - x.lo])) state_[a] = from;
      });
    }
  }

  const Kernels& kernels_;
  const MaxModel& model_;
  bool counting_;
  int threads_, K_;
  double work_ = 0, threshold_ = 0;
  const MaxPass* outside_ = nullptr;
  std::vector<MaxCluster> clusters_;
  std::vector<Term> terms_[kOuter + 1];
  std::vector<double> identity_, table_top_;
  std::vector<int32_t> state_, count_;  // of every cluster, on the way down a configuration
  Arena arena_, scratch_;
};

// The exact optimum by bounds: guess how far it lies below the upper bound U of the model without counts, leave out
// whatever cannot reach that, and see. A configuration found at or above U - slack is the best one: only what lies below
// was left out. One found below it says which slack is enough. Nothing found: a larger guess.

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
