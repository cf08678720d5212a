// Python bindings of the passes over cluster programs.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "bind/bindings.hpp"
#include "cluster/pass.hpp"
#include "cluster/forest_means.hpp"

namespace tallytree {

namespace {

using ClusterAnswer = std::tuple<array_out, array_out, array_out, array_out, array_out, array_out, array_out>;

ClusterAnswer run_cluster_pass(array_in<int32_t, 2> nodes, array_in<int64_t, 1> level_start, array_in<int32_t, 1> order,
                    array_in<int32_t, 1> roots, array_in<int8_t, 1> counted, array_in<int8_t, 1> top,
                    array_in<int32_t, 2> score, array_in<double, 3> log_leaf, array_in<double, 4> edges,
                    array_in<double, 2> edge_top, array_in<double, 2> tables, array_in<double, 2> table_top,
                    array_in<int64_t, 1> offset, double keep, bool use_fft, int threads, const std::string& level) {
  const Kernels& kernels = choose(level);
  const size_t n = nodes.shape(1), batch = log_leaf.shape(0), D = log_leaf.shape(1), K = log_leaf.shape(2);
  if (nodes.shape(0) != 7 || order.shape(0) != n) throw nb::value_error("`nodes` must have seven rows, `order` its length");
  if (score.shape(0) != D || score.shape(1) != K || counted.shape(0) != D)
    throw nb::value_error("`score` and `counted` must have one row per variable");
  if ((edges.shape(0) != 1 && edges.shape(0) != batch) || (tables.shape(0) != 1 && tables.shape(0) != batch) ||
      edge_top.shape(0) != edges.shape(0) || table_top.shape(0) != tables.shape(0))
    throw nb::value_error("`edges` and `tables` must have one row, or one per row of `log_leaf`");
  const int32_t* column = nodes.data();
  std::vector<int8_t> op(column, column + n), kind(column + n, column + 2 * n), flip(column + 6 * n, column + 7 * n);
  const tallytree::ClusterView view = {(int32_t)n, (int32_t)D, op.data(), kind.data(), column + 2 * n, column + 3 * n,
                                       column + 4 * n, column + 5 * n, flip.data(), counted.data(), top.data()};
  array_out log_z = new_array({batch}), messages = new_array({batch, D, K});
  array_out log_edges = new_array({batch, edges.shape(1), K, K}), log_counts = new_array({batch, tables.shape(1)});
  array_out error = new_array({batch}), vanished = new_array({batch}), noise = new_array({batch});
  const tallytree::ClusterInput in = {
      view, level_start.data(), order.data(), (int)level_start.shape(0) - 1, (int)K, batch, edges.shape(1),
      tables.shape(1), table_top.shape(1), roots.shape(0), log_leaf.data(), edges.data(), edge_top.data(), tables.data(),
      table_top.data(), edges.shape(0) == 1, tables.shape(0) == 1, offset.data(), score.data(), roots.data(), keep, use_fft};
  {
    GilReleased release;
    tallytree::cluster_pass(kernels, in, {log_z.data(), messages.data(), log_edges.data(), log_counts.data(), error.data(),
                                           vanished.data(), noise.data()}, threads);
  }
  return {log_z, messages, log_edges, log_counts, error, vanished, noise};
}

// The vertices of a forest in an order in which parents come first.
struct Rooting {
  array_in<int32_t, 1> order, parent, edge;
  array_in<int8_t, 1> flip;

  RootedForest of(size_t variables, size_t states) const {
    require(order.shape(0) == variables && parent.shape(0) == variables && edge.shape(0) == variables &&
                flip.shape(0) == variables,
            "`order`, `parent`, `edge` and `flip` must have one entry per variable");
    return {(int32_t)variables, (int32_t)states, order.data(), parent.data(), edge.data(), flip.data()};
  }
};

using Beliefs = std::tuple<array_out, array_out, array_out, array_out, nb::ndarray<nb::numpy, bool>>;

Beliefs run_forest_means(array_in<int32_t, 1> order, array_in<int32_t, 1> parent, array_in<int32_t, 1> edge,
                     array_in<int8_t, 1> flip, array_in<double, 3> leaf, array_in<double, 4> edges, bool everything) {
  const size_t batch = leaf.shape(0), D = leaf.shape(1), K = leaf.shape(2), E = edges.shape(1);
  const size_t kept = everything ? batch : 0;
  array_out beliefs = new_array({batch, D, K}), log_z = new_array({batch}), messages = new_array({kept, D, K});
  array_out log_edges = new_array({kept, E, K, K});
  nb::ndarray<nb::numpy, bool> sound = new_array_of<bool>(batch);
  const RootedForest forest = Rooting{order, parent, edge, flip}.of(D, K);
  {
    GilReleased release;
    for (size_t b = 0; b < batch; b++)
      sound.data()[b] = tallytree::forest_means(
          forest, leaf.data() + b * D * K, edges.data() + (edges.shape(0) == 1 ? 0 : b) * E * K * K,
          {beliefs.data() + b * D * K, log_z.data() + b, everything ? messages.data() + b * D * K : nullptr,
           everything ? log_edges.data() + b * E * K * K : nullptr});
  }
  return {beliefs, log_z, messages, log_edges, sound};
}

std::tuple<array_out, array_out, array_out> run_forest_gauge(array_in<int32_t, 1> order, array_in<int32_t, 1> parent,
                                                              array_in<int32_t, 1> edge, array_in<int8_t, 1> flip,
                                                              array_in<double, 3> log_leaf,
                                                              array_in<double, 4> log_edges) {
  const size_t batch = log_leaf.shape(0), D = log_leaf.shape(1), K = log_leaf.shape(2), E = log_edges.shape(1);
  array_out leaf = new_array({batch, D, K}), edges = new_array({batch, E, K, K}), moved = new_array({batch, D, K});
  std::fill_n(moved.data(), batch * D * K, 0.0);
  const RootedForest forest = Rooting{order, parent, edge, flip}.of(D, K);
  GilReleased release;
  for (size_t b = 0; b < batch; b++) {
    const double* from = log_edges.data() + (log_edges.shape(0) == 1 ? 0 : b) * E * K * K;
    std::copy(from, from + E * K * K, edges.data() + b * E * K * K);
    std::copy(log_leaf.data() + b * D * K, log_leaf.data() + (b + 1) * D * K, leaf.data() + b * D * K);
    tallytree::forest_gauge(forest, leaf.data() + b * D * K, edges.data() + b * E * K * K, moved.data() + b * D * K);
  }
  return {leaf, edges, moved};
}

}  // namespace

void bind_cluster(nb::module_& m) {
  m.def("forest_gauge", &run_forest_gauge, nb::arg("order"), nb::arg("parent"), nb::arg("edge"), nb::arg("flip"),
        nb::arg("log_leaf"), nb::arg("log_edges"),
        "The same forest with balanced edge tables: (log_leaf, log_edges, what was moved to the weights).");
  m.def("forest_means", &run_forest_means, nb::arg("order"), nb::arg("parent"), nb::arg("edge"), nb::arg("flip"),
        nb::arg("leaf"), nb::arg("edges"), nb::arg("everything") = false,
        "Ordinary belief propagation: (beliefs, log_z, log_messages, log_edges, sound).");
  m.def("cluster_pass", &run_cluster_pass, nb::arg("nodes"), nb::arg("level_start"), nb::arg("order"), nb::arg("roots"),
        nb::arg("counted"), nb::arg("top"), nb::arg("score"), nb::arg("log_leaf"), nb::arg("edges"), nb::arg("edge_top"),
        nb::arg("tables"), nb::arg("table_top"), nb::arg("offset"), nb::arg("keep"), nb::arg("use_fft"),
        nb::arg("threads") = 0, nb::arg("level") = "",
        "Sum-product over a program of clusters: (log_z, messages, log_edges, log_counts, error, vanished, noise).");
}

}  // namespace tallytree
