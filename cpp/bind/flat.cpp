// Python bindings of the flat solver.
#include <memory>

#include "bind/bindings.hpp"
#include "flat/batches.hpp"
#include "flat/tangent.hpp"

namespace tallytree {

namespace {

using matrix_shared = nb::ndarray<nb::numpy, const double, nb::ndim<2>>;

// Solved rows, and the logits (B, n) and tables that were solved.
struct SolvedRows {
  matrix_in nu, log_f;
  FlatRows rows;

  SolvedRows(const matrix_in& logits, const matrix_in& tables, int threads, const std::string& level)
      : nu(logits), log_f(tables),
        rows(choose(level), threads_for(threads, nu), (ptrdiff_t)nu.shape(0), (ptrdiff_t)nu.shape(1)) {}
};

// A view of memory that the solution goes on using.
matrix_shared shared_matrix(std::shared_ptr<const double> data, size_t rows, size_t columns) {
  const double* first = data.get();
  auto* held = new std::shared_ptr<const double>(std::move(data));
  nb::capsule owner(held, [](void* p) noexcept { delete (std::shared_ptr<const double>*)p; });
  return matrix_shared(first, {rows, columns}, owner);
}

}  // namespace

void bind_flat(nb::module_& m) {
  // Solved flat models: one potential over all variables, row by row. `totals` (3, B): log E f(z), -inf for an impossible
  // model; the sum of log(1 + exp(nu)) over the finite nu; a certified bound on the error of the first (beyond 4 ulp of both)
  // and of every message, inf where there is none.
  nb::class_<SolvedRows>(m, "FlatSolution")
      .def("totals", [](const SolvedRows& solved) {
        const size_t batch = solved.rows.row.size();
        array_out out = new_array({3, batch});
        double *log_mean = out.data(), *softplus = log_mean + batch, *bound = softplus + batch;
        for (const FlatSolution& s : solved.rows.row) {
          *log_mean++ = s.log_mean;
          *softplus++ = s.softplus;
          *bound++ = s.bound;
        }
        return out;
      })
      // P(y_i = 1) under the posterior, (B, n), read-only.
      .def("marginals", [](const SolvedRows& solved) {
        const matrix_in& nu = solved.nu;
        if (auto known = marginals_at_hand(solved.rows))
          return shared_matrix(std::move(known), nu.shape(0), nu.shape(1));
        array_out out = new_array({nu.shape(0), nu.shape(1)});
        unlocked([&] { row_answers(solved.rows, nu.data(), Wanted::marginals, out.data()); });
        return matrix_shared(out);
      })
      // Leaf messages r_i = log(d_i(1) / d_i(0)), (B, n): posterior logit = nu_i + r_i.
      .def("messages", [](const SolvedRows& solved) {
        array_out out = new_array({solved.nu.shape(0), solved.nu.shape(1)});
        unlocked([&] { row_answers(solved.rows, solved.nu.data(), Wanted::messages, out.data()); });
        return out;
      })
      // P(z = k), (B, n + 1), and the bound of their errors (B,), infinite where there is no answer; None if that is so for
      // all of them. Of models with tables.
      .def("counts", [](const SolvedRows& solved) -> nb::object {
        const matrix_in &nu = solved.nu, &log_f = solved.log_f;
        array_out counts = new_array({nu.shape(0), nu.shape(1) + 1}), bound = new_array({nu.shape(0)});
        const bool any = unlocked([&] {
          return row_counts(solved.rows, nu.data(), log_f.data(), stride_of(log_f), counts.data(), bound.data());
        });
        if (!any) return nb::none();
        return nb::make_tuple(counts, bound);
      });

  // Solves z = sum of Bernoulli(sigmoid(nu_i)) reweighted by f(z) = exp(log_f), for nu (B, n). Without `cavities` the messages
  // to variables with infinite nu are as infinite as these.
  m.def("flat_solve", [](matrix_in nu, matrix_in log_f, bool cavities, int threads, const std::string& level) {
    check_tables(nu, log_f);
    SolvedRows solved(nu, log_f, threads, level);
    solved.rows.cavities = cavities;
    unlocked([&] { solve_rows(nu.data(), log_f.data(), stride_of(log_f), &solved.rows); });
    return solved;
  }, "nu"_a, "log_f"_a, "cavities"_a = true, "threads"_a = 0, "level"_a = "");

  // The same for f(z) = sum_j coefficients[j] rates[j]^z, rates of at least -1: a closed form. The bound is inf where its
  // terms may cancel, and there are no other answers then.
  m.def("flat_solve_powers", [](matrix_in nu, vector_in coefficients, vector_in rates, int threads,
                                const std::string& level) {
    check_powers(coefficients, rates);
    SolvedRows solved(nu, {}, threads, level);
    unlocked([&] {
      solve_power_rows(nu.data(), coefficients.data(), rates.data(), (int)rates.size(), &solved.rows);
    });
    return solved;
  }, "nu"_a, "coefficients"_a, "rates"_a, "threads"_a = 0, "level"_a = "");

  // The logits (B, 2) between which variables are not decided: those below are off, those above on.
  m.def("flat_open_logits", [](matrix_in nu, matrix_in log_f, int threads, const std::string& level) {
    check_tables(nu, log_f);
    const Kernels& k = choose(level);
    const ptrdiff_t n = (ptrdiff_t)nu.shape(1), stride = stride_of(log_f);
    array_out out = new_array({nu.shape(0), 2});
    unlocked([&] {
      for (ptrdiff_t b = 0; b < (ptrdiff_t)nu.shape(0); b++) {
        const Split split = split_infinite(nu.data() + b * n, n);
        const Logits logits = {k.flat, k.lanes, threads, split.finite.data(), (ptrdiff_t)split.finite.size()};
        const ArrayTable table(k.flat, 1, log_f.data() + b * stride + split.forced);
        OpenLogits open;
        if (logits.n > 0) open = open_logits(logits, logits.sums(0, 8).totals, table);
        out.data()[2 * b] = open.low;
        out.data()[2 * b + 1] = open.high;
      }
    });
    return out;
  }, "nu"_a, "log_f"_a, "threads"_a = 0, "level"_a = "");

  // Models along the chain of partial sums: messages (B, n), and (2, B), log E f and a bound of the error, inf where plain
  // numbers run out of range.
  m.def("chain", [](matrix_in nu, matrix_in log_f, int threads, const std::string& level) {
    check_tables(nu, log_f);
    const FlatKernels& k = *choose(level).flat;
    const ptrdiff_t batch = (ptrdiff_t)nu.shape(0), n = (ptrdiff_t)nu.shape(1);
    array_out messages = new_array({nu.shape(0), nu.shape(1)}), totals = new_array({2, nu.shape(0)});
    unlocked([&] {
      chain_rows(k, threads_for(threads, nu), nu.data(), log_f.data(), stride_of(log_f), batch, n, totals.data(),
                 messages.data(), totals.data() + batch);
    });
    return nb::make_tuple(messages, totals);
  }, "nu"_a, "log_f"_a, "threads"_a = 0, "level"_a = "");

  // log P(z = k) for k = 0 .. n, relatively accurate in both tails.
  m.def("flat_log_pmf", [](matrix_in nu, int threads, const std::string& level) {
    const Kernels& k = choose(level);
    array_out out = new_array({nu.shape(0), nu.shape(1) + 1});
    unlocked([&] {
      log_pmf_rows(k, threads_for(threads, nu), nu.data(), (ptrdiff_t)nu.shape(0), (ptrdiff_t)nu.shape(1), out.data());
    });
    return out;
  }, "nu"_a, "threads"_a = 0, "level"_a = "");
}

}  // namespace tallytree
