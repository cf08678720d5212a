// Python bindings of the flat solver.
#include <memory>

#include "bind/bindings.hpp"
#include "flat/batches.hpp"

namespace tallytree {

namespace {

using matrix_shared = nb::ndarray<nb::numpy, const double, nb::ndim<2>>;

// Rows for logits (B, n).
FlatRows new_rows(const matrix_in& nu, int threads, const std::string& level) {
  return {choose(level), threads_for(threads, nu), (ptrdiff_t)nu.shape(0), (ptrdiff_t)nu.shape(1)};
}

// A view of memory that the solution goes on using.
matrix_shared shared_matrix(std::shared_ptr<const double> data, size_t rows, size_t columns) {
  const double* first = data.get();
  auto* held = new std::shared_ptr<const double>(std::move(data));
  nb::capsule owner(held, [](void* p) noexcept { delete (std::shared_ptr<const double>*)p; });
  return matrix_shared(first, {rows, columns}, owner);
}

}  // namespace

void check_logits(const FlatRows& rows, const matrix_in& nu) {
  require((ptrdiff_t)nu.shape(0) == rows.batch && (ptrdiff_t)nu.shape(1) == rows.n,
          "nu must have the shape that was solved");
}

void bind_flat(nb::module_& m) {
  // Solved flat models: one potential over all variables, row by row. `totals` (3, B): log E f(z), -inf for an impossible
  // model; the sum of log(1 + exp(nu)) over the finite nu; a certified bound on the error of the first (beyond 4 ulp of both)
  // and of every message, inf where there is none.
  nb::class_<FlatRows>(m, "FlatSolution")
      .def("totals", [](const FlatRows& rows) {
        array_out out = new_array({3, rows.row.size()});
        double *log_mean = out.data(), *softplus = log_mean + rows.row.size(), *bound = softplus + rows.row.size();
        for (const FlatSolution& s : rows.row) {
          *log_mean++ = s.log_mean;
          *softplus++ = s.softplus;
          *bound++ = s.bound;
        }
        return out;
      });

  // Solves z = sum of Bernoulli(sigmoid(nu_i)) reweighted by f(z) = exp(log_f), for nu (B, n). Without `cavities` the messages
  // to variables with infinite nu are as infinite as these.
  m.def("flat_solve", [](matrix_in nu, matrix_in log_f, bool cavities, int threads, const std::string& level) {
    check_tables(nu, log_f);
    FlatRows rows = new_rows(nu, threads, level);
    rows.cavities = cavities;
    GilReleased release;
    solve_rows(nu.data(), log_f.data(), stride_of(log_f), &rows);
    return rows;
  }, "nu"_a, "log_f"_a, "cavities"_a = true, "threads"_a = 0, "level"_a = "");

  // The same for f(z) = sum_j coefficients[j] rates[j]^z, rates of at least -1: a closed form. The bound is inf where its
  // terms may cancel, and there are no other answers then.
  m.def("flat_solve_powers", [](matrix_in nu, vector_in coefficients, vector_in rates, int threads,
                                const std::string& level) {
    check_powers(coefficients, rates);
    FlatRows rows = new_rows(nu, threads, level);
    GilReleased release;
    solve_power_rows(nu.data(), coefficients.data(), rates.data(), (int)rates.size(), &rows);
    return rows;
  }, "nu"_a, "coefficients"_a, "rates"_a, "threads"_a = 0, "level"_a = "");

  // P(y_i = 1) under the posterior, (B, n), read-only.
  m.def("flat_marginals", [](const FlatRows& rows, matrix_in nu) {
    check_logits(rows, nu);
    if (auto known = marginals_at_hand(rows)) return shared_matrix(std::move(known), nu.shape(0), nu.shape(1));
    array_out out = new_array({nu.shape(0), nu.shape(1)});
    unlocked([&] { row_answers(rows, nu.data(), Wanted::marginals, out.data()); });
    return matrix_shared(out);
  });

  // Leaf messages r_i = log(d_i(1) / d_i(0)), (B, n): posterior logit = nu_i + r_i.
  m.def("flat_messages", [](const FlatRows& rows, matrix_in nu) {
    check_logits(rows, nu);
    array_out out = new_array({nu.shape(0), nu.shape(1)});
    unlocked([&] { row_answers(rows, nu.data(), Wanted::messages, out.data()); });
    return out;
  });

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
