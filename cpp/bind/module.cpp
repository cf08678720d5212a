// Python bindings: arrays in, arrays out, the GIL released while a kernel runs.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/max_plus.hpp"
#include "base/parallel.hpp"
#include "bind/bindings.hpp"

namespace tallytree {

using any_array_in = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;

constexpr size_t kCopied = 1 << 18;  // doubles of one huge page
constexpr size_t kChunk = 1 << 16;   // doubles of one task
constexpr size_t kWorthThreads = 1 << 20;

static void bind_arrays(nb::module_& m) {
  // Instruction-set levels that this machine can run, best first.
  m.def("levels", [] {
    std::vector<std::string> names;
    for (const char* name : {"v4", "v3", "v2", "generic"})
      if (find_kernels(name)) names.push_back(name);
    return names;
  });

  // Sums of log(1 + exp(x)) over the rows; infinite entries contribute 0.
  m.def("softplus_sums", [](matrix_in x, int threads, const std::string& level) {
    const Kernels& k = choose(level);
    const size_t rows = x.shape(0), columns = x.shape(1), chunks = (columns + kChunk - 1) / kChunk;
    array_out out = new_array({rows});
    double* sums = out.data();
    unlocked([&] {
      // Chunks of fixed size: the sums do not depend on the number of threads.
      std::vector<double> parts(rows * chunks);
      parallel_for((ptrdiff_t)parts.size(), rows * columns > kChunk ? threads : 1, [&](ptrdiff_t c) {
        const size_t row = (size_t)c / chunks, from = (size_t)c % chunks * kChunk;
        parts[(size_t)c] =
            k.softplus_sum(x.data() + row * columns + from, (ptrdiff_t)std::min(kChunk, columns - from));
      });
      for (size_t row = 0; row < rows; row++) {
        sums[row] = 0;
        for (size_t c = 0; c < chunks; c++) sums[row] += parts[row * chunks + c];
      }
    });
    return out;
  });

  // 1 / (1 + exp(-(nu + messages))), (B, n); infinite nu decide by themselves.
  m.def("posterior_marginals", [](matrix_in nu, matrix_in messages, int threads, const std::string& level) {
    require(nu.shape(0) == messages.shape(0) && nu.shape(1) == messages.shape(1),
            "`nu` and `messages` must have the same shape");
    const Kernels& k = choose(level);
    const size_t total = nu.size();
    array_out out = new_array({nu.shape(0), nu.shape(1)});
    unlocked([&] {
      over_parts((ptrdiff_t)total, kChunk, threads, [&](ptrdiff_t from, ptrdiff_t length) {
        k.posterior_marginals(nu.data() + from, messages.data() + from, length, out.data() + from);
      });
    });
    return out;
  });

  // Row by row, out[t] = max_i a[i] + b[start + t - i] for t < width; -inf where there is no such i.
  m.def("max_plus", [](matrix_in a, matrix_in b, int64_t start, int64_t width, int threads, const std::string& level) {
    const ptrdiff_t rows = (ptrdiff_t)a.shape(0), na = (ptrdiff_t)a.shape(1), nb_ = (ptrdiff_t)b.shape(1);
    require((ptrdiff_t)b.shape(0) == rows && na > 0 && start >= 0 && width >= 0,
            "a and b must have as many rows, a at least one column, start and width must not be negative");
    const Kernels& k = choose(level);
    array_out out = new_array({(size_t)rows, (size_t)width});
    unlocked([&] { max_plus_rows(k, rows, a.data(), na, b.data(), nb_, (ptrdiff_t)start, (ptrdiff_t)width, threads, out.data()); });
    return out;
  });

  // Copies of arrays side by side in one block of memory, and the smallest and largest number of each (NaN, in at least one of
  // the two, if it holds one).
  m.def("copies", [](const std::vector<any_array_in>& arrays, int threads, const std::string& level) {
    const Kernels& k = choose(level);
    // One block for all: their pages are made together.
    std::vector<size_t> start;
    size_t total = 0;
    for (const any_array_in& a : arrays) {
      start.push_back(total);
      total += (a.size() + 7) / 8 * 8;
    }
    array_out all = new_array({total});
    double* data = all.data();
    const nb::object owner = nb::cast(all, nb::rv_policy::reference);
    struct Stretch {
      size_t array;
      const double* from;
      double* to;
      size_t count;
      double smallest, largest;
    };
    std::vector<Stretch> stretches;
    std::vector<array_out> result;
    for (size_t i = 0; i < arrays.size(); i++) {
      const any_array_in& a = arrays[i];
      std::vector<size_t> shape;
      for (size_t d = 0; d < a.ndim(); d++) shape.push_back(a.shape(d));
      result.push_back(array_out(data + start[i], shape.size(), shape.data(), owner));
      for (size_t at = 0; at < a.size(); at += kCopied)
        stretches.push_back({i, a.data() + at, data + start[i] + at, std::min(kCopied, a.size() - at), 0, 0});
    }
    std::vector<std::pair<double, double>> extremes(arrays.size(), {__builtin_inf(), -__builtin_inf()});
    unlocked([&] {
      parallel_for((ptrdiff_t)stretches.size(), total >= kWorthThreads ? threads : 1, [&](ptrdiff_t i) {
        Stretch& p = stretches[(size_t)i];
        k.copy_and_scan(p.from, (ptrdiff_t)p.count, p.to, &p.smallest, &p.largest);
      });
      for (const Stretch& p : stretches) {
        auto& [smallest, largest] = extremes[p.array];
        if (std::isnan(p.smallest) || p.smallest < smallest) smallest = p.smallest;
        if (std::isnan(p.largest) || p.largest > largest) largest = p.largest;
      }
    });
    return std::make_pair(result, extremes);
  });
}

#define TT_ROOMS(EACH) EACH(flat) EACH(verbs) EACH(tree) EACH(cluster) EACH(forest) EACH(frontier) EACH(tangent) EACH(sample)
#define TT_DECLARE_ROOM(room) void bind_##room(nb::module_& m);
#define TT_BIND_ROOM(room) tallytree::bind_##room(m);

TT_ROOMS(TT_DECLARE_ROOM)
TT_DECLARE_ROOM(hooks)

}  // namespace tallytree

NB_MODULE(_native, m) {
  nanobind::set_leak_warnings(false);  // plans live as long as the trees that the package caches
  tallytree::watch_for_the_end();
  tallytree::prepare_exceptions();
  tallytree::bind_arrays(m);
  TT_ROOMS(TT_BIND_ROOM)
#ifdef TT_TEST_HOOKS
  tallytree::bind_hooks(m);
#endif
}
