// Python bindings of what best configurations need.
#include <algorithm>
#include <limits>
#include <memory>

#include "base/parallel.hpp"
#include "bind/bindings.hpp"

namespace tallytree {

namespace {

constexpr ptrdiff_t kOutputs = 4096;  // of one task
constexpr ptrdiff_t kWorthThreads = 1 << 22;

}  // namespace

void bind_maximize(nb::module_& m) {
  m.def("max_plus", [](matrix_in a, matrix_in b, int64_t start, int64_t width, int threads, const std::string& level) {
    const ptrdiff_t rows = (ptrdiff_t)a.shape(0), na = (ptrdiff_t)a.shape(1), nb_ = (ptrdiff_t)b.shape(1);
    require((ptrdiff_t)b.shape(0) == rows && na > 0 && start >= 0 && width >= 0,
            "a and b must have as many rows, a at least one column, start and width must not be negative");
    const Kernels& k = choose(level);
    array_out out = new_array({(size_t)rows, (size_t)width});
    unlocked([&] {
      const ptrdiff_t blocks = (width + kOutputs - 1) / kOutputs;
      const int used = rows * na * width < kWorthThreads ? 1 : thread_count(threads);
      parallel_for(rows * blocks, used, [&](ptrdiff_t task) {
        const ptrdiff_t row = task / blocks, first = task % blocks * kOutputs;
        const ptrdiff_t count = std::min(kOutputs, (ptrdiff_t)width - first), length = count + na - 1;
        // b[start + first - (na - 1) + x], -inf beyond its ends.
        const std::unique_ptr<double[]> c(new double[(size_t)length]);
        const ptrdiff_t shift = (ptrdiff_t)start + first - (na - 1);
        const double* from = b.data() + row * nb_;
        for (ptrdiff_t x = 0; x < length; x++)
          c[x] = x + shift >= 0 && x + shift < nb_ ? from[x + shift] : -std::numeric_limits<double>::infinity();
        k.max_plus(a.data() + row * na, na, c.get(), count, out.data() + row * width + first);
      });
    });
    return out;
  }, "a"_a, "b"_a, "start"_a, "width"_a, "threads"_a = 0, "level"_a = "",
        "Row by row, out[t] = max_i a[i] + b[start + t - i] for t < width; -inf where there is no such i.");
}

}  // namespace tallytree
