// Independent tasks on several threads: the one place where threads are made. Never included by kernel files.
//
// Tasks are fixed beforehand and write to places of their own; which thread gets which task is not fixed. So results do
// not depend on the number of threads, and a machine that cannot give as many threads as asked for is only slower.
#pragma once
#include <atomic>
#include <memory>

#include "base/worker.hpp"

namespace tallytree {

// Borrows a callable task(index, thread); valid while the callable is.
class TaskView {
 public:
  template <class Task>
  TaskView(const Task& task)  // NOLINT: meant to convert
      : task_(&task), call_([](const void* t, size_t index, int thread) { (*(const Task*)t)(index, thread); }) {}
  void operator()(size_t index, int thread) const { call_(task_, index, thread); }

 private:
  const void* task_;
  void (*call_)(const void*, size_t, int);
};

// The first exception of a thread makes the runtime allocate the thread's own record of exceptions, and the C library
// ends the process where that fails: when memory is short, which is when exceptions are thrown. This does it before.
void prepare_exceptions();

// Number of threads to use when the caller asks for `threads` (0: all cores).
int thread_count(int threads);

// Calls task(index, thread) for every index below `tasks` and returns when all are done; thread < threads. The calling
// thread takes part as thread 0. May be called from within a task and from several threads at once. After an exception
// no further tasks are begun, and the first one is rethrown here. Between tasks, and while it waits for the others, the calling
// thread lets signals through.
void run_tasks(size_t tasks, int threads, TaskView task);

// Throws if the tasks that this thread helps with are not wanted any more, because one of them has failed.
void leave_failed_tasks();

// The same for task(index), where threads need no memory of their own.
template <class Task>
void parallel_for(ptrdiff_t tasks, int threads, const Task& task) {
  if (threads <= 1 || tasks <= 1) {
    for (ptrdiff_t i = 0; i < tasks; i++) {
      task(i);
      let_signals_through();
    }
  } else {
    run_tasks((size_t)tasks, threads, [&](size_t i, int) { task((ptrdiff_t)i); });
  }
}

// Calls part(from, length) for the parts of n things that are done together; all but the last have the given length.
template <class Part>
void over_parts(ptrdiff_t n, ptrdiff_t length, int threads, const Part& part) {
  parallel_for((n + length - 1) / length, threads, [&](ptrdiff_t p) {
    part(p * length, n - p * length < length ? n - p * length : length);
  });
}

// The lock of state that lives longer than a call: a fork finds it open.
//
// A lock that another thread holds while the process forks stays locked in the child for ever, and what it guards may be half
// changed. So a fork waits for the lock. There is one for everything: what it guards is short work that never waits for the
// interpreter.

// Calls `handler` in the child after every fork. False where processes do not fork.
bool after_fork_in_child(void (*handler)());

class ForkSafeLock {
 public:
  ForkSafeLock();
  ~ForkSafeLock();
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;
};

// What is made when it is first asked for, and kept: no lock, so that a fork finds nothing locked.

// What `place` holds; `make` gives a unique_ptr. Of threads that make it at the same time one succeeds, the others' is thrown away.
template <class T, class Make>
T& made_once(std::atomic<T*>& place, const Make& make) {
  if (T* known = place.load(std::memory_order_acquire)) return *known;
  std::unique_ptr<T> made = make();
  T* before = nullptr;
  return place.compare_exchange_strong(before, made.get(), std::memory_order_acq_rel) ? *made.release() : *before;
}

}  // namespace tallytree
