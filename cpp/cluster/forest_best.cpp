// A best configuration of a rooted forest without counts: max-product, one vertex after the other.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cluster/forest_means.hpp"

namespace tallytree {

double forest_best(const RootedForest& f, const double* log_leaf, const double* log_edges, int64_t* states) {
  const size_t K = (size_t)f.states, D = (size_t)f.variables;
  std::vector<double> up(log_leaf, log_leaf + D * K);
  std::vector<int32_t> choice(D * K);  // of a vertex, by the state of its parent
  double total = 0;
  for (size_t i = D; i-- > 0;) {
    const size_t v = (size_t)f.order[i];
    const double* own = &up[v * K];
    if (f.parent[v] < 0) {
      total += *std::max_element(own, own + K);
      continue;
    }
    const double* t = log_edges + (size_t)f.edge[v] * K * K;
    double* above = &up[(size_t)f.parent[v] * K];
    for (size_t p = 0; p < K; p++) {
      double best = -HUGE_VAL;
      for (size_t q = 0; q < K; q++) {
        const double w = (f.flip[v] ? t[q * K + p] : t[p * K + q]) + own[q];
        if (!(w > best)) continue;
        best = w;
        choice[v * K + p] = (int32_t)q;
      }
      above[p] += best;
    }
  }
  for (size_t i = 0; i < D; i++) {
    const size_t v = (size_t)f.order[i];
    const double* own = &up[v * K];
    states[v] = f.parent[v] < 0 ? std::max_element(own, own + K) - own
                                : choice[v * K + (size_t)states[(size_t)f.parent[v]]];
  }
  return total;
}

}  // namespace tallytree
