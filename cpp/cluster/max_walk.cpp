// A best configuration from the values of a program: from the roots down, every cluster hands its operands the states and
// counts of the first of the largest terms that made it.
#include <algorithm>
#include <cmath>

#include "cluster/max_pass.hpp"

namespace tallytree {

void MaxPass::walk_product(int node) {
  const ClusterView& view = model_.program;
  const int a = view.a[node], b = view.b[node], K = K_;
  const MaxCluster &x = clusters_[(size_t)a], &behind = clusters_[(size_t)b];
  const Second y = second_operand(node);
  const int z = count_[(size_t)node] - x.lo - behind.lo, out = state_[(size_t)node];
  double best = -HUGE_VAL;
  Term chosen = {};
  int split = -1;
  for (const Term& t : terms_[view.op[node]]) {
    if (t.out != out) continue;
    for (int i = std::max(0, z - y.width + 1); i <= std::min(z, x.width - 1); i++) {
      const double w = x.value[(ptrdiff_t)t.x * x.width + i] + y.rows[(ptrdiff_t)t.y * y.width + z - i];
      if (split >= 0 && !(w > best)) continue;
      best = w;
      chosen = t;
      split = i;
    }
  }
  state_[(size_t)a] = chosen.x;
  count_[(size_t)a] = x.lo + split;
  count_[(size_t)b] = behind.lo + z - split;
  int lower = chosen.y;
  if (y.table) {
    const int columns = y.count / K, p = chosen.y / columns, r = chosen.y % columns, j = z - split;
    lower = r;
    if (!y.spread) {
      double most = -HUGE_VAL;
      for (int q = 0; q < K; q++) {
        const double w = entry(y.table, y.flip, K, p, q) + behind.value[(ptrdiff_t)(q * columns + r) * y.width + j];
        if (q > 0 && !(w > most)) continue;
        most = w;
        lower = q * columns + r;
      }
    }
  }
  state_[(size_t)b] = lower;
}

void MaxPass::walk_single(int node) {
  const ClusterView& view = model_.program;
  const int K = K_, op = view.op[node], state = state_[(size_t)node], count = count_[(size_t)node];
  if (op == kLeaf || op == kOnes) return;
  const int a = view.a[node];
  const MaxCluster& x = clusters_[(size_t)a];
  int32_t &to_state = state_[(size_t)a], &to_count = count_[(size_t)a];
  to_state = op == kTurn ? state % K * K + state / K : state;
  to_count = count;
  double best = -HUGE_VAL;
  if (op == kTable && view.top[view.ref[node]]) {
    to_count = x.lo;
    for (int j = 0; j < x.width; j++) {
      const double w = x.value[(ptrdiff_t)state * x.width + j] + potential(view.ref[node], x.lo + j);
      if (!(w > best)) continue;
      best = w;
      to_count = x.lo + j;
    }
  } else if (op == kSum || op == kThrough) {
    to_state = 0;
    const double* t = op == kThrough ? model_.log_edges + (ptrdiff_t)view.edge[node] * K * K : nullptr;
    for (int q = 0; q < K; q++) {
      const double w =
          (t ? entry(t, view.flip[node], K, state, q) : 0.0) + x.value[(ptrdiff_t)q * x.width + count - x.lo];
      if (!(w > best)) continue;
      best = w;
      to_state = q;
    }
  }
}

void MaxPass::states(int64_t* out) {
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

}  // namespace tallytree
