// Python bindings of best configurations with edges.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <string>
#include <tuple>
#include <vector>

#include "bind/bindings.hpp"
#include "cluster/forest_means.hpp"
#include "cluster/maxima.hpp"

namespace tallytree {

namespace {

using states_out = nb::ndarray<nb::numpy, int64_t>;
using known_out = nb::ndarray<nb::numpy, bool>;

std::tuple<array_out, known_out, states_out, array_out, array_out> run_cluster_maxima(
    array_in<int32_t, 2> nodes, array_in<int64_t, 1> level_start, array_in<int32_t, 1> order,
    array_in<int32_t, 1> roots, array_in<int8_t, 1> counted, array_in<int8_t, 1> top, array_in<int32_t, 2> score,
    array_in<double, 3> log_leaf, array_in<double, 4> log_edges, array_in<double, 2> tables, array_in<int64_t, 1> offset,
    array_in<double, 1> slack, bool give_up, bool configurations, bool counts, int threads, const std::string& level) {
  const Kernels& kernels = choose(level);
  const size_t n = nodes.shape(1), batch = log_leaf.shape(0), D = log_leaf.shape(1), K = log_leaf.shape(2);
  if (nodes.shape(0) != 7 || order.shape(0) != n) throw nb::value_error("`nodes` must have seven rows, `order` its length");
  if (score.shape(0) != D || score.shape(1) != K || counted.shape(0) != D)
    throw nb::value_error("`score` and `counted` must have one row per variable");
  if ((log_edges.shape(0) != 1 && log_edges.shape(0) != batch) || (tables.shape(0) != 1 && tables.shape(0) != batch) ||
      slack.shape(0) != batch)
    throw nb::value_error("`log_edges`, `tables` and `slack` must have one row, or one per row of `log_leaf`");
  const int32_t* column = nodes.data();
  std::vector<int8_t> op(column, column + n), kind(column + n, column + 2 * n), flip(column + 6 * n, column + 7 * n);
  const ClusterView view = {(int32_t)n, (int32_t)D, op.data(), kind.data(), column + 2 * n, column + 3 * n,
                            column + 4 * n, column + 5 * n, flip.data(), counted.data(), top.data()};
  const size_t entries = tables.shape(1);
  array_out value = new_array({batch}), messages = new_array({configurations ? 0 : batch, D, K});
  array_out best_counts = new_array({counts ? batch : 0, entries});
  states_out states = new_array_of<int64_t>(configurations ? batch * D : 0);
  known_out known = new_array_of<bool>(batch);
  const MaximaInput in = {
      {view, order.data(), roots.data(), roots.shape(0), (int)K, log_leaf.data(), log_edges.data(), tables.data(),
       offset.data(), score.data(), offset.shape(0) - 1},
      (int)level_start.shape(0) - 1, batch, log_edges.shape(1), entries, log_edges.shape(0) == 1, tables.shape(0) == 1,
      slack.data(), give_up};
  {
    GilReleased release;
    find_maxima(kernels, in, {value.data(), known.data(), configurations ? states.data() : nullptr,
                              configurations ? nullptr : messages.data(), counts ? best_counts.data() : nullptr}, threads);
  }
  return {value, known, states, messages, best_counts};
}

std::tuple<double, states_out> run_forest_best(array_in<int32_t, 1> order, array_in<int32_t, 1> parent,
                                               array_in<int32_t, 1> edge, array_in<int8_t, 1> flip,
                                               array_in<double, 2> log_leaf, array_in<double, 3> log_edges) {
  const size_t D = log_leaf.shape(0), K = log_leaf.shape(1);
  if (order.shape(0) != D || parent.shape(0) != D || edge.shape(0) != D || flip.shape(0) != D)
    throw nb::value_error("`order`, `parent`, `edge` and `flip` must have one entry per variable");
  states_out states = new_array_of<int64_t>(D);
  const RootedForest forest = {(int32_t)D, (int32_t)K, order.data(), parent.data(), edge.data(), flip.data()};
  double value;
  {
    GilReleased release;
    value = forest_best(forest, log_leaf.data(), log_edges.data(), states.data());
  }
  return {value, states};
}

}  // namespace

void bind_maxima(nb::module_& m) {
  m.def("cluster_maxima", &run_cluster_maxima, nb::arg("nodes"), nb::arg("level_start"), nb::arg("order"),
        nb::arg("roots"), nb::arg("counted"), nb::arg("top"), nb::arg("score"), nb::arg("log_leaf"), nb::arg("log_edges"),
        nb::arg("tables"), nb::arg("offset"), nb::arg("slack"), nb::arg("give_up"), nb::arg("configurations"), nb::arg("counts"),
        nb::arg("threads") = 0, nb::arg("level") = "",
        "Best weights over a program of clusters: (value, known, states, messages, by count), arrays not asked for empty.");
  m.def("forest_best", &run_forest_best, nb::arg("order"), nb::arg("parent"), nb::arg("edge"), nb::arg("flip"),
        nb::arg("log_leaf"), nb::arg("log_edges"), "A best configuration of one forest without counts: (value, states).");
}

}  // namespace tallytree
