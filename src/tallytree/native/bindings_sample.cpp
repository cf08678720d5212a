// Python bindings of the sampler.
#include <nanobind/stl/string.h>

#include <cstring>
#include <string>

#include "bindings.hpp"
#include "sample_tree.hpp"

namespace tallytree {

namespace {

using ints_in = array_in<int64_t, 1>;
using doubles_in = array_in<double, 1>;
using words_in = nb::ndarray<const uint32_t, nb::shape<4>, nb::c_contig, nb::device::cpu>;
using bytes_out = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

}  // namespace

void bind_sample(nb::module_& m) {
  nb::class_<SampleTree>(m, "SampleTree", "Upward messages of one model, ready to draw from.")
      .def("__init__",
           [](SampleTree* self, ints_in variables, ints_in start, ints_in left, ints_in right, ints_in table,
              ints_in roots, ints_in free, doubles_in nu, doubles_in tables, bool windowed, double tilt, double budget,
              int64_t low, int64_t high, int threads, const std::string& level) {
             const SampleKernels& kernels = *choose(level).sample;
             SampleTreeInput in{variables.data(), start.data(), (int64_t)start.shape(0) - 1, left.data(), right.data(),
                            (int64_t)left.shape(0), table.data(), roots.data(), (int64_t)roots.shape(0), free.data(),
                            (int64_t)free.shape(0), nu.data(), tables.data(), windowed, tilt, budget, low, high};
             GilReleased release;
             new (self) SampleTree(in, kernels, threads);
           },
           nb::arg("variables"), nb::arg("start"), nb::arg("left"), nb::arg("right"), nb::arg("table"),
           nb::arg("roots"), nb::arg("free"), nb::arg("nu"), nb::arg("tables"), nb::arg("windowed"), nb::arg("tilt"),
           nb::arg("budget"), nb::arg("low"), nb::arg("high"), nb::arg("threads"), nb::arg("level"))
      .def_prop_ro("impossible", &SampleTree::impossible)
      .def("root",
           [](const SampleTree& self) {
             const MessageView view = self.root();
             array_out out = new_array({(size_t)view.length});
             if (view.length) std::memcpy(out.data(), view.log_weight, (size_t)view.length * sizeof(double));
             return nb::make_tuple(view.low, out);
           },
           "Smallest count of the first root, and log-weights from there on.")
      .def("draw",
           [](const SampleTree& self, bytes_out out, ints_in rows, words_in key, nb::object totals, int threads) {
             SampleKey k;
             std::memcpy(k.word, key.data(), sizeof k.word);
             const int64_t* fixed = nullptr;
             ints_in held;
             if (!totals.is_none()) {
               held = nb::cast<ints_in>(totals);
               fixed = held.data();
             }
             GilReleased release;
             self.draw(out.data(), (ptrdiff_t)out.shape(1), rows.data(), (ptrdiff_t)rows.shape(0), k, fixed, threads);
           },
           nb::arg("out"), nb::arg("rows"), nb::arg("key"), nb::arg("totals").none(), nb::arg("threads"),
           "Fill rows of `out` with samples.");
}

}  // namespace tallytree
