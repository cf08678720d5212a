// Names of streams of random numbers: plain data, shared by drivers and kernels.
#pragma once
#include <cstdint>

namespace tallytree {

// 128 random bits. Streams are numbered: (tag, id, group) names one, whatever thread uses it and when.
struct SampleKey {
  uint32_t word[4];
};
enum SampleTag : uint32_t {
  kTagBlock = 1, kTagRoot = 2, kTagSplit = 3, kTagTie = 4, kTagIndependent = 5, kTagLane = 6, kTagHalf = 7, kTagDecision = 8
};

}  // namespace tallytree
