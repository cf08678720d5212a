// The interpreter's lock, given up while the engine works.
//
// A thread that wants the lock back while the interpreter ends is ended by it on the spot (before Python 3.14), and the
// unwinding of C++ frames turns that into an abort. So threads that come back then do not ask: they sleep until the
// process is gone.
#pragma once
#include <nanobind/nanobind.h>

#include "base/interrupt.hpp"

namespace tallytree {

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

}  // namespace tallytree
