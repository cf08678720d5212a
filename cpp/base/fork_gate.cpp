#include "base/fork_gate.hpp"

#include <mutex>
#include <new>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace tallytree {

namespace {

std::mutex gate;

#if defined(_WIN32)
bool at_fork(void (*)(), void (*)(), void (*)()) { return false; }
#else
bool at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
  if (pthread_atfork(before, in_parent, in_child)) throw std::bad_alloc();
  return true;
}
#endif

[[maybe_unused]] const bool guarded = at_fork([] { gate.lock(); }, [] { gate.unlock(); }, [] { gate.unlock(); });

}  // namespace

bool after_fork_in_child(void (*handler)()) { return at_fork(nullptr, nullptr, handler); }

ForkSafeLock::ForkSafeLock() { gate.lock(); }
ForkSafeLock::~ForkSafeLock() { gate.unlock(); }

}  // namespace tallytree
