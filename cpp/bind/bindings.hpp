// What the bindings share: array types, new arrays, and the choice of the instruction-set level.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <string>

#include "base/gil.hpp"
#include "base/kernels.hpp"

namespace tallytree {

namespace nb = nanobind;

template <class T, int dims>
using array_in = nb::ndarray<const T, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;
using vector_in = array_in<double, 1>;
using matrix_in = array_in<double, 2>;
using cube_in = array_in<double, 3>;
using array_out = nb::ndarray<nb::numpy, double>;

// `level` is empty (best available) or names a level; the Python side has checked the name.
const Kernels& choose(const std::string& level);

// A ValueError where arrays do not fit.
void require(bool right, const char* message);
// Tables (1 or B, n + 1) for log-odds (B, n); coefficients and rates of one sum of powers.
void check_tables(const matrix_in& nu, const matrix_in& log_f);
void check_powers(const vector_in& coefficients, const vector_in& rates);

// Threads for flat models. Asking for the number of cores takes longer than a small one.
int threads_for(int threads, const matrix_in& nu);

// Arrays that Python will own, not initialised.
array_out new_array(std::initializer_list<size_t> shape);

template <class T>
nb::ndarray<nb::numpy, T> new_array_of(size_t n) {
  T* data = new T[n > 0 ? n : 1];
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T>(data, {n}, owner);
}

}  // namespace tallytree
