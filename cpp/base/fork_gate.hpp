// The lock of state that lives longer than a call: a fork finds it open.
//
// A lock that another thread holds while the process forks stays locked in the child for ever, and what it guards may be half
// changed. So a fork waits for the lock. There is one for everything: what it guards is short work that never waits for the
// interpreter.
#pragma once

namespace tallytree {

// Calls `handler` in the child after every fork. False where processes do not fork.
bool after_fork_in_child(void (*handler)());

class ForkSafeLock {
 public:
  ForkSafeLock();
  ~ForkSafeLock();
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;
};

}  // namespace tallytree
