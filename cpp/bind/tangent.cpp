// Python bindings of directional derivatives.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <complex>
#include <optional>
#include <string>

#include "bind/bindings.hpp"
#include "base/expectation_sums.hpp"
#include "cluster/edge_tangent_pass.hpp"
#include "flat/tangent.hpp"
#include "tree/tangent_pass.hpp"

using namespace nanobind::literals;

namespace tallytree {

namespace {

template <class T>
using vector_of = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using complex = std::complex<double>;
using complex_out = nb::ndarray<nb::numpy, complex>;

}  // namespace

void bind_tangent(nb::module_& m) {
  m.def("flat_tangent", [](matrix_in nu, matrix_in log_f, cube_in v, std::optional<cube_in> h, bool counts, int threads,
                           const std::string& level) {
    const size_t batch = nu.shape(0), n = nu.shape(1), directions = v.shape(0);
    check_tables(nu, log_f);
    require(v.shape(1) == batch && v.shape(2) == n, "v must have shape (R, B, n)");
    require(!h || (h->shape(0) == directions && h->shape(1) == batch && h->shape(2) == n + 1),
            "h must have shape (R, B, n + 1)");
    array_out change = new_array({directions, batch, n}), bound = new_array({batch});
    const bool values = counts && directions == 0;
    array_out probs = new_array({values ? batch : 0, n + 1});
    array_out moved = new_array({counts ? directions : 0, batch, n + 1});
    const TangentBatch in = {&choose(level), threads_for(threads, nu), (ptrdiff_t)batch, (ptrdiff_t)n, (ptrdiff_t)directions, nu.data(), log_f.data(),
                             log_f.shape(0) == 1 ? 0 : (ptrdiff_t)(n + 1), v.data(), h ? h->data() : nullptr,
                             change.data(), values ? probs.data() : nullptr, counts ? moved.data() : nullptr,
                             bound.data()};
    {
      GilReleased release;
      tangent_rows(in);
    }
    return std::make_tuple(change, probs, moved, bound);
  }, "nu"_a, "log_f"_a, "v"_a, "h"_a = nb::none(), "counts"_a = false, "threads"_a = 0, "level"_a = "",
        "Derivatives along R directions, v (R, B, n) in the log-odds and h (R, B, n + 1) in the log-tables: those of "
        "P(y_i = 1), (R, B, n); with `counts` also those of P(z = k), (R, B, n + 1), or without directions P(z = k) "
        "itself, (B, n + 1), the second answer. The bound (B,) is relative to the largest entry of a derivative, and "
        "infinite where there is no answer.");

  m.def("flat_counts", [](const FlatRows& rows, matrix_in nu, matrix_in log_f) -> nb::object {
    check_tables(nu, log_f);
    require((ptrdiff_t)nu.shape(0) == rows.batch && (ptrdiff_t)nu.shape(1) == rows.n,
            "nu must have the shape that was solved");
    array_out counts = new_array({nu.shape(0), nu.shape(1) + 1}), bound = new_array({nu.shape(0)});
    bool any;
    {
      GilReleased release;
      any = row_counts(rows, nu.data(), log_f.data(), log_f.shape(0) == 1 ? 0 : rows.n + 1, counts.data(), bound.data());
    }
    if (!any) return nb::none();
    return nb::make_tuple(counts, bound);
  }, "solution"_a, "nu"_a, "log_f"_a,
        "P(z = k) of solved models, (B, n + 1), and the bound of their errors (B,), infinite where there is no answer; "
        "None if that is so for all of them.");

  m.def("tree_tangent", [](TreePlan& plan, matrix_in nu, matrix_in tables, cube_in v, std::optional<cube_in> h,
                           bool counts, bool direct, int threads, const std::string& level) {
    const size_t batch = nu.shape(0), leaves = nu.shape(1), directions = v.shape(0), entries = tables.shape(1);
    require(leaves == (size_t)plan.tree().leaves(), "nu must have one column per variable");
    require((int64_t)entries >= plan.tree().table_entries(), "tables is shorter than planned");
    require(tables.shape(0) == 1 || tables.shape(0) == batch, "tables must have one row, or one per row of nu");
    require(v.shape(1) == batch && v.shape(2) == leaves, "v must have shape (R, B, n)");
    require(!h || (h->shape(0) == directions && h->shape(1) == batch && h->shape(2) == entries),
            "h must have shape (R, B, T)");
    array_out change = new_array({directions, batch, leaves}), bound = new_array({batch});
    const bool values = counts && directions == 0;
    array_out beliefs = new_array({values ? batch : 0, entries});
    array_out moved = new_array({counts ? directions : 0, batch, entries});
    const TreeTangentBatch in = {batch, directions, entries, nu.data(), tables.data(), tables.shape(0) == 1, v.data(),
                                 h ? h->data() : nullptr, change.data(), values ? beliefs.data() : nullptr,
                                 counts ? moved.data() : nullptr, bound.data(), direct};
    {
      GilReleased release;
      if (batch) tree_tangent_pass(choose(level), plan, in, threads);
    }
    return std::make_tuple(change, beliefs, moved, bound);
  }, "plan"_a, "nu"_a, "tables"_a, "v"_a, "h"_a = nb::none(), "counts"_a = false, "direct"_a = false,
        "threads"_a = 0, "level"_a = "",
        "The same on a forest: h and the count distributions are packed like the tables. Direct merges, which always "
        "serve unless numbers leave their range, are not tried on large forests unless asked for.");

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
    {
      GilReleased release;
      for (size_t b = 0; b < batch; b++)
        expectation_sums(nu.data() + b * nu.shape(1), on.data() + b * nu.shape(1), (ptrdiff_t)nu.shape(1),
                         probs.data() + b * entries, tables.data() + (tables.shape(0) == 1 ? 0 : b * entries),
                         offset.data(), (ptrdiff_t)sets - 1, out.data() + b * kExpectationSums);
    }
    return out;
  }, "nu"_a, "on"_a, "probs"_a, "tables"_a, "offset"_a,
        "What an entropy is made of, (B, 8): sums over the finite nu of nu P(y = 1) and of |nu|; over the sets the mean "
        "m of the log-table and its size; over the possible counts P(count) (m - log-table), its size, |m - log-table| "
        "where P(count) is not 0, and the largest of these.");

  m.def("forest_tangent", [](vector_of<int32_t> order, vector_of<int32_t> parent, vector_of<int32_t> edge,
                             vector_of<int8_t> flip, vector_of<int8_t> counted, matrix_in leaf, cube_in tables,
                             matrix_in slope, size_t period, vector_of<complex> f, vector_of<complex> h,
                             bool everything, const std::string& level) {
    const size_t n = leaf.shape(0), frequencies = f.shape(0);
    require(order.shape(0) == n && parent.shape(0) == n && edge.shape(0) == n && flip.shape(0) == n &&
                counted.shape(0) == n && slope.shape(0) == n,
            "all arrays of vertices must have the same length");
    require(leaf.shape(1) == 2 && slope.shape(1) == 2 && tables.shape(1) == 2 && tables.shape(2) == 2,
            "variables must have two states");
    require(period > 0 && frequencies > 0 && h.shape(0) == frequencies, "f and h must have the same length");
    for (size_t v = 0; v < n; v++)
      require(order.data()[v] >= 0 && (size_t)order.data()[v] < n && parent.data()[v] < (int64_t)n &&
                  (parent.data()[v] < 0 || (edge.data()[v] >= 0 && (size_t)edge.data()[v] < tables.shape(0))),
              "order, parent and edge must describe a rooted forest");
    array_out marginals = new_array({n}), change = new_array({n}), worst = new_array({3});
    complex* spectra = new complex[2 * frequencies];
    nb::capsule owner(spectra, [](void* p) noexcept { delete[] (complex*)p; });
    complex_out law(spectra, {2, frequencies}, owner);
    const EdgeTangentInputs in = {
        {(int32_t)n, 2, order.data(), parent.data(), edge.data(), flip.data()}, (int32_t)tables.shape(0), counted.data(),
        leaf.data(), tables.data(), slope.data(), (int64_t)period, (ptrdiff_t)frequencies, f.data(), h.data(), everything};
    {
      GilReleased release;
      edge_tangent(choose(level), in, marginals.data(), change.data(), worst.data(), spectra,
                   spectra + frequencies);
    }
    return std::make_tuple(marginals, change, worst, law);
  }, "order"_a, "parent"_a, "edge"_a, "flip"_a, "counted"_a, "leaf"_a, "tables"_a, "slope"_a, "period"_a, "f"_a, "h"_a,
        "everything"_a = false, "level"_a = "",
        "P(y = 1) and its derivative, (D,) each, in a forest of pairs with one count; how much relative errors of all "
        "terms are amplified in them and the share of the weight that underflow may have taken, (3,); and the "
        "characteristic function of the count with its derivative, (2, M).");
}

}  // namespace tallytree
