#include "base/gil.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#ifdef Py_LIMITED_API
#include <dlfcn.h>
#endif

namespace tallytree {

namespace {

std::atomic<bool> near_the_end{false};
std::atomic<int> asking{0};  // threads that wait for the lock

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

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

// Handlers that `atexit` calls after ours may still wait for this thread: it goes on if the end does not come.
void sleep_through_the_end() {
  for (int i = 0; i < 200; i++) {
    while (ending()) nap();
    nap();
  }
}

}  // namespace

GilReleased::~GilReleased() {
  asking++;
  if (near_the_end) {
    asking--;
    sleep_through_the_end();
    asking++;
  }
  PyEval_RestoreThread(state_);
  asking--;
}

void watch_for_the_end() {
  nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function([] {
    near_the_end = true;
    PyThreadState* state = PyEval_SaveThread();  // those that asked before get it now
    while (asking > 0) nap();
    PyEval_RestoreThread(state);
  }));
}

}  // namespace tallytree
