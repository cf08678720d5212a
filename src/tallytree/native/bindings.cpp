// Python bindings: arrays in, arrays out, the GIL released while a kernel runs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "memory.hpp"
#include "threads.hpp"

namespace nb = nanobind;
using tallytree::Kernels;

using array_in = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using array_out = nb::ndarray<nb::numpy, double>;
using matrix_in = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using matrix_out = nb::ndarray<nb::numpy, double, nb::ndim<2>>;

namespace {

constexpr size_t kCopied = 1 << 18;  // doubles of one huge page
constexpr size_t kChunk = 1 << 16;   // doubles of one task
constexpr size_t kWorthThreads = 1 << 20;

// `level` is empty (best available) or names a level; the Python side has checked the name.
const Kernels& choose(const std::string& level) {
  const Kernels* k = level.empty() ? tallytree::best_kernels() : tallytree::find_kernels(level.c_str());
  if (!k) throw nb::value_error(("instruction-set level not available on this machine: " + level).c_str());
  return *k;
}

}  // namespace

void bind_flat(nb::module_& m);
void bind_sample(nb::module_& m);
void bind_tree(nb::module_& m);
void bind_cluster(nb::module_& m);
void bind_tangent(nb::module_& m);

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // plans live as long as the trees that the package caches
  bind_sample(m);
  bind_tree(m);
  bind_cluster(m);
  bind_tangent(m);
  m.def("levels", [] {
    std::vector<std::string> names;
    for (const char* name : {"v4", "v3", "v2", "generic"})
      if (tallytree::find_kernels(name)) names.push_back(name);
    return names;
  }, "Instruction-set levels that this machine can run, best first.");

  m.def("softplus_sums", [](matrix_in x, int threads, const std::string& level) {
    const Kernels& k = choose(level);
    const size_t rows = x.shape(0), columns = x.shape(1), chunks = (columns + kChunk - 1) / kChunk;
    double* sums = tallytree::new_doubles(rows);
    if (!sums) throw std::bad_alloc();
    nb::capsule owner(sums, [](void* p) noexcept { tallytree::free_doubles((double*)p); });
    {
      nb::gil_scoped_release release;
      // Chunks of fixed size: the sums do not depend on the number of threads.
      std::vector<double> parts(rows * chunks);
      tallytree::parallel_for((ptrdiff_t)parts.size(), rows * columns > kChunk ? threads : 1, [&](ptrdiff_t c) {
        const size_t row = (size_t)c / chunks, from = (size_t)c % chunks * kChunk;
        parts[(size_t)c] =
            k.softplus_sum(x.data() + row * columns + from, (ptrdiff_t)std::min(kChunk, columns - from));
      });
      for (size_t row = 0; row < rows; row++) {
        sums[row] = 0;
        for (size_t c = 0; c < chunks; c++) sums[row] += parts[row * chunks + c];
      }
    }
    return nb::ndarray<nb::numpy, double, nb::ndim<1>>(sums, {rows}, owner);
  }, nb::arg("x"), nb::arg("threads") = 1, nb::arg("level") = "",
        "Sums of log(1 + exp(x)) over the rows; infinite entries contribute 0.");

  m.def("posterior_marginals", [](matrix_in nu, matrix_in messages, int threads, const std::string& level) {
    if (nu.shape(0) != messages.shape(0) || nu.shape(1) != messages.shape(1))
      throw nb::value_error("`nu` and `messages` must have the same shape");
    const Kernels& k = choose(level);
    const size_t total = nu.size();
    double* data = tallytree::new_doubles(total);
    if (!data) throw std::bad_alloc();
    nb::capsule owner(data, [](void* p) noexcept { tallytree::free_doubles((double*)p); });
    {
      nb::gil_scoped_release release;
      tallytree::parallel_for((ptrdiff_t)((total + kChunk - 1) / kChunk), threads, [&](ptrdiff_t c) {
        const size_t from = (size_t)c * kChunk;
        k.posterior_marginals(nu.data() + from, messages.data() + from, (ptrdiff_t)std::min(kChunk, total - from),
                              data + from);
      });
    }
    return matrix_out(data, {nu.shape(0), nu.shape(1)}, owner);
  }, nb::arg("nu"), nb::arg("messages"), nb::arg("threads") = 1, nb::arg("level") = "",
        "1 / (1 + exp(-(nu + messages))), (B, n); infinite nu decide by themselves.");

  m.def("copies", [](const std::vector<array_in>& arrays, int threads, const std::string& level) {
    const Kernels& k = choose(level);
    // One block for all: their pages are made together.
    std::vector<size_t> start;
    size_t total = 0;
    for (const array_in& a : arrays) {
      start.push_back(total);
      total += (a.size() + 7) / 8 * 8;
    }
    double* data = tallytree::new_doubles(total);
    if (!data) throw std::bad_alloc();
    nb::capsule owner(data, [](void* p) noexcept { tallytree::free_doubles((double*)p); });
    struct Piece {
      size_t array;
      const double* from;
      double* to;
      size_t count;
      double smallest, largest;
    };
    std::vector<Piece> pieces;
    std::vector<array_out> result;
    for (size_t i = 0; i < arrays.size(); i++) {
      const array_in& a = arrays[i];
      std::vector<size_t> shape;
      for (size_t d = 0; d < a.ndim(); d++) shape.push_back(a.shape(d));
      result.push_back(array_out(data + start[i], shape.size(), shape.data(), owner));
      for (size_t at = 0; at < a.size(); at += kCopied)
        pieces.push_back({i, a.data() + at, data + start[i] + at, std::min(kCopied, a.size() - at), 0, 0});
    }
    std::vector<std::pair<double, double>> extremes(arrays.size(), {__builtin_inf(), -__builtin_inf()});
    {
      nb::gil_scoped_release release;
      tallytree::parallel_for((ptrdiff_t)pieces.size(), total >= kWorthThreads ? threads : 1, [&](ptrdiff_t i) {
        Piece& p = pieces[(size_t)i];
        k.copy_and_scan(p.from, (ptrdiff_t)p.count, p.to, &p.smallest, &p.largest);
      });
      for (const Piece& p : pieces) {
        auto& [smallest, largest] = extremes[p.array];
        if (std::isnan(p.smallest) || p.smallest < smallest) smallest = p.smallest;
        if (std::isnan(p.largest) || p.largest > largest) largest = p.largest;
      }
    }
    return std::make_pair(result, extremes);
  }, nb::arg("arrays"), nb::arg("threads") = 1, nb::arg("level") = "",
        "Copies of arrays side by side in one block of memory, and the smallest and largest number of each (NaN, in at "
        "least one of the two, if it holds one).");

  bind_flat(m);
}
