// Python bindings of the sampler.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/kernels.hpp"
#include "sample/forest.hpp"

namespace nb = nanobind;

namespace tallytree {

#define TT_DECLARE_SAMPLE(level)                \
  namespace level {                             \
  extern const SampleKernels sample_kernels;    \
  }
#ifdef TT_HAVE_v4
TT_DECLARE_SAMPLE(v4)
#endif
#ifdef TT_HAVE_v3
TT_DECLARE_SAMPLE(v3)
#endif
#ifdef TT_HAVE_v2
TT_DECLARE_SAMPLE(v2)
#endif
#ifdef TT_HAVE_generic
TT_DECLARE_SAMPLE(generic)
#endif

const SampleKernels* sample_kernels(const char* level) {
#ifdef TT_HAVE_v4
  if (!std::strcmp(level, "v4")) return &v4::sample_kernels;
#endif
#ifdef TT_HAVE_v3
  if (!std::strcmp(level, "v3")) return &v3::sample_kernels;
#endif
#ifdef TT_HAVE_v2
  if (!std::strcmp(level, "v2")) return &v2::sample_kernels;
#endif
#ifdef TT_HAVE_generic
  if (!std::strcmp(level, "generic")) return &generic::sample_kernels;
#endif
  return nullptr;
}

}  // namespace tallytree

using namespace tallytree;

using ints_in = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using doubles_in = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using words_in = nb::ndarray<const uint32_t, nb::shape<4>, nb::c_contig, nb::device::cpu>;
using bytes_out = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// `level` is empty (best available) or names a level; the Python side has checked the name.
static const SampleKernels& choose_kernels(const std::string& level) {
  const Kernels* k = level.empty() ? best_kernels() : find_kernels(level.c_str());
  const SampleKernels* found = k ? sample_kernels(k->level) : nullptr;
  if (!found) throw nb::value_error(("instruction-set level not available on this machine: " + level).c_str());
  return *found;
}

template <class T>
static nb::ndarray<nb::numpy, T, nb::ndim<1>> fresh(size_t n, T*& data) {
  data = new T[n ? n : 1];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, 1, &n, owner);
}

static void require(bool holds, const char* what) {
  if (!holds) throw nb::value_error(what);
}

static void check_variables(const ints_in& variables, int64_t n, const char* what) {
  for (size_t i = 0; i < variables.shape(0); i++) require(variables.data()[i] >= 0 && variables.data()[i] < n, what);
}

// Everything that the sampler uses as an index, before it does.
static void check_forest(const ForestInput& in, const ints_in& variables, const ints_in& start, const ints_in& right,
                         const ints_in& table, const ints_in& free, int64_t n, int64_t table_entries) {
  require(start.shape(0) > 0 && in.start[0] == 0 && in.start[in.blocks] == (int64_t)variables.shape(0),
          "`start` must begin with 0 and end with the number of `variables`");
  const int64_t total = in.blocks + in.nodes;
  require((int64_t)right.shape(0) == in.nodes && (int64_t)table.shape(0) == total,
          "`left` and `right` must have one entry per node, `table` one per block and node");
  check_variables(variables, n, "`variables` must hold columns of `nu`");
  check_variables(free, n, "`free` must hold columns of `nu`");
  std::vector<int64_t> size((size_t)total, 0);
  std::vector<bool> below((size_t)total, false);
  for (int64_t id = 0; id < total; id++) {
    if (id < in.blocks) {
      size[(size_t)id] = in.start[id + 1] - in.start[id];
      require(size[(size_t)id] >= 0 && size[(size_t)id] <= kBlock, "a block must hold 0 to 64 variables");
    } else {
      for (const int64_t child : {in.left[id - in.blocks], in.right[id - in.blocks]}) {
        require(child >= 0 && child < id && !below[(size_t)child],
                "children must come before their parent and have one parent");
        below[(size_t)child] = true;
        size[(size_t)id] += size[(size_t)child];
      }
    }
    require(in.table[id] < 0 || in.table[id] <= table_entries - size[(size_t)id] - 1,
            "a table reaches beyond the end of `tables`");
  }
  for (int64_t i = 0; i < in.n_roots; i++) {
    require(in.roots[i] >= 0 && in.roots[i] < total && !below[(size_t)in.roots[i]],
            "`roots` must hold every block and node without a parent once");
    below[(size_t)in.roots[i]] = true;
  }
  for (const bool held : below) require(held, "`roots` must hold every block and node without a parent once");
  require(!in.windowed || (std::isfinite(in.tilt) && in.budget >= 0), "`tilt` must be finite, `budget` not negative");
}

static void check_draw(const SampleForest& forest, const bytes_out& out, const ints_in& rows, const int64_t* totals,
                       size_t n_totals) {
  require(!forest.impossible(), "an impossible model has no samples");
  require((int64_t)out.shape(1) >= forest.width(), "`out` must have one column per variable");
  for (size_t i = 0; i < rows.shape(0); i++)
    require(rows.data()[i] >= 0 && rows.data()[i] < (int64_t)out.shape(0), "`rows` must hold rows of `out`");
  if (!totals) return;
  const MessageView root = forest.root();
  require(n_totals == rows.shape(0), "`totals` must have one entry per row");
  for (size_t i = 0; i < n_totals; i++)
    require(totals[i] >= root.low && totals[i] < root.low + root.length &&
                root.log_weight[totals[i] - root.low] > -__builtin_inf(),
            "`totals` must be possible counts of the first root");
}

void bind_sample(nb::module_& m) {
  m.def("sample_random", [](words_in key, uint32_t tag, uint32_t id, uint32_t group, const std::string& level) {
    SampleKey k;
    std::memcpy(k.word, key.data(), sizeof k.word);
    uint64_t* data;
    auto out = fresh<uint64_t>(32, data);
    choose_kernels(level).random_words(&k, tag, id, group, 16, data);
    return out;
  }, nb::arg("key"), nb::arg("tag"), nb::arg("id"), nb::arg("group"), nb::arg("level") = "",
  "Sixteen calls of Philox 4x32-10: word p of call j, two 32-bit outputs each, is entry 16 p + j.");

  m.def("log_convolve", [](doubles_in a, doubles_in b, int64_t first, int64_t last, const std::string& level) {
    const SampleKernels& kernels = choose_kernels(level);
    const int64_t longest = (int64_t)a.shape(0) + (int64_t)b.shape(0) - 1;
    require(a.shape(0) > 0 && b.shape(0) > 0 && first >= 0 && first <= last && last < longest,
            "`first` and `last` must be entries of the convolution of two vectors that are not empty");
    double* data;
    auto out = fresh<double>((size_t)(last - first + 1), data);
    std::vector<double> scratch(log_convolve_scratch((ptrdiff_t)a.shape(0), (ptrdiff_t)b.shape(0)));
    kernels.log_convolve(a.data(), (ptrdiff_t)a.shape(0), b.data(), (ptrdiff_t)b.shape(0), first, last, data,
                         scratch.data());
    return out;
  }, nb::arg("a"), nb::arg("b"), nb::arg("first"), nb::arg("last"), nb::arg("level") = "",
  "log sum_i exp(a[i] + b[k - i]) for k = first..last.");

  nb::class_<SampleForest>(m, "SampleForest", "Upward messages of one model, ready to draw from.")
      .def("__init__",
           [](SampleForest* self, ints_in variables, ints_in start, ints_in left, ints_in right, ints_in table,
              ints_in roots, ints_in free, doubles_in nu, doubles_in tables, bool windowed, double tilt, double budget,
              int64_t low, int64_t high, int threads, const std::string& level) {
             const SampleKernels& kernels = choose_kernels(level);
             ForestInput in{variables.data(), start.data(), (int64_t)start.shape(0) - 1, left.data(), right.data(),
                            (int64_t)left.shape(0), table.data(), roots.data(), (int64_t)roots.shape(0), free.data(),
                            (int64_t)free.shape(0), nu.data(), tables.data(), windowed, tilt, budget, low, high};
             check_forest(in, variables, start, right, table, free, (int64_t)nu.shape(0), (int64_t)tables.shape(0));
             nb::gil_scoped_release release;
             new (self) SampleForest(in, kernels, threads);
           },
           nb::arg("variables"), nb::arg("start"), nb::arg("left"), nb::arg("right"), nb::arg("table"),
           nb::arg("roots"), nb::arg("free"), nb::arg("nu"), nb::arg("tables"), nb::arg("windowed"), nb::arg("tilt"),
           nb::arg("budget"), nb::arg("low"), nb::arg("high"), nb::arg("threads"), nb::arg("level"))
      .def_prop_ro("impossible", &SampleForest::impossible)
      .def("root",
           [](const SampleForest& self) {
             const MessageView view = self.root();
             double* copy;
             auto out = fresh<double>((size_t)view.length, copy);
             if (view.length) std::memcpy(copy, view.log_weight, (size_t)view.length * sizeof(double));
             return nb::make_tuple(view.low, out);
           },
           "Smallest count of the first root, and log-weights from there on.")
      .def("draw",
           [](const SampleForest& self, bytes_out out, ints_in rows, words_in key, nb::object totals, int threads) {
             SampleKey k;
             std::memcpy(k.word, key.data(), sizeof k.word);
             const int64_t* fixed = nullptr;
             ints_in held;
             if (!totals.is_none()) {
               held = nb::cast<ints_in>(totals);
               fixed = held.data();
             }
             check_draw(self, out, rows, fixed, fixed ? held.shape(0) : 0);
             nb::gil_scoped_release release;
             self.draw(out.data(), (ptrdiff_t)out.shape(1), rows.data(), (ptrdiff_t)rows.shape(0), k, fixed, threads);
           },
           nb::arg("out"), nb::arg("rows"), nb::arg("key"), nb::arg("totals").none(), nb::arg("threads"),
           "Fill rows of `out` with samples.");
}
