// Best weights of clusters, operands before results.
#include <algorithm>
#include <cmath>

#include "base/parallel.hpp"
#include "cluster/max_pass.hpp"

namespace tallytree {

namespace {

constexpr int kPlain = 4;                      // widths up to which a plain loop is quickest
constexpr double kWorthThreads = 1 << 22;      // sums of one product
constexpr ptrdiff_t kOutputs = 4096;           // of one task

}  // namespace

MaxPass::MaxPass(const Kernels& kernels, const MaxModel& model, bool counting, int threads)
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

double* MaxPass::nothing(size_t n) {
  double* p = arena_take(&arena_, n);
  std::fill_n(p, n, -HUGE_VAL);
  return p;
}

double* MaxPass::scratch(size_t n) {
  double* p = arena_take(&scratch_, n);
  std::fill_n(p, n, -HUGE_VAL);
  return p;
}

double MaxPass::potential(int set, int count) const {
  if (!counting_) return table_top_[(size_t)set];
  const int64_t place = model_.offset[set] + count;
  return place < model_.offset[set + 1] ? model_.tables[place] : -HUGE_VAL;
}

void MaxPass::run_kernel(const double* a, int m, const double* c, int width, double* out) {
  const ptrdiff_t blocks = (width + kOutputs - 1) / kOutputs;
  const int threads = (double)m * width < kWorthThreads ? 1 : threads_;
  parallel_for(blocks, threads, [&](ptrdiff_t block) {
    const ptrdiff_t first = block * kOutputs;
    kernels_.max_plus(a, m, c + first, std::min(kOutputs, width - first), out + first);
  });
}

void MaxPass::convolve(const double* x, int nx, const double* y, int ny, double* out) {
  if (nx > ny) {
    std::swap(x, y);
    std::swap(nx, ny);
  }
  if (nx <= kPlain) {
    for (int i = 0; i < nx; i++)
      for (int j = 0; j < ny; j++) out[i + j] = std::max(out[i + j], x[i] + y[j]);
    return;
  }
  const int width = nx + ny - 1;
  double *padded = scratch((size_t)(width + nx - 1)), *found = scratch((size_t)width);
  std::copy(y, y + ny, padded + nx - 1);
  run_kernel(x, nx, padded, width, found);
  for (int t = 0; t < width; t++) out[t] = std::max(out[t], found[t]);
}

// The second operand across the edge: best over the state behind it.
MaxPass::Second MaxPass::second_operand(int node) {
  const ClusterView& view = model_.program;
  const MaxCluster& c = clusters_[(size_t)view.b[node]];
  Second s = {crossing(view, node, K_, model_.log_edges, identity_.data()), c.value, c.width};
  if (!s.table) return s;
  const int n = c.width;
  double* rows = scratch((size_t)s.count * (size_t)n);
  across(s, K_, [&](int here, int behind, double w) {
    raise(rows + (ptrdiff_t)here * n, c.value + (ptrdiff_t)behind * n, w, n);
  });
  s.rows = rows;
  return s;
}

// Store rows of n counts, without the ends that are worth nothing; false if that is all of them.
bool MaxPass::keep(int node, const double* rows, int states, int n, int lo, const MaxPass* outside, double threshold) {
  MaxCluster& c = clusters_[(size_t)node];
  int first = 0, last = n;
  if (outside) {
    const double* rest = outside->clusters_[(size_t)node].adjoint;
    first = n;
    last = 0;
    for (int s = 0; s < states; s++) {
      const double* x = rows + (ptrdiff_t)s * n;
      int i = 0, j = n;
      while (i < first && !(x[i] + rest[s] >= threshold)) i++;
      while (j > std::max(last, i) && !(x[j - 1] + rest[s] >= threshold)) j--;
      first = std::min(first, i);
      if (i < j) last = std::max(last, j);
    }
    if (last <= first) return false;
  }
  c.width = last - first;
  c.lo = lo + first;
  c.adjoint = nullptr;
  c.value = arena_take(&arena_, (size_t)states * (size_t)c.width);
  for (int s = 0; s < states; s++)
    std::copy_n(rows + (ptrdiff_t)s * n + first, c.width, c.value + (ptrdiff_t)s * c.width);
  return true;
}

bool MaxPass::product_up(int node, const MaxPass* outside, double threshold) {
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
  return keep(node, rows, states, n, x.lo + b.lo, outside, threshold);
}

bool MaxPass::single_up(int node, const MaxPass* outside, double threshold) {
  const ClusterView& view = model_.program;
  const int K = K_, op = view.op[node];
  if (op == kOnes) {
    double* rows = scratch((size_t)K);
    std::fill_n(rows, K, 0.0);
    return keep(node, rows, K, 1, 0, outside, threshold);
  }
  if (op == kLeaf) {
    const int v = view.ref[node];
    const int32_t* score = model_.score + (ptrdiff_t)v * K;
    const bool counted = counting_ && view.counted[v];
    const int width = counted ? leaf_width(view, model_.score, v, K) : 1;
    double* rows = scratch((size_t)(K * width));
    for (int k = 0; k < K; k++) rows[k * width + (counted ? score[k] : 0)] = model_.log_leaf[(ptrdiff_t)v * K + k];
    return keep(node, rows, K, width, 0, outside, threshold);
  }
  const MaxCluster& x = clusters_[(size_t)view.a[node]];
  const int n = x.width, states = states_of(view.kind[node], K);
  if (op == kTable) {
    const int s = view.ref[node];
    const bool ends = view.top[s];
    const int width = ends ? 1 : n;
    double* rows = scratch((size_t)states * (size_t)width);
    for (int i = 0; i < states; i++)
      for (int j = 0; j < n; j++) {
        double& out = rows[(ptrdiff_t)i * width + (ends ? 0 : j)];
        out = std::max(out, x.value[(ptrdiff_t)i * n + j] + potential(s, x.lo + j));
      }
    return keep(node, rows, states, width, ends ? 0 : x.lo, outside, threshold);
  }
  double* rows = scratch((size_t)states * (size_t)n);
  for (int p = 0; p < K; p++)
    for (int q = 0; q < K; q++) {
      if (op == kTurn) {
        std::copy_n(x.value + (ptrdiff_t)(p * K + q) * n, n, rows + (ptrdiff_t)(q * K + p) * n);
        continue;
      }
      if (op == kSum && p > 0) continue;
      const double* t = op == kThrough ? model_.log_edges + (ptrdiff_t)view.edge[node] * K * K : nullptr;
      const double w = t ? entry(t, view.flip[node], K, p, q) : 0.0;
      for (int j = 0; j < n; j++) rows[p * n + j] = std::max(rows[p * n + j], w + x.value[(ptrdiff_t)q * n + j]);
    }
  return keep(node, rows, states, n, x.lo, outside, threshold);
}

MaxPass::Found MaxPass::up(const MaxPass* outside, double threshold, double most_work) {
  arena_.reset();
  work_ = 0;
  for (int32_t i = 0; i < model_.program.nodes; i++) {
    if (i % kNodesBetweenSignals == 0) let_signals_through();
    const int node = model_.order[i];
    const bool left = model_.program.op[node] < kRake ? single_up(node, outside, threshold)
                                                      : product_up(node, outside, threshold);
    scratch_.reset();
    if (!left) return Found::kNothing;
    if (work_ > most_work) return Found::kTooMuch;
  }
  return Found::kValues;
}

double MaxPass::total() const {
  double sum = 0;
  for (size_t i = 0; i < model_.n_roots; i++) sum += clusters_[(size_t)model_.roots[i]].value[0];
  return sum;
}

double MaxPass::most_work() const {
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

}  // namespace tallytree
