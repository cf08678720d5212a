// Python bindings of rooted forests: beliefs and best configurations without counts, derivatives with one.
#include <algorithm>
#include <complex>

#include "bind/bindings.hpp"
#include "cluster/forests.hpp"

namespace tallytree {

namespace {

using indices_in = vector_of<int32_t>;
using flags_in = vector_of<int8_t>;
using complex = std::complex<double>;

// The vertices of a forest in an order in which parents come first; their parents, edges and flips.
using Rooting = std::tuple<indices_in, indices_in, indices_in, flags_in>;

RootedForest rooted(const Rooting& rooting, size_t variables, size_t states) {
  const auto& [order, parent, edge, flip] = rooting;
  require(order.shape(0) == variables && parent.shape(0) == variables && edge.shape(0) == variables &&
              flip.shape(0) == variables,
          "`order`, `parent`, `edge` and `flip` must have one entry per variable");
  return {(int32_t)variables, (int32_t)states, order.data(), parent.data(), edge.data(), flip.data()};
}

auto run_forest_means(const Rooting& rooting, cube_in leaf, array_in<double, 4> edges, bool everything) {
  const size_t batch = leaf.shape(0), D = leaf.shape(1), K = leaf.shape(2), E = edges.shape(1);
  const size_t kept = everything ? batch : 0;
  array_out beliefs = new_array({batch, D, K}), log_z = new_array({batch}), messages = new_array({kept, D, K});
  array_out log_edges = new_array({kept, E, K, K});
  vector_out<bool> sound = new_array_of<bool>(batch);
  const RootedForest forest = rooted(rooting, D, K);
  unlocked([&] {
    for (size_t b = 0; b < batch; b++)
      sound.data()[b] = forest_means(forest, leaf.data() + b * D * K, row_or_only(edges, b),
                                     {beliefs.data() + b * D * K, log_z.data() + b,
                                      everything ? messages.data() + b * D * K : nullptr,
                                      everything ? log_edges.data() + b * E * K * K : nullptr});
  });
  return std::make_tuple(beliefs, log_z, messages, log_edges, sound);
}

auto run_forest_gauge(const Rooting& rooting, cube_in log_leaf, array_in<double, 4> log_edges) {
  const size_t batch = log_leaf.shape(0), D = log_leaf.shape(1), K = log_leaf.shape(2), E = log_edges.shape(1);
  array_out leaf = new_array({batch, D, K}), edges = new_array({batch, E, K, K}), moved = new_array({batch, D, K});
  std::fill_n(moved.data(), batch * D * K, 0.0);
  std::copy_n(log_leaf.data(), batch * D * K, leaf.data());
  const RootedForest forest = rooted(rooting, D, K);
  unlocked([&] {
    for (size_t b = 0; b < batch; b++) {
      std::copy_n(row_or_only(log_edges, b), E * K * K, edges.data() + b * E * K * K);
      forest_gauge(forest, leaf.data() + b * D * K, edges.data() + b * E * K * K, moved.data() + b * D * K);
    }
  });
  return std::make_tuple(leaf, edges, moved);
}

auto run_forest_best(const Rooting& rooting, matrix_in log_leaf, cube_in log_edges) {
  const size_t D = log_leaf.shape(0), K = log_leaf.shape(1);
  const RootedForest forest = rooted(rooting, D, K);
  vector_out<int64_t> states = new_array_of<int64_t>(D);
  const double value = unlocked([&] { return forest_best(forest, log_leaf.data(), log_edges.data(), states.data()); });
  return std::make_tuple(value, states);
}

auto run_forest_tangent(const Rooting& rooting, flags_in counted, matrix_in leaf, cube_in tables, matrix_in slope,
                        size_t period, vector_of<complex> f, vector_of<complex> h, bool everything,
                        const std::string& level) {
  const size_t n = leaf.shape(0), frequencies = f.shape(0);
  const RootedForest forest = rooted(rooting, n, 2);
  require(counted.shape(0) == n && slope.shape(0) == n && leaf.shape(1) == 2 && slope.shape(1) == 2 && period > 0 &&
              tables.shape(1) == 2 && tables.shape(2) == 2 && frequencies > 0 && h.shape(0) == frequencies,
          "all variables must have two states, f and h the same length");
  array_out marginals = new_array({n}), change = new_array({n}), worst = new_array({2}), doubt = new_array({n});
  complex* spectra = new complex[2 * frequencies];
  nb::capsule owner(spectra, [](void* p) noexcept { delete[] (complex*)p; });
  vector_out<complex> law(spectra, {2, frequencies}, owner);
  const EdgeTangentInputs in = {{forest, counted.data(), leaf.data(), tables.data(), slope.data()}, (int64_t)period,
                                (ptrdiff_t)frequencies, f.data(), h.data(), everything};
  unlocked([&] {
    edge_tangent(choose(level), in, marginals.data(), change.data(), worst.data(), doubt.data(), spectra, spectra + frequencies);
  });
  return std::make_tuple(marginals, change, worst, doubt, law);
}

}  // namespace

void bind_forest(nb::module_& m) {
  // The same forest with balanced edge tables: (log_leaf, log_edges, what was moved to the weights).
  m.def("forest_gauge", &run_forest_gauge);
  // Ordinary belief propagation: (beliefs, log_z, log_messages, log_edges, sound).
  m.def("forest_means", &run_forest_means);
  // A best configuration of one forest without counts: (value, states).
  m.def("forest_best", &run_forest_best);
  // P(y = 1) and its derivative, (D,) each, in a forest of pairs with one count; how much relative errors of all terms are
  // amplified in the former and the share of the weight that underflow may have taken, (2,); their amplification in each
  // derivative, (D,); and the characteristic function of the count with its derivative, (2, M).
  m.def("forest_tangent", &run_forest_tangent);
}

}  // namespace tallytree
