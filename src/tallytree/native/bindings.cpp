// Python bindings: arrays in, arrays out, the GIL released while a kernel runs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "kernels.hpp"

namespace nb = nanobind;
using tallytree::Kernels;

using vector_in = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

namespace {

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

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // plans live as long as the trees that the package caches
  bind_sample(m);
  bind_tree(m);
  bind_cluster(m);
  m.def("levels", [] {
    std::vector<std::string> names;
    for (const char* name : {"v4", "v3", "v2", "generic"})
      if (tallytree::find_kernels(name)) names.push_back(name);
    return names;
  }, "Instruction-set levels that this machine can run, best first.");

  m.def("softplus_sum", [](vector_in x, const std::string& level) {
    const Kernels& k = choose(level);
    nb::gil_scoped_release release;
    return k.softplus_sum(x.data(), (ptrdiff_t)x.shape(0));
  }, nb::arg("x"), nb::arg("level") = "", "Sum of log(1 + exp(x)); infinite entries contribute 0.");

  bind_flat(m);
}
