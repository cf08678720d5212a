// Python bindings of the passes over cluster programs, sums and best weights, and of rooted forests.
#include <algorithm>

#include "bind/bindings.hpp"
#include "cluster/pass.hpp"

namespace tallytree {

namespace {

// What all passes over clusters are given: a program (the rows of its nodes are operation, kind, two operands, edge, reference
// and flip), then scores, weights of leaves and edges, tables and where they start.
using ClusterArrays = std::tuple<array_in<int32_t, 2>, vector_of<int64_t>, vector_of<int32_t>, vector_of<int32_t>,
                                 vector_of<int8_t>, vector_of<int8_t>, array_in<int32_t, 2>, cube_in, array_in<double, 4>,
                                 matrix_in, vector_of<int64_t>>;

// The same as the passes see it.
struct Clusters : ClusterInput {
  std::vector<int8_t> op, kind, flip;

  explicit Clusters(const ClusterArrays& arrays) {
    const auto& [numbers, levels_from, in_order, root, is_counted, is_top, scores, leaves, edge_weights, all_tables, starts] = arrays;
    const size_t n = numbers.shape(1), D = leaves.shape(1), K = leaves.shape(2);
    batch = leaves.shape(0);
    shared_edges = edge_weights.shape(0) == 1;
    shared_tables = all_tables.shape(0) == 1;
    require(numbers.shape(0) == 7 && in_order.shape(0) == n, "`nodes` must have seven rows, `order` its length");
    require(scores.shape(0) == D && scores.shape(1) == K && is_counted.shape(0) == D,
            "`score` and `counted` must have one row per variable");
    require((shared_edges || edge_weights.shape(0) == batch) && (shared_tables || all_tables.shape(0) == batch),
            "`edges` and `tables` must have one row, or one per row of `log_leaf`");
    const auto row = [&, first = numbers.data()](size_t i) { return first + i * n; };
    op.assign(row(0), row(1));
    kind.assign(row(1), row(2));
    flip.assign(row(6), row(7));
    program = {(int32_t)n, (int32_t)D, op.data(), kind.data(), row(2), row(3), row(4), row(5), flip.data(), is_counted.data(),
               is_top.data()};
    level_start = levels_from.data();
    order = in_order.data();
    roots = root.data();
    levels = (int)levels_from.shape(0) - 1;
    states = (int)K;
    edges = edge_weights.shape(1);
    entries = all_tables.shape(1);
    sets = starts.shape(0) - 1;
    n_roots = root.shape(0);
    log_leaf = leaves.data();
    edge_tables = edge_weights.data();
    tables = all_tables.data();
    offset = starts.data();
    score = scores.data();
  }
};

auto run_cluster_pass(const ClusterArrays& arrays, matrix_in edge_top, matrix_in table_top, double keep, int arithmetic,
                      matrix_in powers, vector_of<int32_t> top_set, cube_in uniform, std::optional<cube_in> leaf_move,
                      std::optional<matrix_in> table_move, int threads, const std::string& level) {
  const Kernels& kernels = choose(level);
  const Clusters models(arrays);
  const size_t batch = models.batch, D = (size_t)models.program.variables, K = (size_t)models.states;
  require(edge_top.shape(0) == (models.shared_edges ? 1 : batch) && table_top.shape(0) == (models.shared_tables ? 1 : batch),
          "`edge_top` and `table_top` must have the rows of `edges` and `tables`");
  const size_t samples = uniform.shape(1), kept = samples ? 0 : batch;
  require(!samples || (uniform.shape(0) == batch && uniform.shape(2) == (size_t)models.program.nodes && arithmetic == kWide),
          "`uniform` must have a number for every model, sample and cluster, of wide rows");
  require(arithmetic != kWide || (powers.shape(0) == batch && powers.shape(1) == table_top.shape(1) && top_set.shape(0) == D),
          "`powers` must have a tilt for every model and set, `top_set` one for every variable");
  require(!leaf_move || (leaf_move->shape(0) == batch && leaf_move->shape(1) == D && leaf_move->shape(2) == K && table_move &&
                         table_move->shape(0) == batch && table_move->shape(1) == models.entries && arithmetic != kWide && !samples),
          "`leaf_move` and `table_move` must have the shapes of `log_leaf` and `tables`, of all models");
  array_out log_z = new_array({batch}), messages = new_array({kept, D, K});
  array_out log_edges = new_array({kept, models.edges, K, K}), log_counts = new_array({kept, models.entries});
  vector_out<int64_t> drawn = new_array_of<int64_t>(samples * batch * D);
  array_out error = new_array({batch}), vanished = new_array({batch}), noise = new_array({batch});
  const SumInput in = {edge_top.data(), table_top.data(), keep, arithmetic, powers.data(), top_set.data(), samples, uniform.data(),
                       leaf_move ? leaf_move->data() : nullptr, table_move ? table_move->data() : nullptr};
  const ClusterOutput out = {drawn.data(), log_z.data(), messages.data(), log_edges.data(), log_counts.data(), error.data(),
                             vanished.data(), noise.data()};
  unlocked([&] { cluster_pass(kernels, models, in, out, threads); });
  return std::make_tuple(log_z, messages, log_edges, log_counts, error, vanished, noise, drawn);
}

auto run_cluster_maxima(const ClusterArrays& arrays, vector_in slack, bool give_up, bool configurations, bool counts, int threads,
                        const std::string& level) {
  const Kernels& kernels = choose(level);
  const Clusters models(arrays);
  const size_t batch = models.batch, D = (size_t)models.program.variables, K = (size_t)models.states;
  require(slack.shape(0) == batch, "`slack` must have one entry per row of `log_leaf`");
  array_out value = new_array({batch}), messages = new_array({configurations ? 0 : batch, D, K});
  array_out best_counts = new_array({counts ? batch : 0, models.entries});
  vector_out<int64_t> states = new_array_of<int64_t>(configurations ? batch * D : 0);
  vector_out<bool> known = new_array_of<bool>(batch);
  const MaximaOutput out = {value.data(), known.data(), configurations ? states.data() : nullptr,
                            configurations ? nullptr : messages.data(), counts ? best_counts.data() : nullptr};
  unlocked([&] { find_maxima(kernels, models, slack.data(), give_up, out, threads); });
  return std::make_tuple(value, known, states, messages, best_counts);
}

}  // namespace

void bind_cluster(nb::module_& m) {
  // Sum-product over a program of clusters: (log_z, messages, log_edges, log_counts, error, vanished, noise,
  // samples), the latter in place of the others but log_z where `uniform` has numbers for them. Along directions derivatives
  // of messages, P(pair of states) and P(count) in place of the logarithms, and their errors.
  m.def("cluster_pass", &run_cluster_pass);
  // Best weights over a program of clusters: (value, known, states, messages, by count), arrays not asked for empty.
  m.def("cluster_maxima", &run_cluster_maxima);
}

// Python bindings of rooted forests: beliefs and best configurations without counts.

namespace {

using indices_in = vector_of<int32_t>;
using flags_in = vector_of<int8_t>;

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

}  // namespace

void bind_forest(nb::module_& m) {
  // The same forest with balanced edge tables: (log_leaf, log_edges, what was moved to the weights).
  m.def("forest_gauge", &run_forest_gauge);
  // Ordinary belief propagation: (beliefs, log_z, log_messages, log_edges, sound).
  m.def("forest_means", &run_forest_means);
  // A best configuration of one forest without counts: (value, states).
  m.def("forest_best", &run_forest_best);
}

}  // namespace tallytree
