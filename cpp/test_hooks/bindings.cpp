// Kernels and the thread pool on their own, for the tests: the submodule `hooks`, behind the build option
// TALLYTREE_TEST_HOOKS.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bind/bindings.hpp"
#include "base/fft_plan.hpp"
#include "test_hooks/hook_kernels.hpp"
#include "base/parallel.hpp"
#include "sample/kernels.hpp"
#include "tree/methods.hpp"
#include "base/workspace.hpp"

namespace tallytree {

namespace {

array_out convolve(array_in<double, 1> a, array_in<double, 1> b, const std::string& method, const std::string& level) {
  const size_t na = a.shape(0), n_b = b.shape(0);
  if (na == 0 || n_b == 0) throw nb::value_error("`a` and `b` must not be empty");
  array_out out = new_array({na + n_b - 1});
  WorkerMemory memory;
  Worker worker = memory.worker(na + n_b);
  choose(level).hooks->convolve(method_named(method), a.data(), (int)na, b.data(), (int)n_b, out.data(), worker,
                                new_plan_cache().get());
  return out;
}

array_out correlate(array_in<double, 1> g, array_in<double, 1> u, const std::string& method,
                    const std::string& level) {
  const size_t ng = g.shape(0), nu = u.shape(0);
  if (nu == 0 || ng < nu) throw nb::value_error("`u` must not be empty nor longer than `g`");
  array_out out = new_array({ng - nu + 1});
  WorkerMemory memory;
  Worker worker = memory.worker(ng + nu);
  choose(level).hooks->correlate(method_named(method), g.data(), (int)ng, u.data(), (int)nu, out.data(), worker,
                                 new_plan_cache().get());
  return out;
}

nb::ndarray<nb::numpy, uint64_t> sample_random(array_in<uint32_t, 1> key, uint32_t tag, uint32_t id, uint32_t group,
                                               const std::string& level) {
  SampleKey k;
  if (key.shape(0) != 4) throw nb::value_error("`key` must have four words");
  std::memcpy(k.word, key.data(), sizeof k.word);
  auto out = new_array_of<uint64_t>(32);
  choose(level).sample->random_words(&k, tag, id, group, 16, out.data());
  return out;
}

array_out log_convolve(array_in<double, 1> a, array_in<double, 1> b, int64_t first, int64_t last,
                       const std::string& level) {
  const int64_t longest = (int64_t)a.shape(0) + (int64_t)b.shape(0) - 1;
  if (a.shape(0) == 0 || b.shape(0) == 0 || first < 0 || first > last || last >= longest)
    throw nb::value_error("`first` and `last` must be entries of the convolution of two vectors that are not empty");
  array_out out = new_array({(size_t)(last - first + 1)});
  std::vector<double> scratch(log_convolve_scratch((ptrdiff_t)a.shape(0), (ptrdiff_t)b.shape(0)));
  choose(level).sample->log_convolve(a.data(), (ptrdiff_t)a.shape(0), b.data(), (ptrdiff_t)b.shape(0), first, last,
                                     out.data(), scratch.data());
  return out;
}

// Numbers 0 .. tasks-1 summed up by tasks that each run `nested` tasks of their own; task `fail` throws.
nb::tuple parallel_sum(int64_t tasks, int threads, int64_t nested, std::optional<int64_t> fail) {
  std::vector<int64_t> sum((size_t)tasks, 0);
  std::vector<std::thread::id> worker((size_t)tasks);
  {
    GilReleased release;
    run_tasks((size_t)tasks, threads, [&](size_t i, int thread) {
      if (thread >= threads) throw std::logic_error("more threads than allowed");
      if (fail && (int64_t)i == *fail) throw std::invalid_argument("task " + std::to_string(i) + " failed");
      std::vector<int64_t> part((size_t)nested, 0);
      run_tasks(part.size(), threads, [&](size_t j, int) { part[j] = (int64_t)i; });
      for (const int64_t x : part) sum[i] += x;
      worker[i] = std::this_thread::get_id();
    });
  }
  int64_t total = 0;
  for (const int64_t x : sum) total += x;
  return nb::make_tuple(total, std::set<std::thread::id>(worker.begin(), worker.end()).size());
}

}  // namespace

void bind_hooks(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("hooks", "Kernels and the thread pool on their own, for the tests.");
  m.def("convolve", &convolve, nb::arg("a"), nb::arg("b"), nb::arg("method") = "direct", nb::arg("level") = "",
        "sum_i a[i] b[k-i] of non-negative vectors, by one kernel.");
  m.def("correlate", &correlate, nb::arg("g"), nb::arg("u"), nb::arg("method") = "direct", nb::arg("level") = "",
        "sum_j g[k+j] u[j] of non-negative vectors, for k = 0 .. len(g) - len(u), by one kernel.");
  m.def("sample_random", &sample_random, nb::arg("key"), nb::arg("tag"), nb::arg("id"), nb::arg("group"),
        nb::arg("level") = "",
        "Sixteen calls of Philox 4x32-10: word p of call j, two 32-bit outputs each, is entry 16 p + j.");
  m.def("log_convolve", &log_convolve, nb::arg("a"), nb::arg("b"), nb::arg("first"), nb::arg("last"),
        nb::arg("level") = "", "log sum_i exp(a[i] + b[k - i]) for k = first..last.");
  m.def("fft_length", &fft_length, nb::arg("n"), "The smallest length of a transform that is at least n.");
  m.def("parallel_sum", &parallel_sum, nb::arg("tasks"), nb::arg("threads"), nb::arg("nested") = 1,
        nb::arg("fail") = nb::none(), "nested * (0 + ... + tasks - 1), and how many threads took part.");
}

}  // namespace tallytree
