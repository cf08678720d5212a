// Python bindings of the passes over cluster programs: sums and best weights.
#include "bind/bindings.hpp"
#include "cluster/max_pass.hpp"
#include "cluster/pass.hpp"

namespace tallytree {

namespace {

// A program as the passes see it. The rows of `nodes` are operation, kind, two operands, edge, reference and flip.
struct Program {
  std::vector<int8_t> op, kind, flip;
  ClusterView view;

  Program(const array_in<int32_t, 2>& nodes, const vector_of<int32_t>& order, const vector_of<int8_t>& counted,
          const vector_of<int8_t>& top, const array_in<int32_t, 2>& score, const cube_in& log_leaf) {
    const size_t n = nodes.shape(1), D = log_leaf.shape(1);
    require(nodes.shape(0) == 7 && order.shape(0) == n, "`nodes` must have seven rows, `order` its length");
    require(score.shape(0) == D && score.shape(1) == log_leaf.shape(2) && counted.shape(0) == D,
            "`score` and `counted` must have one row per variable");
    const auto row = [&](size_t i) { return nodes.data() + i * n; };
    op.assign(row(0), row(1));
    kind.assign(row(1), row(2));
    flip.assign(row(6), row(7));
    view = {(int32_t)n, (int32_t)D, op.data(), kind.data(), row(2), row(3), row(4), row(5), flip.data(), counted.data(),
            top.data()};
  }
};

template <class Array>
bool fits(const Array& rows, size_t batch) {
  return rows.shape(0) == 1 || rows.shape(0) == batch;
}

auto run_cluster_pass(array_in<int32_t, 2> nodes, vector_of<int64_t> level_start, vector_of<int32_t> order,
                      vector_of<int32_t> roots, vector_of<int8_t> counted, vector_of<int8_t> top,
                      array_in<int32_t, 2> score, cube_in log_leaf, array_in<double, 4> edges, matrix_in edge_top,
                      matrix_in tables, matrix_in table_top, vector_of<int64_t> offset, double keep, int arithmetic,
                      matrix_in powers, vector_of<int32_t> top_set, cube_in uniform, int threads, const std::string& level) {
  const Kernels& kernels = choose(level);
  const Program program(nodes, order, counted, top, score, log_leaf);
  const size_t batch = log_leaf.shape(0), D = log_leaf.shape(1), K = log_leaf.shape(2);
  require(fits(edges, batch) && fits(tables, batch) && edge_top.shape(0) == edges.shape(0) &&
              table_top.shape(0) == tables.shape(0),
          "`edges` and `tables` must have one row, or one per row of `log_leaf`");
  const size_t samples = uniform.shape(1), kept = samples ? 0 : batch;
  require(!samples || (uniform.shape(0) == batch && uniform.shape(2) == nodes.shape(1) && arithmetic == kTiled),
          "`uniform` must have a number for every model, sample and cluster, of tiled rows");
  require(arithmetic != kTiled || (powers.shape(0) == batch && powers.shape(1) == table_top.shape(1) && top_set.shape(0) == D),
          "`powers` must have a tilt for every model and set, `top_set` one for every variable");
  array_out log_z = new_array({batch}), messages = new_array({kept, D, K});
  array_out log_edges = new_array({kept, edges.shape(1), K, K}), log_counts = new_array({kept, tables.shape(1)});
  vector_out<int64_t> drawn = new_array_of<int64_t>(samples * batch * D);
  array_out error = new_array({batch}), vanished = new_array({batch}), noise = new_array({batch});
  const ClusterInput in = {
      program.view, level_start.data(), order.data(), (int)level_start.shape(0) - 1, (int)K, batch, edges.shape(1),
      tables.shape(1), table_top.shape(1), roots.shape(0), log_leaf.data(), edges.data(), edge_top.data(), tables.data(),
      table_top.data(), edges.shape(0) == 1, tables.shape(0) == 1, offset.data(), score.data(), roots.data(), keep, arithmetic, powers.data(),
      top_set.data(), samples, uniform.data()};
  const ClusterOutput out = {drawn.data(), log_z.data(), messages.data(), log_edges.data(), log_counts.data(), error.data(),
                             vanished.data(), noise.data()};
  unlocked([&] { cluster_pass(kernels, in, out, threads); });
  return std::make_tuple(log_z, messages, log_edges, log_counts, error, vanished, noise, drawn);
}

auto run_cluster_maxima(array_in<int32_t, 2> nodes, vector_of<int64_t> level_start, vector_of<int32_t> order,
                        vector_of<int32_t> roots, vector_of<int8_t> counted, vector_of<int8_t> top,
                        array_in<int32_t, 2> score, cube_in log_leaf, array_in<double, 4> log_edges, matrix_in tables,
                        vector_of<int64_t> offset, vector_in slack, bool give_up, bool configurations, bool counts,
                        int threads, const std::string& level) {
  const Kernels& kernels = choose(level);
  const Program program(nodes, order, counted, top, score, log_leaf);
  const size_t batch = log_leaf.shape(0), D = log_leaf.shape(1), K = log_leaf.shape(2), entries = tables.shape(1);
  require(fits(log_edges, batch) && fits(tables, batch) && slack.shape(0) == batch,
          "`log_edges`, `tables` and `slack` must have one row, or one per row of `log_leaf`");
  array_out value = new_array({batch}), messages = new_array({configurations ? 0 : batch, D, K});
  array_out best_counts = new_array({counts ? batch : 0, entries});
  vector_out<int64_t> states = new_array_of<int64_t>(configurations ? batch * D : 0);
  vector_out<bool> known = new_array_of<bool>(batch);
  const MaximaInput in = {
      {program.view, order.data(), roots.data(), roots.shape(0), (int)K, log_leaf.data(), log_edges.data(), tables.data(),
       offset.data(), score.data(), offset.shape(0) - 1},
      (int)level_start.shape(0) - 1, batch, log_edges.shape(1), entries, log_edges.shape(0) == 1, tables.shape(0) == 1,
      slack.data(), give_up};
  const MaximaOutput out = {value.data(), known.data(), configurations ? states.data() : nullptr,
                            configurations ? nullptr : messages.data(), counts ? best_counts.data() : nullptr};
  unlocked([&] { find_maxima(kernels, in, out, threads); });
  return std::make_tuple(value, known, states, messages, best_counts);
}

}  // namespace

void bind_cluster(nb::module_& m) {
  // Sum-product over a program of clusters: (log_z, messages, log_edges, log_counts, error, vanished, noise,
  // samples), the latter in place of the others but log_z where `uniform` has numbers for them.
  m.def("cluster_pass", &run_cluster_pass);
  // Best weights over a program of clusters: (value, known, states, messages, by count), arrays not asked for empty.
  m.def("cluster_maxima", &run_cluster_maxima);
}

}  // namespace tallytree
