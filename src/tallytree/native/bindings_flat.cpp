// Python bindings of the flat solver.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "flat_rows.hpp"
#include "threads.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tallytree;

namespace {

using matrix_in = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using matrix_out = nb::ndarray<nb::numpy, double, nb::ndim<2>>;
using vector_out = nb::ndarray<nb::numpy, double, nb::ndim<1>>;

const Kernels& choose(const std::string& level) {
  const Kernels* k = level.empty() ? best_kernels() : find_kernels(level.c_str());
  if (!k) throw nb::value_error(("instruction-set level not available on this machine: " + level).c_str());
  return *k;
}

// Large results ask for huge pages, as NumPy does: first touches of small ones cost more than the arithmetic.
double* new_doubles(size_t count) {
  const size_t huge = size_t(2) << 20, bytes = count * sizeof(double);
  if (bytes < 2 * huge) return (double*)std::malloc(bytes ? bytes : 1);
  double* data = (double*)std::aligned_alloc(huge, (bytes + huge - 1) / huge * huge);
#ifdef __linux__
  if (data) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return data;
}

matrix_out new_matrix(size_t rows, size_t columns) {
  double* data = new_doubles(rows * columns);
  if (!data) throw std::bad_alloc();
  nb::capsule owner(data, [](void* p) noexcept { std::free(p); });
  return matrix_out(data, {rows, columns}, owner);
}

vector_out copy_vector(const std::vector<double>& values) {
  double* data = new double[values.size() ? values.size() : 1];
  if (!values.empty()) std::memcpy(data, values.data(), values.size() * sizeof(double));
  nb::capsule owner(data, [](void* p) noexcept { delete[] (double*)p; });
  return vector_out(data, {values.size()}, owner);
}

// Asking for the number of cores takes longer than a small model.
int threads_for(int threads, const matrix_in& nu) {
  return threads == 0 && nu.shape(0) * nu.shape(1) < (size_t(1) << 14) ? 1 : resolve_threads(threads);
}

void check_logits(const FlatRows& rows, const matrix_in& nu) {
  if ((ptrdiff_t)nu.shape(0) != rows.batch || (ptrdiff_t)nu.shape(1) != rows.n)
    throw nb::value_error("nu must have the shape that was solved");
}

template <class Member>
vector_out gather(const FlatRows& rows, Member member) {
  std::vector<double> values;
  for (const FlatSolution& s : rows.row) values.push_back(s.*member);
  return copy_vector(values);
}

}  // namespace

void bind_flat(nb::module_& m) {
  nb::class_<FlatRows>(m, "FlatSolution", "Solved flat models: one potential over all variables, row by row.")
      .def_prop_ro("log_mean", [](const FlatRows& r) { return gather(r, &FlatSolution::log_mean); },
                   nb::rv_policy::move,
                   "log E f(z), (B,); -inf for an impossible model.")
      .def_prop_ro("softplus", [](const FlatRows& r) { return gather(r, &FlatSolution::softplus); },
                   nb::rv_policy::move,
                   "Sum of log(1 + exp(nu)) over the finite nu, (B,).")
      .def_prop_ro("bound", [](const FlatRows& r) { return gather(r, &FlatSolution::bound); },
                   nb::rv_policy::move,
                   "Certified bound on the error of log_mean (beyond 4 ulp of softplus + |log_mean|) and of every "
                   "message, (B,); inf where nothing could be certified.");

  m.def("flat_solve", [](matrix_in nu, matrix_in log_f, int threads, const std::string& level) {
    if (log_f.shape(1) != nu.shape(1) + 1 || (log_f.shape(0) != 1 && log_f.shape(0) != nu.shape(0)))
      throw nb::value_error("log_f must have shape (1 or B, n + 1)");
    const Kernels& k = choose(level);
    FlatRows rows;
    rows.kernels = &k;
    rows.threads = threads_for(threads, nu);
    rows.batch = (ptrdiff_t)nu.shape(0);
    rows.n = (ptrdiff_t)nu.shape(1);
    nb::gil_scoped_release release;
    solve_rows(nu.data(), log_f.data(), log_f.shape(0) == 1 ? 0 : rows.n + 1, &rows);
    return rows;
  }, "nu"_a, "log_f"_a, "threads"_a = 0, "level"_a = "",
        "Solve z = sum of Bernoulli(sigmoid(nu_i)) reweighted by f(z) = exp(log_f), for nu (B, n).");

  m.def("flat_marginals", [](const FlatRows& rows, matrix_in nu) {
    check_logits(rows, nu);
    matrix_out out = new_matrix(nu.shape(0), nu.shape(1));
    double* to = out.data();
    {
      nb::gil_scoped_release release;
      row_marginals(rows, nu.data(), to);
    }
    return out;
  }, "solution"_a, "nu"_a, "P(y_i = 1) under the posterior, (B, n).");

  m.def("flat_messages", [](const FlatRows& rows, matrix_in nu) {
    check_logits(rows, nu);
    matrix_out out = new_matrix(nu.shape(0), nu.shape(1));
    double* to = out.data();
    {
      nb::gil_scoped_release release;
      row_messages(rows, nu.data(), to);
    }
    return out;
  }, "solution"_a, "nu"_a, "Leaf messages r_i = log(d_i(1) / d_i(0)), (B, n): posterior logit = nu_i + r_i.");

  m.def("flat_log_pmf", [](matrix_in nu, int threads, const std::string& level) {
    const Kernels& k = choose(level);
    matrix_out out = new_matrix(nu.shape(0), nu.shape(1) + 1);
    double* to = out.data();
    {
      nb::gil_scoped_release release;
      log_pmf_rows(k, threads_for(threads, nu), nu.data(), (ptrdiff_t)nu.shape(0), (ptrdiff_t)nu.shape(1), to);
    }
    return out;
  }, "nu"_a, "threads"_a = 0, "level"_a = "", "log P(z = k) for k = 0 .. n, relatively accurate in both tails.");
}
