// Ordinary belief propagation on a rooted forest: one vertex after the other, two sweeps.
#include "forest_means.hpp"

#include <algorithm>
#include <vector>

namespace tallytree {

// Messages are scaled to a largest entry of 1; that is all a mean needs.
void forest_means(const RootedForest& f, const double* leaf, const double* edges, double* beliefs) {
  const size_t K = (size_t)f.states, D = (size_t)f.variables;
  std::vector<double> up(D * K), sent(D * K);
  const auto scale = [K](double* x) {
    const double largest = *std::max_element(x, x + K);
    if (largest > 0)
      for (size_t k = 0; k < K; k++) x[k] /= largest;
  };
  std::copy(leaf, leaf + D * K, up.begin());
  for (size_t i = D; i-- > 0;) {
    const size_t v = (size_t)f.order[i];
    scale(&up[v * K]);
    if (f.parent[v] < 0) continue;
    const double* t = edges + (size_t)f.edge[v] * K * K;
    double *to = &sent[v * K], *above = &up[(size_t)f.parent[v] * K];
    for (size_t p = 0; p < K; p++) {
      double total = 0;
      for (size_t q = 0; q < K; q++) total += (f.flip[v] ? t[q * K + p] : t[p * K + q]) * up[v * K + q];
      to[p] = total;
    }
    scale(to);
    for (size_t p = 0; p < K; p++) above[p] *= to[p];
    if (i % 16 == 0) scale(above);
  }
  std::vector<double> rest(K);
  for (size_t i = 0; i < D; i++) {
    const size_t v = (size_t)f.order[i];
    double* b = beliefs + v * K;
    if (f.parent[v] < 0) {
      std::copy(&up[v * K], &up[v * K] + K, b);
    } else {
      const double *t = edges + (size_t)f.edge[v] * K * K, *above = beliefs + (size_t)f.parent[v] * K;
      for (size_t p = 0; p < K; p++) rest[p] = sent[v * K + p] > 0 ? above[p] / sent[v * K + p] : 0.0;
      for (size_t q = 0; q < K; q++) {
        double total = 0;
        for (size_t p = 0; p < K; p++) total += (f.flip[v] ? t[q * K + p] : t[p * K + q]) * rest[p];
        b[q] = total * up[v * K + q];
      }
    }
    double total = 0;
    for (size_t k = 0; k < K; k++) total += b[k];
    if (total > 0)
      for (size_t k = 0; k < K; k++) b[k] /= total;
  }
}

}  // namespace tallytree
