// The interpreter's lock, given up while the engine works.
//
// A thread that wants the lock back while the interpreter ends is ended by it on the spot (before Python 3.14), and the
// unwinding of C++ frames turns that into an abort. So threads that come back then do not ask: they sleep until the
// process is gone.
#pragma once
#include <nanobind/nanobind.h>

namespace tallytree {

class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

// Registers with `atexit`, so that it is known when the end is near.
void watch_for_the_end();

}  // namespace tallytree
