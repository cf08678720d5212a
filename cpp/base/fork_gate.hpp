// Locks that a fork finds open.
//
// A lock that another thread holds while the process forks stays locked in the child for ever, and what it guards may be
// half changed. So a fork waits until no such lock is held, for which every holder passes through a gate.
#pragma once
#include <mutex>

namespace tallytree {

// Calls `handler` in the child after every fork. False where processes do not fork.
bool after_fork_in_child(void (*handler)());

void enter_fork_gate();
void leave_fork_gate();

// std::lock_guard for state that lives longer than a call. Sections are short and never wait for the interpreter.
class ForkSafeLock {
 public:
  explicit ForkSafeLock(std::mutex& mutex) : mutex_(mutex) {
    enter_fork_gate();
    mutex_.lock();
  }
  ~ForkSafeLock() {
    mutex_.unlock();
    leave_fork_gate();
  }
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;

 private:
  std::mutex& mutex_;
};

}  // namespace tallytree
