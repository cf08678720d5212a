// A pool of threads that live as long as the process and sleep between calls.
//
// A call publishes a job and starts on it at once; idle helpers join it while it has tasks left. The caller never waits
// for a helper that has not joined, so nested calls and calls from several threads cannot block one another, and a pool
// without helpers is only slower.
#include "base/parallel.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>

#if !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#endif

namespace tallytree {

namespace {

struct Job;
thread_local const Job* at_work = nullptr;  // the job of this thread's task
constexpr std::chrono::milliseconds kBetweenLooks(100);

struct Job {
  const TaskView task;
  const size_t tasks;
  const int helpers;  // wanted
  std::atomic<size_t> next{0};
  // Guarded by the pool:
  int joined = 0, active = 0;
  std::exception_ptr failure{};
  std::condition_variable idle{};  // nobody is at work on it any more
  Job* older = nullptr;
  const Job* outer = at_work;  // whose task made this job
  std::atomic<bool> failed{false};

  bool open() const { return joined < helpers && next.load(std::memory_order_relaxed) < tasks; }
};

// Signals are for the threads of the interpreter: a new thread inherits the mask of the one that makes it.
class SignalsBlocked {
#if !defined(_WIN32)
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
#endif
};

// Address space that the one who hires sets aside for a new helper to get ready in, returned just before it is needed: a
// thread without an arena of its own maps pages for what it allocates.
class Reserve {
#if defined(_WIN32)
 public:
  bool held() const { return true; }
  void release() {}
#else
 public:
  bool held() const { return pages_ != MAP_FAILED; }
  void release() { munmap(pages_, SIZE); }

 private:
  static constexpr size_t SIZE = 1 << 18;
  void* pages_ = mmap(nullptr, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#endif
};

struct Hiring {
  Reserve reserve{};
  bool ready = false;  // guarded by the pool
};

class Pool {
 public:
  void run(Job& job) {
    {
      std::unique_lock<std::mutex> lock(guard_);
      hire(job.helpers, lock);
      job.older = newest_;
      newest_ = &job;
    }
    for (int h = 0; h < job.helpers; h++) wake_.notify_one();
    work(job, 0);
    std::unique_lock<std::mutex> lock(guard_);
    Job** at = &newest_;
    while (*at != &job) at = &(*at)->older;
    *at = job.older;  // nobody joins from here on
    while (!job.idle.wait_for(lock, kBetweenLooks, [&] { return job.active == 0; })) {
      lock.unlock();
      attempt(job, [] { let_signals_through(); });
      lock.lock();
    }
  }

 private:
  // As many helpers as asked for, or as many as the system grants.
  void hire(int helpers, std::unique_lock<std::mutex>& lock) {
    if (hired_ >= helpers) return;
    [[maybe_unused]] const SignalsBlocked blocked;
    while (hired_ < helpers) {
      Hiring hiring;
      if (!hiring.reserve.held()) return;
      try {
        std::thread([this, &hiring] { serve(hiring); }).detach();
      } catch (...) {  // a limit on processes or memory
        hiring.reserve.release();
        return;
      }
      hired_++;
      ready_.wait(lock, [&] { return hiring.ready; });
    }
  }

  void serve(Hiring& hiring) noexcept {
    hiring.reserve.release();
    prepare_exceptions();
    std::unique_lock<std::mutex> lock(guard_);
    hiring.ready = true;
    ready_.notify_all();
    for (;;) {
      Job* job = newest_;
      while (job && !job->open()) job = job->older;
      if (!job) {
        wake_.wait(lock);
        continue;
      }
      const int thread = ++job->joined;
      job->active++;
      lock.unlock();
      work(*job, thread);
      lock.lock();
      if (--job->active == 0) job->idle.notify_one();
    }
  }

  void work(Job& job, int thread) noexcept {
    const Job* before = at_work;
    at_work = &job;
    attempt(job, [&] {
      for (size_t i; (i = job.next.fetch_add(1, std::memory_order_relaxed)) < job.tasks;) {
        job.task(i, thread);
        let_signals_through();
      }
    });
    at_work = before;
  }

  template <class Part>
  void attempt(Job& job, const Part& part) noexcept {
    try {
      part();
    } catch (...) {
      job.next = job.tasks;
      const std::lock_guard<std::mutex> lock(guard_);
      if (!job.failure) job.failure = std::current_exception();
      job.failed = true;
    }
  }

  std::mutex guard_;
  std::condition_variable wake_, ready_;
  Job* newest_ = nullptr;
  int hired_ = 0;
};

// Never destroyed, so that helpers may sleep while the process ends. A forked child has none of its parent's threads,
// and its copy of the pool may be locked for ever: it gets a new one.
std::atomic<Pool*> the_pool{nullptr};

Pool& pool() {
  return made_once(the_pool, [] {
    static const bool registered = after_fork_in_child([] { the_pool.store(nullptr); });
    (void)registered;
    return std::make_unique<Pool>();
  });
}

}  // namespace

void leave_failed_tasks() {
  for (const Job* job = at_work; job; job = job->outer)
    if (job->failed.load(std::memory_order_relaxed)) throw std::runtime_error("another task failed");
}

void prepare_exceptions() {
  [[maybe_unused]] volatile int seen = std::uncaught_exceptions();  // volatile: it is declared free of side effects
}

int thread_count(int threads) {
  if (threads > 0) return threads;
  return (int)std::max(1u, std::thread::hardware_concurrency());
}

void run_tasks(size_t tasks, int threads, TaskView task) {
  prepare_exceptions();
  threads = (int)std::min<size_t>((size_t)std::max(threads, 1), tasks);
  if (threads <= 1) {
    for (size_t i = 0; i < tasks; i++) {
      task(i, 0);
      let_signals_through();
    }
    return;
  }
  Job job{task, tasks, threads - 1};
  pool().run(job);
  if (job.failure) std::rethrow_exception(job.failure);
}

// -- forks --------------------------------------------------------------------------------------------------------

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
