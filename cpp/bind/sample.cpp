// Python bindings of the sampler.
#include <cmath>
#include <cstring>

#include "base/parallel.hpp"
#include "bind/bindings.hpp"
#include "sample/tree.hpp"

namespace tallytree {

namespace {

using ints_in = vector_of<int64_t>;
using bytes_out = array_to_fill<uint8_t, 2>;

SampleKey key_of(const key_in& words) {
  SampleKey key;
  std::memcpy(key.word, words.data(), sizeof key.word);
  return key;
}

template <class T>
std::span<const T> span_of(const vector_of<T>& values) {
  return {values.data(), values.size()};
}

// Everything that the sampler uses as an index, before it does.
void check_tree(const SampleTreeInput& in) {
  require(!in.start.empty() && in.start[0] == 0 && in.start.back() == (int64_t)in.variables.size(),
          "`start` must begin with 0 and end with the number of `variables`");
  const int64_t total = in.blocks() + (int64_t)in.left.size();
  require(in.right.size() == in.left.size() && (int64_t)in.table.size() == total,
          "`left` and `right` must have one entry per node, `table` one per block and node");
  for (const auto& held : {in.variables, in.free})
    for (const int64_t v : held)
      require(v >= 0 && v < (int64_t)in.nu.size(), "`variables` and `free` must hold columns of `nu`");
  std::vector<int64_t> size((size_t)total, 0);
  std::vector<bool> below((size_t)total, false);
  for (int64_t id = 0; id < total; id++) {
    if (id < in.blocks()) {
      size[(size_t)id] = in.start[id + 1] - in.start[id];
      require(size[(size_t)id] >= 0 && size[(size_t)id] <= kBlock, "a block must hold 0 to 64 variables");
    } else {
      for (const int64_t child : {in.left[id - in.blocks()], in.right[id - in.blocks()]}) {
        require(child >= 0 && child < id && !below[(size_t)child],
                "children must come before their parent and have one parent");
        below[(size_t)child] = true;
        size[(size_t)id] += size[(size_t)child];
      }
    }
    require(in.table[id] < 0 || in.table[id] <= (int64_t)in.tables.size() - size[(size_t)id] - 1,
            "a table reaches beyond the end of `tables`");
  }
  for (const int64_t root : in.roots) {
    require(root >= 0 && root < total && !below[(size_t)root],
            "`roots` must hold every block and node without a parent once");
    below[(size_t)root] = true;
  }
  for (const bool held : below) require(held, "`roots` must hold every block and node without a parent once");
  require(!in.windowed || (std::isfinite(in.tilt) && in.budget >= 0), "`tilt` must be finite, `budget` not negative");
}

void check_draw(const SampleTree& tree, const bytes_out& out, const ints_in& rows, const std::optional<ints_in>& totals) {
  require(!tree.impossible(), "an impossible model has no samples");
  require((int64_t)out.shape(1) >= tree.width(), "`out` must have one column per variable");
  for (size_t i = 0; i < rows.shape(0); i++)
    require(rows.data()[i] >= 0 && rows.data()[i] < (int64_t)out.shape(0), "`rows` must hold rows of `out`");
  if (!totals) return;
  const MessageView root = tree.root();
  require(totals->shape(0) == rows.shape(0), "`totals` must have one entry per row");
  for (size_t i = 0; i < totals->shape(0); i++) {
    const int64_t place = totals->data()[i] - root.low;
    require(place >= 0 && place < root.length && root.log_weight[place] > -__builtin_inf(),
            "`totals` must be possible counts of the first root");
  }
}

}  // namespace

void bind_sample(nb::module_& m) {
  // Fills `out` with one configuration of variables of finite log-odds, given how many are on; False if it took too many
  // attempts.
  m.def("draw_given_count",
        [](vector_in nu, int64_t count, key_in key, array_to_fill<uint8_t, 1> out, int threads, const std::string& level) {
          const Kernels& kernels = choose(level);
          require(out.shape(0) == nu.shape(0), "`out` must have one entry per entry of `nu`");
          require(count >= 0 && count <= (int64_t)nu.shape(0), "`count` must be between 0 and the length of `nu`");
          for (size_t i = 0; i < nu.shape(0); i++) require(std::isfinite(nu.data()[i]), "`nu` must be finite");
          return unlocked([&] {
            return draw_given_count(kernels, thread_count(threads), nu.data(), (ptrdiff_t)nu.shape(0), (ptrdiff_t)count,
                                    key_of(key), out.data());
          });
        });
  // Upward messages of one model, ready to draw from.
  nb::class_<SampleTree>(m, "SampleTree")
      .def("__init__",
           [](SampleTree* self, ints_in variables, ints_in start, ints_in left, ints_in right, ints_in table,
              ints_in roots, ints_in free, vector_in nu, vector_in tables, bool windowed, double tilt, double budget,
              int64_t low, int64_t high, int threads, const std::string& level) {
             const SampleKernels& kernels = *choose(level).sample;
             const SampleTreeInput in{span_of(variables), span_of(start), span_of(left), span_of(right), span_of(table),
                                      span_of(roots), span_of(free), span_of(nu), span_of(tables), windowed, tilt, budget,
                                      low, high};
             check_tree(in);
             unlocked([&] { new (self) SampleTree(in, kernels, threads); });
           })
      .def_prop_ro("impossible", &SampleTree::impossible)
      // The smallest count of the first root, and log-weights from there on.
      .def("root",
           [](const SampleTree& self) {
             const MessageView view = self.root();
             array_out out = new_array({(size_t)view.length});
             if (view.length) std::memcpy(out.data(), view.log_weight, (size_t)view.length * sizeof(double));
             return nb::make_tuple(view.low, out);
           })
      // Fills rows of `out` with samples.
      .def("draw",
           [](const SampleTree& self, bytes_out out, ints_in rows, key_in key, std::optional<ints_in> totals,
              int threads) {
             check_draw(self, out, rows, totals);
             unlocked([&] {
               self.draw(out.data(), (ptrdiff_t)out.shape(1), rows.data(), (ptrdiff_t)rows.shape(0), key_of(key),
                         totals ? totals->data() : nullptr, threads);
             });
           },
           "out"_a, "rows"_a, "key"_a, "totals"_a.none(), "threads"_a);
}

}  // namespace tallytree
