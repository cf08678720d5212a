#include "base/fork_gate.hpp"

#include <new>
#include <shared_mutex>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace tallytree {

#if defined(_WIN32)

bool after_fork_in_child(void (*)()) { return false; }
void enter_fork_gate() {}
void leave_fork_gate() {}

#else

namespace {

// Holders of locks share it; a fork takes it for itself.
struct Gate {
  alignas(std::shared_mutex) unsigned char room[sizeof(std::shared_mutex)];

  Gate() {
    renew();
    if (pthread_atfork([] { gate().mutex().lock(); }, [] { gate().mutex().unlock(); }, [] { gate().renew(); }))
      throw std::bad_alloc();
  }
  void renew() { new (room) std::shared_mutex; }  // the child's only thread may not be known to the old one
  std::shared_mutex& mutex() { return *reinterpret_cast<std::shared_mutex*>(room); }

  static Gate& gate() {
    static Gate* the = new Gate;  // outlives every array that Python may still hold at exit
    return *the;
  }
};

}  // namespace

bool after_fork_in_child(void (*handler)()) {
  if (pthread_atfork(nullptr, nullptr, handler)) throw std::bad_alloc();
  return true;
}

void enter_fork_gate() { Gate::gate().mutex().lock_shared(); }
void leave_fork_gate() { Gate::gate().mutex().unlock_shared(); }

#endif

}  // namespace tallytree
