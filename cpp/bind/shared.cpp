#include "bind/bindings.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "base/parallel.hpp"
#include "base/workspace.hpp"
#include "flat/kernels.hpp"

#ifdef Py_LIMITED_API
#include <dlfcn.h>
#endif

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

// -- the interpreter's lock ----------------------------------------------------------------------------------------

namespace {

std::atomic<bool> near_the_end{false};
std::atomic<int> asking{0};  // threads that wait for the lock

constexpr std::chrono::milliseconds kBetweenLooks(200);

#ifdef Py_LIMITED_API
// The stable ABI has the question from Python 3.13 on only: it is looked up in the interpreter that runs.
using Question = int (*)();

Question find_question() {
  void* found = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
  if (found == nullptr) found = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
  return reinterpret_cast<Question>(found);
}

bool ending() {
  static const Question question = find_question();
  return question != nullptr && question();
}
#elif PY_VERSION_HEX >= 0x030D0000
bool ending() { return Py_IsFinalizing(); }
#else
bool ending() { return _Py_IsFinalizing(); }
#endif

// Holds back the end while a thread asks for the lock.
class Asking {
 public:
  Asking() { asking++; }
  ~Asking() {
    asking--;
    asking.notify_all();
  }
};

thread_local GilReleased* released = nullptr;
thread_local std::chrono::steady_clock::time_point next_look;

}  // namespace

GilReleased::GilReleased() : outer_(released), state_(PyEval_SaveThread()) {
  released = this;
  next_look = std::chrono::steady_clock::now() + kBetweenLooks;
}

GilReleased::~GilReleased() {
  released = outer_;
  // Handlers that `atexit` calls after ours may still wait for this thread: it goes on if the end does not come.
  if (near_the_end) do std::this_thread::sleep_for(kBetweenLooks);
    while (ending());
  const Asking here;
  PyEval_RestoreThread(state_);
}

void let_signals_through() {
  leave_failed_tasks();
  if (!released || near_the_end || std::chrono::steady_clock::now() < next_look) return;
  std::exception_ptr raised;
  {
    const Asking here;
    PyEval_RestoreThread(released->state_);
    if (PyErr_CheckSignals() != 0) raised = std::make_exception_ptr(nanobind::python_error());
    released->state_ = PyEval_SaveThread();
  }
  next_look = std::chrono::steady_clock::now() + kBetweenLooks;
  if (raised) std::rethrow_exception(raised);
}

void watch_for_the_end() {
  after_fork_in_child([] { asking = 0; });  // threads that asked are not in the child
  nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function([] {
    near_the_end = true;
    PyThreadState* state = PyEval_SaveThread();  // those that asked before get it now
    for (int n; (n = asking) > 0;) asking.wait(n);
    PyEval_RestoreThread(state);
  }));
}

}  // namespace tallytree
