// Kernels and the thread pool on their own, for the tests: the submodule `hooks`, behind the build option
// TALLYTREE_TEST_HOOKS.
#include <cstring>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bind/bindings.hpp"
#include "test_hooks/hook_kernels.hpp"
#include "sample/kernels.hpp"
#include "tree/pass.hpp"

namespace tallytree {

namespace {

array_out run(HookKernel HookKernels::*kernel, const vector_in& a, const vector_in& b, size_t outputs,
              const std::string& method, const std::string& level) {
  array_out out = new_array({outputs});
  WorkerMemory memory;
  Worker worker = memory.worker(a.shape(0) + b.shape(0));
  unlocked([&] {
    (choose(level).hooks->*kernel)(method_named(method), a.data(), (int)a.shape(0), b.data(), (int)b.shape(0), out.data(),
                                   worker, new_plan_cache().get());
  });
  return out;
}

array_out convolve(vector_in a, vector_in b, const std::string& method, const std::string& level) {
  require(a.shape(0) > 0 && b.shape(0) > 0, "`a` and `b` must not be empty");
  return run(&HookKernels::convolve, a, b, a.shape(0) + b.shape(0) - 1, method, level);
}

array_out correlate(vector_in g, vector_in u, const std::string& method, const std::string& level) {
  require(u.shape(0) > 0 && g.shape(0) >= u.shape(0), "`u` must not be empty nor longer than `g`");
  return run(&HookKernels::correlate, g, u, g.shape(0) - u.shape(0) + 1, method, level);
}

vector_out<uint64_t> sample_random(key_in key, uint32_t tag, uint32_t id, uint32_t group, const std::string& level) {
  SampleKey k;
  std::memcpy(k.word, key.data(), sizeof k.word);
  auto out = new_array_of<uint64_t>(32);
  choose(level).sample->random_words(&k, tag, id, group, 16, out.data());
  return out;
}

array_out log_convolve(vector_in a, vector_in b, int64_t first, int64_t last,
                       const std::string& level) {
  const int64_t longest = (int64_t)a.shape(0) + (int64_t)b.shape(0) - 1;
  require(a.shape(0) > 0 && b.shape(0) > 0 && first >= 0 && first <= last && last < longest,
          "`first` and `last` must be entries of the convolution of two vectors that are not empty");
  array_out out = new_array({(size_t)(last - first + 1)});
  WorkerMemory memory;
  Worker worker = memory.worker((size_t)longest + 1);
  choose(level).sample->log_convolve(a.data(), (ptrdiff_t)a.shape(0), b.data(), (ptrdiff_t)b.shape(0), first, last,
                                     out.data(), worker);
  return out;
}

// Numbers 0 .. tasks-1 summed up by tasks that each run `nested` tasks of their own; task `fail` throws.
nb::tuple parallel_sum(int64_t tasks, int threads, int64_t nested, std::optional<int64_t> fail) {
  std::vector<int64_t> sum((size_t)tasks, 0);
  std::vector<std::thread::id> worker((size_t)tasks);
  unlocked([&] {
    run_tasks((size_t)tasks, threads, [&](size_t i, int thread) {
      if (thread >= threads) throw std::logic_error("more threads than allowed");
      if (fail && (int64_t)i == *fail) throw std::invalid_argument("task " + std::to_string(i) + " failed");
      std::vector<int64_t> part((size_t)nested, 0);
      run_tasks(part.size(), threads, [&](size_t j, int) { part[j] = (int64_t)i; });
      for (const int64_t x : part) sum[i] += x;
      worker[i] = std::this_thread::get_id();
    });
  });
  int64_t total = 0;
  for (const int64_t x : sum) total += x;
  return nb::make_tuple(total, std::set<std::thread::id>(worker.begin(), worker.end()).size());
}

}  // namespace

void bind_hooks(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("hooks");
  // sum_i a[i] b[k-i] of non-negative vectors, by one kernel.
  m.def("convolve", &convolve, "a"_a, "b"_a, "method"_a = "direct", "level"_a = "");
  // sum_j g[k+j] u[j] of non-negative vectors, for k = 0 .. len(g) - len(u), by one kernel.
  m.def("correlate", &correlate, "g"_a, "u"_a, "method"_a = "direct", "level"_a = "");
  // Sixteen calls of Philox 4x32-10: word p of call j, two 32-bit outputs each, is entry 16 p + j.
  m.def("sample_random", &sample_random, "key"_a, "tag"_a, "id"_a, "group"_a, "level"_a = "");
  // log sum_i exp(a[i] + b[k - i]) for k = first..last.
  m.def("log_convolve", &log_convolve, "a"_a, "b"_a, "first"_a, "last"_a, "level"_a = "");
  // The smallest length of a transform that is at least n.
  m.def("fft_length", &fft_length, "n"_a);
  // nested * (0 + ... + tasks - 1), and how many threads took part.
  m.def("parallel_sum", &parallel_sum, "tasks"_a, "threads"_a, "nested"_a = 1, "fail"_a = nb::none());
}

}  // namespace tallytree
