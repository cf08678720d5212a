// Numbers in [0, 1) from a stream of their own, one after the other. Never included by kernel files.
#pragma once
#include "base/kernels.hpp"
#include "sample/kernels.hpp"

namespace tallytree {

class UnitStream {
 public:
  UnitStream(const Kernels& kernels, const SampleKey& key) : kernels_(kernels), key_(key) {}
  double next() {
    if (used_ == kWords) {
      kernels_.sample->random_words(&key_, kTagDecision, 0, group_++, kWords / 2, words_);
      used_ = 0;
    }
    return (double)(words_[used_++] >> 11) * 0x1p-53;
  }

 private:
  static constexpr int kWords = 32;
  const Kernels& kernels_;
  const SampleKey key_;
  uint32_t group_ = 0;
  int used_ = kWords;
  uint64_t words_[kWords];
};

}  // namespace tallytree
