// What is made when it is first asked for, and kept: no lock, so that a fork finds nothing locked.
#pragma once
#include <atomic>
#include <memory>

namespace tallytree {

// What `place` holds; `make` gives a unique_ptr. Of threads that make it at the same time one succeeds, the others' is thrown away.
template <class T, class Make>
T& made_once(std::atomic<T*>& place, const Make& make) {
  if (T* known = place.load(std::memory_order_acquire)) return *known;
  std::unique_ptr<T> made = make();
  T* before = nullptr;
  return place.compare_exchange_strong(before, made.get(), std::memory_order_acq_rel) ? *made.release() : *before;
}

}  // namespace tallytree
