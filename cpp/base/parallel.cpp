#include "base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tallytree {

int thread_count(int threads) {
  if (threads > 0) return threads;
  return std::max(1u, std::thread::hardware_concurrency());
}

void run_tasks(size_t tasks, int threads, const std::function<void(size_t, int)>& task) {
  threads = (int)std::min<size_t>((size_t)std::max(threads, 1), tasks);
  if (threads <= 1) {
    for (size_t i = 0; i < tasks; i++) task(i, 0);
    return;
  }
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex guard;
  const auto work = [&](int thread) {
    try {
      for (size_t i; (i = next.fetch_add(1)) < tasks;) task(i, thread);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(guard);
      if (!failure) failure = std::current_exception();
      next = tasks;
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; t++) others.emplace_back(work, t);
  work(0);
  for (std::thread& t : others) t.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tallytree
