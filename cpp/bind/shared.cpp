#include <new>

#include "bind/bindings.hpp"
#include "base/memory.hpp"

namespace tallytree {

const Kernels& choose(const std::string& level) {
  const Kernels* k = level.empty() ? best_kernels() : find_kernels(level.c_str());
  if (!k) throw nb::value_error(("instruction-set level not available on this machine: " + level).c_str());
  return *k;
}

array_out new_array(std::initializer_list<size_t> shape) {
  size_t n = 1;
  for (const size_t s : shape) n *= s;
  double* data = new_doubles(n);
  if (!data) throw std::bad_alloc();
  const nb::capsule owner(data, [](void* p) noexcept { free_doubles((double*)p); });
  return array_out(data, shape, owner);
}

}  // namespace tallytree
