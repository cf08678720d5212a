// Runs independent tasks on several threads.
#pragma once
#include <cstddef>
#include <functional>

namespace tallytree {

// Number of threads to use when the caller asks for `threads` (0: all cores).
int thread_count(int threads);

// Calls task(index, thread) for every index below `tasks`, thread < threads. Tasks are handed out in order; which
// thread gets which is not fixed, so a task's result must not depend on it. The first exception is rethrown.
void run_tasks(size_t tasks, int threads, const std::function<void(size_t, int)>& task);

}  // namespace tallytree
