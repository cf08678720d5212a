// Best weights of everything else, results before operands.
#include <algorithm>
#include <cmath>

#include "cluster/max_pass.hpp"

namespace tallytree {

void MaxPass::correlate(const double* g, int ng, int shift, const double* y, int ny, double* out, int n) {
  if (std::min(ny, n) <= 4) {
    for (int j = 0; j < ny; j++) {
      const int stop = std::min(n, ng + shift - j);
      for (int i = std::max(0, shift - j); i < stop; i++) out[i] = std::max(out[i], g[i + j - shift] + y[j]);
    }
    return;
  }
  double *padded = scratch((size_t)(n + ny - 1)), *turned = scratch((size_t)ny), *found = scratch((size_t)n);
  for (int u = std::max(0, shift); u < std::min(n + ny - 1, ng + shift); u++) padded[u] = g[u - shift];
  std::reverse_copy(y, y + ny, turned);
  run_kernel(turned, ny, padded, n, found);
  for (int i = 0; i < n; i++) out[i] = std::max(out[i], found[i]);
}

void MaxPass::product_down(int node) {
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

void MaxPass::single_down(int node) {
  const ClusterView& view = model_.program;
  const int K = K_, op = view.op[node];
  if (op == kLeaf || op == kOnes) return;
  const MaxCluster& c = clusters_[(size_t)node];
  MaxCluster& x = clusters_[(size_t)view.a[node]];
  const int n = x.width, shift = c.lo - x.lo, states = states_of(first_kind(op, view.kind[node]), K);
  const bool ends = op == kTable && view.top[view.ref[node]];
  x.adjoint = nothing((size_t)states * (size_t)n);
  const double* t = op == kThrough ? model_.log_edges + (ptrdiff_t)view.edge[node] * K * K : nullptr;
  for (int s = 0; s < states; s++) {
    double* out = x.adjoint + (ptrdiff_t)s * n;
    if (ends) {
      for (int j = 0; j < n; j++) out[j] = c.adjoint[s] + potential(view.ref[node], x.lo + j);
      continue;
    }
    for (int j = std::max(0, shift); j < std::min(n, c.width + shift); j++) {
      const double* g = c.adjoint + j - shift;
      if (op == kTable) out[j] = g[(ptrdiff_t)s * c.width] + potential(view.ref[node], x.lo + j);
      else if (op == kSum) out[j] = g[0];
      else if (op == kTurn) out[j] = g[(ptrdiff_t)(s % K * K + s / K) * c.width];
      else
        for (int p = 0; p < K; p++)
          out[j] = std::max(out[j], entry(t, view.flip[node], K, p, s) + g[(ptrdiff_t)p * c.width]);
    }
  }
}

void MaxPass::down() {
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

void MaxPass::messages(double* out) const {
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

void MaxPass::counts(double* out) const {
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
double MaxPass::smallest_belief(const MaxPass& bounds, bool* missing) const {
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

}  // namespace tallytree
