// Ordinary belief propagation on a rooted forest, one vertex after the other, two sweeps.
#include "cluster/pass.hpp"

#include <algorithm>
#include <cmath>

#include "base/parallel.hpp"
#include "base/workspace.hpp"
#include "cluster/program_pass.hpp"

namespace tallytree {

constexpr double kSmall = 1e-280;  // smaller numbers may have lost digits to underflow
constexpr double kScaled = 1e-20;  // products of what children send are kept above this

static double scale(double* x, size_t K) {
  const double largest = *std::max_element(x, x + K);
  if (!(largest > 0)) return 0.0;
  for (size_t k = 0; k < K; k++) x[k] /= largest;
  return std::log(largest);
}

// Upwards `below` is the product of what the children send and `up` that times the own weights; downwards the belief of
// the parent without what v sent it comes by division, which needs nothing sent to be zero.
bool forest_means(const RootedForest& f, const double* leaf, const double* edges, const BeliefsOut& out) {
  const size_t K = (size_t)f.states, D = (size_t)f.variables;
  std::vector<double> below(D * K, 1.0), up(D * K), sent(D * K, 1.0), rest(K), down(K);
  LogSum log_z;
  bool sound = true;
  for (size_t i = D; i-- > 0;) {
    const size_t v = (size_t)f.order[i];
    double *own = &up[v * K], *from = &below[v * K];
    log_z.add(scale(from, K));
    for (size_t k = 0; k < K; k++) own[k] = from[k] * leaf[v * K + k];
    log_z.add(scale(own, K));
    if (f.parent[v] < 0) {
      double total = 0;
      for (size_t k = 0; k < K; k++) total += own[k];
      log_z.add(std::log(total));
      continue;
    }
    const double* t = edges + (size_t)f.edge[v] * K * K;
    double *to = &sent[v * K], *above = &below[(size_t)f.parent[v] * K];
    for (size_t p = 0; p < K; p++) {
      double total = 0;
      for (size_t q = 0; q < K; q++) total += entry(t, f.flip[v], K, p, q) * own[q];
      to[p] = total;
    }
    log_z.add(scale(to, K));
    for (size_t p = 0; p < K; p++) {
      above[p] *= to[p];
      sound = sound && to[p] > kSmall && above[p] > kSmall;
    }
    if (*std::max_element(above, above + K) < kScaled) log_z.add(scale(above, K));
  }
  for (size_t i = 0; i < D; i++) {
    const size_t v = (size_t)f.order[i];
    double* b = out.beliefs + v * K;
    std::fill(down.begin(), down.end(), 1.0);
    if (f.parent[v] >= 0) {
      const double *t = edges + (size_t)f.edge[v] * K * K, *above = out.beliefs + (size_t)f.parent[v] * K;
      for (size_t p = 0; p < K; p++) rest[p] = sent[v * K + p] > 0 ? above[p] / sent[v * K + p] : 0.0;
      double total = 0;
      const double largest = *std::max_element(rest.begin(), rest.end());
      for (size_t q = 0; q < K; q++) {
        down[q] = 0;
        for (size_t p = 0; p < K; p++) {
          const double w = entry(t, f.flip[v], K, p, q) * rest[p];
          down[q] += w;
          total += w * up[v * K + q];
        }
        sound = sound && down[q] > kSmall * largest;  // terms that vanished were below the smallest number times it
      }
      if (out.log_edges)
        for (size_t p = 0; p < K; p++)
          for (size_t q = 0; q < K; q++) {
            const size_t place = f.flip[v] ? q * K + p : p * K + q;
            out.log_edges[(size_t)f.edge[v] * K * K + place] = std::log(t[place] * rest[p] * up[v * K + q] / total);
          }
    }
    double total = 0;
    for (size_t k = 0; k < K; k++) total += b[k] = down[k] * up[v * K + k];
    if (total > 0)
      for (size_t k = 0; k < K; k++) b[k] /= total;
    if (out.messages)
      for (size_t k = 0; k < K; k++) {
        const double message = below[v * K + k] * down[k];
        // A parent's belief may be zero only where its own weight is; anything else may be an underflow.
        sound = sound && message > kSmall && (b[k] > kSmall || leaf[v * K + k] == 0.0);
        out.messages[v * K + k] = std::log(message);
      }
  }
  if (out.log_z) *out.log_z = log_z.total;
  return sound && std::isfinite(log_z.total);
}

void forest_gauge(const RootedForest& f, double* log_leaf, double* log_edges, double* moved) {
  const size_t K = (size_t)f.states, D = (size_t)f.variables;
  std::vector<double> sent(K);
  for (size_t i = D; i-- > 0;) {
    const size_t v = (size_t)f.order[i];
    if (f.parent[v] < 0) continue;
    const size_t up = (size_t)f.parent[v] * K;
    double *t = log_edges + (size_t)f.edge[v] * K * K, *above = log_leaf + up;
    const double* own = log_leaf + v * K;
    double largest = -HUGE_VAL;
    for (size_t p = 0; p < K; p++) {
      double top = -HUGE_VAL, total = 0;
      for (size_t q = 0; q < K; q++) top = std::max(top, entry(t, f.flip[v], K, p, q) + own[q]);
      for (size_t q = 0; q < K && top > -HUGE_VAL; q++)
        total += std::exp(entry(t, f.flip[v], K, p, q) + own[q] - top);
      sent[p] = top > -HUGE_VAL ? top + std::log(total) : -HUGE_VAL;
      if (above[p] > -HUGE_VAL) largest = std::max(largest, sent[p]);
    }
    if (largest == -HUGE_VAL) largest = 0;
    for (size_t p = 0; p < K; p++) {
      if (sent[p] == -HUGE_VAL) continue;  // an impossible state stays as it is
      // What all states share stays in the table: moved along the tree it would cost digits.
      const double g = sent[p] - largest;
      above[p] += g;
      moved[up + p] += g;
      for (size_t q = 0; q < K; q++) t[f.flip[v] ? q * K + p : p * K + q] -= g;
    }
  }
}

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
        const double w = entry(t, f.flip[v], K, p, q) + own[q];
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
