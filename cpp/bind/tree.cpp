// Python bindings of the tree passes, and of directional derivatives.
#include <cstdint>
#include <memory>
#include <nanobind/stl/unique_ptr.h>

#include "base/expectation_sums.hpp"
#include "bind/bindings.hpp"
#include "flat/batches.hpp"
#include "tree/pass.hpp"

namespace tallytree {

namespace {

std::unique_ptr<TreePlan> make_plan(vector_of<int32_t> left, vector_of<int32_t> right, vector_of<int64_t> table_offset,
                                    size_t leaves, size_t table_entries) {
  const size_t inner = left.shape(0);
  require(right.shape(0) == inner && table_offset.shape(0) == inner,
          "`left`, `right` and `table_offset` must have the same length");
  require(leaves + inner <= (size_t)INT32_MAX, "a tree must have fewer than 2^31 nodes");
  return std::make_unique<TreePlan>(
      CountTree((int32_t)leaves, {left.data(), left.data() + inner}, {right.data(), right.data() + inner},
             {table_offset.data(), table_offset.data() + inner}, (int64_t)table_entries));
}

array_out draw(TreePlan& plan, matrix_in nu, matrix_in tables, key_in key, std::optional<array_to_fill<uint8_t, 3>> out,
               int threads, const std::string& level) {
  const Kernels& kernels = choose(level);
  check_models(plan, nu, tables);
  require(!out || (out->shape(1) == nu.shape(0) && out->shape(2) == nu.shape(1)),
          "`out` must have the shape (samples, models, variables)");
  array_out lost = new_array({nu.shape(0)});
  unlocked([&] {
    small_draw_pass(kernels, plan, inputs_of(nu, tables), key.data(), out ? out->shape(0) : 0,
                   out ? out->data() : nullptr, lost.data(), threads);
  });
  return lost;
}

auto root_counts(TreePlan& plan, matrix_in nu, matrix_in tables, int32_t node, int threads, const std::string& level) {
  const Kernels& kernels = choose(level);
  check_models(plan, nu, tables);
  const TreeView view = plan.tree().view();
  require(node >= view.leaves && node < view.leaves + view.inner && view.parent[node] < 0,
          "`node` must be an inner node without a parent");
  array_out out = new_array({nu.shape(0), (size_t)view.size[node] + 1});
  vector_out<bool> certain = new_array_of<bool>(nu.shape(0));
  unlocked([&] { small_count_pass(kernels, plan, inputs_of(nu, tables), node, out.data(), certain.data(), threads); });
  return std::make_tuple(out, certain);
}

auto beliefs(TreePlan& plan, matrix_in nu, matrix_in tables, int threads, const std::string& level) {
  const Kernels& kernels = choose(level);
  check_models(plan, nu, tables);
  array_out out = new_array({nu.shape(0), tables.shape(1)}), bound = new_array({nu.shape(0)});
  unlocked([&] { small_belief_pass(kernels, plan, inputs_of(nu, tables), out.data(), bound.data(), threads); });
  return std::make_tuple(out, bound);
}

auto run_plan(TreePlan& plan, matrix_in nu, matrix_in tables, std::optional<vector_in> tilt, const std::string& method,
              bool beliefs, bool messages, bool cavities, int threads, const std::string& level,
              std::optional<array_to_fill<double, 1>> probability_bound, std::optional<vector_in> centre) {
  const Kernels& kernels = choose(level);
  const KernelName name = method_named(method);
  const size_t batch = nu.shape(0);
  check_models(plan, nu, tables);
  require(!tilt || tilt->shape(0) == batch, "`tilt` must have one entry per row of `nu`");
  require(!centre || centre->shape(0) == batch, "`centre` must have one entry per row of `nu`");
  require(!probability_bound || probability_bound->shape(0) == batch,
          "`probability_bound` must have one entry per row of `nu`");
  array_out log_mean = new_array({batch}), bound = new_array({batch});
  std::optional<array_out> out_messages, out_beliefs;
  if (messages) out_messages = new_array({batch, nu.shape(1)});
  if (beliefs) out_beliefs = new_array({batch, tables.shape(1)});
  TreeInputs in = inputs_of(nu, tables);
  in.tilt = tilt ? tilt->data() : nullptr;
  in.centre = centre ? centre->data() : nullptr;
  in.cavities = cavities;
  const TreeOutputs out = {log_mean.data(), messages ? out_messages->data() : nullptr,
                           beliefs ? out_beliefs->data() : nullptr, bound.data(),
                           probability_bound ? probability_bound->data() : nullptr};
  unlocked([&] { tree_pass(kernels, plan, in, out, name, threads); });
  return std::make_tuple(log_mean, out_messages, out_beliefs, bound);
}

}  // namespace

TreeInputs inputs_of(const matrix_in& nu, const matrix_in& tables) {
  return {nu.shape(0), nu.data(), tables.data(), nullptr, nullptr, tables.shape(1), tables.shape(0) == 1, false};
}

void check_models(const TreePlan& plan, const matrix_in& nu, const matrix_in& tables) {
  require(nu.shape(1) == (size_t)plan.tree().leaves(), "`nu` must have one column per variable");
  require((int64_t)tables.shape(1) >= plan.tree().table_entries(), "`tables` is shorter than planned");
  require(tables.shape(0) == 1 || tables.shape(0) == nu.shape(0), "`tables` must have one row, or one per row of `nu`");
}

// A binary tree, analysed once, with memory kept between passes.
void bind_tree(nb::module_& m) {
  nb::class_<TreePlan>(m, "TreePlan")
      .def(nb::new_(&make_plan))
      // Whether the method 'waves' can differ from 'fft' on this tree.
      .def("has_waves", [](TreePlan& plan) { return !plan.carved(true, true).empty(); })
      // Sum-product: (log_mean, messages, log_beliefs, bound). Without `cavities` the messages to variables with infinite
      // logits are as infinite as these. `probability_bound` (B,) is filled with bounds on the errors of P(y = 1). A tilt s
      // takes s (z - centre) from the tables of the roots, which rounds less than s z where the centre (B,) lies near the
      // tilted counts.
      .def("tree_pass", &run_plan, "nu"_a, "tables"_a, "tilt"_a = nb::none(), "method"_a = "direct", "beliefs"_a = false,
           "messages"_a = true, "cavities"_a = true, "threads"_a = 0, "level"_a = "", "probability_bound"_a = nb::none(),
           "centre"_a = nb::none())
      // Fills `out` (samples, B, n) with samples of small models. Returns the share of the weight that underflowed, inf for
      // models without samples here.
      .def("draw", &draw, "nu"_a, "tables"_a, "key"_a, "out"_a.none(), "threads"_a = 0, "level"_a = "")
      // P(count) of every table of small models, packed like the tables, and a bound that is inf for models without an answer.
      .def("beliefs", &beliefs, "nu"_a, "tables"_a, "threads"_a = 0, "level"_a = "")
      // log P(count) of a root of small models, (B, counts), and which rows are right.
      .def("root_counts", &root_counts, "nu"_a, "tables"_a, "node"_a, "threads"_a = 0, "level"_a = "");
}

// Python bindings of directional derivatives.

namespace {

// Directions v (R, B, n) and h (R, B, T) for models (B, n) with T counts each, and room for the answers.
struct DirectionArrays {
  size_t count, batch, n, entries;
  const double *v, *h;
  bool values, counts;
  array_out change, probs, moved, bound;

  DirectionArrays(const matrix_in& nu, const cube_in& along, const std::optional<cube_in>& table, size_t of_counts,
                  bool with_counts, const char* wrong_table)
      : count(along.shape(0)), batch(nu.shape(0)), n(nu.shape(1)), entries(of_counts), v(along.data()),
        h(table ? table->data() : nullptr), values(with_counts && count == 0), counts(with_counts) {
    require(along.shape(1) == batch && along.shape(2) == n, "v must have shape (R, B, n)");
    require(!table || (table->shape(0) == count && table->shape(1) == batch && table->shape(2) == entries), wrong_table);
    change = new_array({count, batch, n});
    probs = new_array({values ? batch : 0, entries});
    moved = new_array({counts ? count : 0, batch, entries});
    bound = new_array({batch});
  }
  double* probs_wanted() { return values ? probs.data() : nullptr; }
  double* moved_wanted() { return counts ? moved.data() : nullptr; }
  auto answers() const { return std::make_tuple(change, probs, moved, bound); }
};

}  // namespace

void bind_tangent(nb::module_& m) {
  // Derivatives along R directions, v (R, B, n) in the log-odds and h (R, B, n + 1) in the log-tables: those of P(y_i = 1),
  // (R, B, n); with `counts` also those of P(z = k), (R, B, n + 1), or without directions P(z = k) itself, (B, n + 1), the
  // second answer. The bound (B,) is relative to the largest entry of a derivative, and infinite where there is no answer.
  m.def("flat_tangent", [](matrix_in nu, matrix_in log_f, cube_in v, std::optional<cube_in> h, bool counts, int threads,
                           const std::string& level) {
    check_tables(nu, log_f);
    DirectionArrays d(nu, v, h, nu.shape(1) + 1, counts, "h must have shape (R, B, n + 1)");
    const TangentBatch in = {&choose(level), threads_for(threads, nu), (ptrdiff_t)d.batch, (ptrdiff_t)d.n,
                             (ptrdiff_t)d.count, nu.data(), log_f.data(), stride_of(log_f), d.v, d.h, d.change.data(),
                             d.probs_wanted(), d.moved_wanted(), d.bound.data()};
    unlocked([&] { tangent_batch(in); });
    return d.answers();
  }, "nu"_a, "log_f"_a, "v"_a, "h"_a = nb::none(), "counts"_a = false, "threads"_a = 0, "level"_a = "");

  // The same on a forest: h and the count distributions are packed like the tables. Direct merges, which always serve unless
  // numbers leave their range, are not tried on large forests unless asked for.
  m.def("tree_tangent", [](TreePlan& plan, matrix_in nu, matrix_in tables, cube_in v, std::optional<cube_in> h,
                           bool counts, bool direct, double size, int threads, const std::string& level) {
    check_models(plan, nu, tables);
    DirectionArrays d(nu, v, h, tables.shape(1), counts, "h must have shape (R, B, T)");
    const TreeTangents in = {inputs_of(nu, tables), d.count, d.v, d.h, d.change.data(), d.probs_wanted(),
                             d.moved_wanted(), d.bound.data(), direct, size};
    unlocked([&] {
      if (d.batch) tree_tangent_pass(choose(level), plan, in, threads);
    });
    return d.answers();
  }, "plan"_a, "nu"_a, "tables"_a, "v"_a, "h"_a = nb::none(), "counts"_a = false, "direct"_a = false,
        "size"_a = 0.0, "threads"_a = 0, "level"_a = "");

  // What an entropy is made of, (B, 8): sums over the finite nu of nu P(y = 1) and of |nu|; over the sets the mean m of the
  // log-table and its size; over the possible counts P(count) (m - log-table), its size, |m - log-table| where P(count) is
  // not 0, and the largest of these.
  m.def("expectation_sums", [](matrix_in nu, matrix_in on, matrix_in probs, matrix_in tables,
                               vector_of<int64_t> offset) {
    const size_t batch = nu.shape(0), entries = probs.shape(1), sets = offset.shape(0);
    require(on.shape(0) == batch && on.shape(1) == nu.shape(1), "on must have the shape of nu");
    require(probs.shape(0) == batch, "probs must have one row per row of nu");
    require(tables.shape(1) == entries && (tables.shape(0) == 1 || tables.shape(0) == batch),
            "tables must have the length of probs, and one row, or one per row of nu");
    require(sets > 0 && offset.data()[0] == 0 && (size_t)offset.data()[sets - 1] == entries,
            "offset must lead from 0 to the length of probs");
    for (size_t s = 1; s < sets; s++) require(offset.data()[s - 1] <= offset.data()[s], "offset must not fall");
    array_out out = new_array({batch, (size_t)kExpectationSums});
    unlocked([&] {
      for (size_t b = 0; b < batch; b++)
        expectation_sums(nu.data() + b * nu.shape(1), on.data() + b * nu.shape(1), (ptrdiff_t)nu.shape(1),
                         probs.data() + b * entries, row_or_only(tables, b), offset.data(), (ptrdiff_t)sets - 1,
                         out.data() + b * kExpectationSums);
    });
    return out;
  });
}

}  // namespace tallytree
