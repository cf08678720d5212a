#include "base/max_plus.hpp"

#include <algorithm>
#include <vector>

#include "base/constants.hpp"
#include "base/parallel.hpp"

namespace tallytree {

void max_plus_rows(const Kernels& kernels, ptrdiff_t rows, const double* a, ptrdiff_t na, const double* b, ptrdiff_t nb,
                   ptrdiff_t start, ptrdiff_t width, int threads, double* out) {
  constexpr ptrdiff_t kOutputs = 4096;       // of one task
  constexpr double kWorthThreads = 1 << 22;  // sums
  const ptrdiff_t blocks = (width + kOutputs - 1) / kOutputs;
  const int used = (double)(rows * na) * (double)width < kWorthThreads ? 1 : thread_count(threads);
  parallel_for(rows * blocks, used, [&](ptrdiff_t task) {
    const ptrdiff_t row = task / blocks, first = task % blocks * kOutputs, count = std::min(kOutputs, width - first);
    const ptrdiff_t shift = start + first - (na - 1), length = count + na - 1;
    std::vector<double> padded((size_t)length, -kInfinity);  // b[shift], b[shift + 1], ...
    const ptrdiff_t from = std::max<ptrdiff_t>(0, -shift), to = std::min(length, nb - shift);
    if (from < to) std::copy(b + row * nb + shift + from, b + row * nb + shift + to, padded.begin() + from);
    kernels.max_plus(a + row * na, na, padded.data(), count, out + row * width + first);
  });
}

}  // namespace tallytree
