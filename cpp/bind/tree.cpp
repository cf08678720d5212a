// Python bindings of the tree passes.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "bind/bindings.hpp"
#include "tree/lane_batches.hpp"
#include "tree/methods.hpp"
#include "tree/pass.hpp"

namespace tallytree {

namespace {

using TreeAnswer = std::tuple<array_out, std::optional<array_out>, std::optional<array_out>, array_out>;

std::unique_ptr<TreePlan> make_plan(array_in<int32_t, 1> left, array_in<int32_t, 1> right,
                                    array_in<int64_t, 1> table_offset, size_t leaves, size_t table_entries) {
  const size_t inner = left.shape(0);
  if (right.shape(0) != inner || table_offset.shape(0) != inner)
    throw nb::value_error("`left`, `right` and `table_offset` must have the same length");
  if (leaves + inner > (size_t)INT32_MAX) throw nb::value_error("a tree must have fewer than 2^31 nodes");
  return std::make_unique<TreePlan>(
      CountTree((int32_t)leaves, {left.data(), left.data() + inner}, {right.data(), right.data() + inner},
             {table_offset.data(), table_offset.data() + inner}, (int64_t)table_entries));
}

void check_models(const TreePlan& plan, const array_in<double, 2>& nu, const array_in<double, 2>& tables) {
  if (nu.shape(1) != (size_t)plan.tree().leaves()) throw nb::value_error("`nu` must have one column per variable");
  if ((int64_t)tables.shape(1) < plan.tree().table_entries())
    throw nb::value_error("`tables` is shorter than planned");
  if (tables.shape(0) != 1 && tables.shape(0) != nu.shape(0))
    throw nb::value_error("`tables` must have one row, or one per row of `nu`");
}

TreeInputs inputs_of(const array_in<double, 2>& nu, const array_in<double, 2>& tables) {
  return {nu.shape(0), nu.data(), tables.data(), nullptr, nullptr, tables.shape(1), tables.shape(0) == 1, false};
}

using key_in = nb::ndarray<const uint32_t, nb::shape<4>, nb::c_contig, nb::device::cpu>;
using samples_out = nb::ndarray<uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

array_out draw(TreePlan& plan, array_in<double, 2> nu, array_in<double, 2> tables, key_in key,
               std::optional<samples_out> out, int threads, const std::string& level) {
  const Kernels& kernels = choose(level);
  check_models(plan, nu, tables);
  if (out && (out->shape(1) != nu.shape(0) || out->shape(2) != nu.shape(1)))
    throw nb::value_error("`out` must have the shape (samples, models, variables)");
  array_out lost = new_array({nu.shape(0)});
  {
    GilReleased release;
    lane_draw_pass(kernels, plan, inputs_of(nu, tables), key.data(), out ? out->shape(0) : 0,
                   out ? out->data() : nullptr, lost.data(), threads);
  }
  return lost;
}

std::tuple<array_out, nb::ndarray<nb::numpy, bool>> root_counts(TreePlan& plan, array_in<double, 2> nu,
                                                                array_in<double, 2> tables, int32_t node, int threads,
                                                                const std::string& level) {
  const Kernels& kernels = choose(level);
  check_models(plan, nu, tables);
  const TreeView view = plan.tree().view();
  if (node < view.leaves || node >= view.leaves + view.inner || view.parent[node] >= 0)
    throw nb::value_error("`node` must be an inner node without a parent");
  array_out out = new_array({nu.shape(0), (size_t)view.size[node] + 1});
  nb::ndarray<nb::numpy, bool> certain = new_array_of<bool>(nu.shape(0));
  {
    GilReleased release;
    lane_count_pass(kernels, plan, inputs_of(nu, tables), node, out.data(), certain.data(), threads);
  }
  return {out, certain};
}

std::tuple<array_out, array_out> beliefs(TreePlan& plan, array_in<double, 2> nu, array_in<double, 2> tables,
                                         int threads, const std::string& level) {
  const Kernels& kernels = choose(level);
  check_models(plan, nu, tables);
  array_out out = new_array({nu.shape(0), tables.shape(1)}), bound = new_array({nu.shape(0)});
  {
    GilReleased release;
    lane_belief_pass(kernels, plan, inputs_of(nu, tables), out.data(), bound.data(), threads);
  }
  return {out, bound};
}

TreeAnswer run_plan(TreePlan& plan, array_in<double, 2> nu, array_in<double, 2> tables,
                    std::optional<array_in<double, 1>> tilt, const std::string& method, bool beliefs, bool messages,
                    bool cavities, int threads, const std::string& level,
                    std::optional<nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>> probability_bound,
                    std::optional<array_in<double, 1>> centre) {
  const Kernels& kernels = choose(level);
  const KernelName name = method_named(method);
  const size_t batch = nu.shape(0), leaves = nu.shape(1), entries = tables.shape(1);
  check_models(plan, nu, tables);
  if (tilt && tilt->shape(0) != batch) throw nb::value_error("`tilt` must have one entry per row of `nu`");
  if (centre && centre->shape(0) != batch) throw nb::value_error("`centre` must have one entry per row of `nu`");
  if (probability_bound && probability_bound->shape(0) != batch)
    throw nb::value_error("`probability_bound` must have one entry per row of `nu`");
  array_out log_mean = new_array({batch}), bound = new_array({batch});
  std::optional<array_out> out_messages, out_beliefs;
  if (messages) out_messages = new_array({batch, leaves});
  if (beliefs) out_beliefs = new_array({batch, entries});
  {
    GilReleased release;
    tallytree::tree_pass(
        kernels, plan,
        {batch, nu.data(), tables.data(), tilt ? tilt->data() : nullptr,
         centre ? centre->data() : nullptr, entries, tables.shape(0) == 1, cavities},
        {log_mean.data(), messages ? out_messages->data() : nullptr, beliefs ? out_beliefs->data() : nullptr,
         bound.data(), probability_bound ? probability_bound->data() : nullptr},
        name, threads);
  }
  return {log_mean, out_messages, out_beliefs, bound};
}

}  // namespace

void bind_tree(nb::module_& m) {
  nb::class_<TreePlan>(m, "TreePlan", "A binary tree, analysed once, with memory kept between passes.")
      .def(nb::new_(&make_plan), nb::arg("left"), nb::arg("right"), nb::arg("table_offset"), nb::arg("leaves"),
           nb::arg("table_entries"))
      .def("has_waves", [](TreePlan& plan) { return !plan.carved(true, true).empty(); },
           "Whether the method 'waves' can differ from 'fft' on this tree.")
      .def("tree_pass", &run_plan, nb::arg("nu"), nb::arg("tables"), nb::arg("tilt") = nb::none(),
           nb::arg("method") = "direct", nb::arg("beliefs") = false, nb::arg("messages") = true,
           nb::arg("cavities") = true, nb::arg("threads") = 0, nb::arg("level") = "",
           nb::arg("probability_bound") = nb::none(), nb::arg("centre") = nb::none(),
           "Sum-product: (log_mean, messages, log_beliefs, bound). Without `cavities` the messages to variables with "
           "infinite logits are as infinite as these. `probability_bound` (B,) is filled with bounds on the errors of "
           "P(y = 1). A tilt s takes s (z - centre) from the tables of the roots, which rounds less than s z where the "
           "centre (B,) lies near the tilted counts.")
      .def("draw", &draw, nb::arg("nu"), nb::arg("tables"), nb::arg("key"), nb::arg("out").none(),
           nb::arg("threads") = 0, nb::arg("level") = "",
           "Fill `out` (samples, B, n) with samples of small models. Returns the share of the weight that underflowed, "
           "inf for models without samples here.")
      .def("beliefs", &beliefs, nb::arg("nu"), nb::arg("tables"), nb::arg("threads") = 0, nb::arg("level") = "",
           "P(count) of every table of small models, packed like the tables, and a bound that is inf for models "
           "without an answer.")
      .def("root_counts", &root_counts, nb::arg("nu"), nb::arg("tables"), nb::arg("node"), nb::arg("threads") = 0,
           nb::arg("level") = "",
           "log P(count) of a root of small models, (B, counts), and which rows are right.");
}

}  // namespace tallytree
