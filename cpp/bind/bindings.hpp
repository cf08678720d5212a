// What the bindings share: array types, new arrays, and the choice of the instruction-set level.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/kernels.hpp"
#include "base/worker.hpp"

namespace tallytree {

class TreePlan;

namespace nb = nanobind;
using namespace nb::literals;

template <class T, int dims>
using array_in = nb::ndarray<const T, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;
template <class T>
using vector_of = array_in<T, 1>;
using vector_in = vector_of<double>;
using matrix_in = array_in<double, 2>;
using cube_in = array_in<double, 3>;
using key_in = nb::ndarray<const uint32_t, nb::shape<4>, nb::c_contig, nb::device::cpu>;  // 128 bits
template <class T, int dims>
using array_to_fill = nb::ndarray<T, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;
using array_out = nb::ndarray<nb::numpy, double>;
template <class T>
using vector_out = nb::ndarray<nb::numpy, T>;

// `level` is empty (best available) or names a level; the Python side has checked the name.
const Kernels& choose(const std::string& level);

// A ValueError where arrays do not fit.
void require(bool right, const char* message);
// Tables (1 or B, n + 1) for log-odds (B, n); coefficients and rates of one sum of powers.
void check_tables(const matrix_in& nu, const matrix_in& log_f);
void check_powers(const vector_in& coefficients, const vector_in& rates);
// Log-odds (B, n) and packed tables (1 or B, T) of a tree.
void check_models(const TreePlan& plan, const matrix_in& nu, const matrix_in& tables);
struct TreeInputs inputs_of(const matrix_in& nu, const matrix_in& tables);

// Where row b begins of an array with one row, or one per model.
template <class Array>
auto row_or_only(const Array& rows, size_t b) {
  return rows.data() + (rows.shape(0) == 1 ? 0 : b * (rows.size() / rows.shape(0)));
}
// How far rows of tables are apart: 0 if all models share one.
inline ptrdiff_t stride_of(const matrix_in& tables) { return tables.shape(0) == 1 ? 0 : (ptrdiff_t)tables.shape(1); }

// Threads for flat models. Asking for the number of cores takes longer than a small one.
int threads_for(int threads, const matrix_in& nu);

// The interpreter's lock, given up while the engine works.
//
// A thread that wants the lock back while the interpreter ends is ended by it on the spot (before Python 3.14), and the
// unwinding of C++ frames turns that into an abort. So threads that come back then do not ask: they sleep until the
// process is gone.
class GilReleased {
 public:
  GilReleased();
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  friend void let_signals_through();
  GilReleased* outer_;  // of the same thread: a handler of signals may call the engine
  PyThreadState* state_;
};

// Registers with `atexit`, so that it is known when the end is near.
void watch_for_the_end();

// Does `work` without the interpreter's lock.
template <class Work>
auto unlocked(const Work& work) {
  const GilReleased release;
  return work();
}

// Arrays that Python will own, not initialised.
array_out new_array(std::initializer_list<size_t> shape);

template <class T>
vector_out<T> new_array_of(size_t n) {
  T* data = new T[n > 0 ? n : 1];
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return vector_out<T>(data, {n}, owner);
}

}  // namespace tallytree
