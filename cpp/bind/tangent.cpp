// Python bindings of directional derivatives.
#include "bind/bindings.hpp"
#include "base/expectation_sums.hpp"
#include "flat/tangent.hpp"
#include "tree/pass.hpp"

namespace tallytree {

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
