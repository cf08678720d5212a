// Threads for independent tasks. Never included by kernel files.
#pragma once
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace tallytree {

inline int resolve_threads(int threads) {
  if (threads > 0) return threads;
  const unsigned cores = std::thread::hardware_concurrency();
  return cores ? (int)cores : 1;
}

// Calls task(i) for every i < tasks. Tasks are fixed beforehand and write to places of their own, so the
// result does not depend on the number of threads.
template <class Task>
void parallel_for(ptrdiff_t tasks, int threads, const Task& task) {
  if (threads > tasks) threads = (int)tasks;
  if (threads <= 1) {
    for (ptrdiff_t i = 0; i < tasks; i++) task(i);
    return;
  }
  std::atomic<ptrdiff_t> next{0};
  auto work = [&] {
    for (ptrdiff_t i; (i = next.fetch_add(1)) < tasks;) task(i);
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; t++) helpers.emplace_back(work);
  work();
  for (auto& helper : helpers) helper.join();
}

}  // namespace tallytree
