#include "bind/bindings.hpp"
#include "base/parallel.hpp"
#include "base/workspace.hpp"
#include "flat/kernels.hpp"

namespace tallytree {

const Kernels& choose(const std::string& level) {
  const Kernels* k = level.empty() ? best_kernels() : find_kernels(level.c_str());
  if (!k) throw nb::value_error(("instruction-set level not available on this machine: " + level).c_str());
  return *k;
}

void require(bool right, const char* message) {
  if (!right) throw nb::value_error(message);
}

void check_tables(const matrix_in& nu, const matrix_in& log_f) {
  require(log_f.shape(1) == nu.shape(1) + 1 && (log_f.shape(0) == 1 || log_f.shape(0) == nu.shape(0)),
          "log_f must have shape (1 or B, n + 1)");
}

void check_powers(const vector_in& coefficients, const vector_in& rates) {
  require(coefficients.size() == rates.size() && rates.size() > 0 && rates.size() <= (size_t)kMaxPowers,
          "coefficients and rates must have the same length, 1 to 8");
}

int threads_for(int threads, const matrix_in& nu) {
  return threads == 0 && nu.size() < (size_t(1) << 14) ? 1 : thread_count(threads);
}

array_out new_array(std::initializer_list<size_t> shape) {
  size_t n = 1;
  for (const size_t s : shape) n *= s;
  DoubleBlock* block = new_doubles(n);
  const nb::capsule owner(block, [](void* p) noexcept { free_doubles((DoubleBlock*)p); });
  return array_out(block->data, shape, owner);
}

}  // namespace tallytree
