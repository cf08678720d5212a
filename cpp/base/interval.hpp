#pragma once
#include <cstdint>

namespace tallytree {

// The counts lo..hi; empty when lo > hi.
struct Interval {
  int32_t lo, hi;
};

}  // namespace tallytree
