// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, 2011): a counter-based generator, sixteen calls at a time.
//
// The counter is (id, group, call, tag); 64 of the 128 key bits are Philox's key, the others are added to the counter.
// Output words lie in memory in the same order at every instruction-set level.
#pragma once
#include "base/simd.hpp"
#include "base/streams.hpp"

namespace tallytree::TT_LEVEL {

typedef uint64_t uvec __attribute__((vector_size(8 * TT_LANES)));

// Products of the low halves. Clang sees that one instruction does it; GCC is told, by its builtins, because the header of
// the intrinsics takes longer to read than these files take to compile.
static inline uvec mul32(uvec a, uvec b) {
#if defined(__SSE2__) && !defined(__clang__)
  typedef int32_t halves __attribute__((vector_size(8 * TT_LANES)));
#if TT_LANES == 8
  typedef long long whole __attribute__((vector_size(8 * TT_LANES)));
  return (uvec)__builtin_ia32_pmuludq512_mask((halves)a, (halves)b, (whole)a, -1);
#elif TT_LANES == 4
  return (uvec)__builtin_ia32_pmuludq256((halves)a, (halves)b);
#else
  return (uvec)__builtin_ia32_pmuludq128((halves)a, (halves)b);
#endif
#else
  const uint64_t low = 0xffffffffu;
  return (a & low) * (b & low);
#endif
}

constexpr int kCalls = 16;  // calls of a batch: 32 words of 64 bits

// Word p of call j of a batch is out[16 p + j], p = 0, 1. `calls` is a multiple of 16.
static inline void philox(const SampleKey& key, uint32_t tag, uint32_t id, uint32_t group, ptrdiff_t calls, uint64_t* out) {
  constexpr int kSide = kLanes == 2 ? 2 : 16 / kLanes < 4 ? 16 / kLanes : 4;  // vectors side by side hide latency
  const uint64_t low = 0xffffffffu;
  uvec index;
  for (int j = 0; j < kLanes; j++) index[j] = (uint64_t)j;
  for (ptrdiff_t first = 0; first < calls; first += kCalls) {
    uint64_t* to = out + 2 * first;
    for (int part = 0; part < kCalls; part += kSide * kLanes) {
      uvec a[kSide], b[kSide], c[kSide], d[kSide];
      for (int s = 0; s < kSide; s++) {
        a[s] = uvec{} + id;
        b[s] = uvec{} + group;
        c[s] = (index + (uint64_t)(first + part + s * kLanes)) ^ (uint64_t)key.word[2];
        d[s] = uvec{} + (tag ^ key.word[3]);
      }
      uint32_t k0 = key.word[0], k1 = key.word[1];
#pragma GCC unroll 10
      for (int round = 0; round < 10; round++) {
        const uvec key0 = uvec{} + k0, key1 = uvec{} + k1;
#pragma GCC unroll 4
        for (int s = 0; s < kSide; s++) {
          // Only low halves count; what the products leave above them is ignored by the next product.
          const uvec p = mul32(a[s], uvec{} + (uint64_t)0xD2511F53u), q = mul32(c[s], uvec{} + (uint64_t)0xCD9E8D57u);
          a[s] = (q >> 32) ^ b[s] ^ key0;
          b[s] = q;
          c[s] = (p >> 32) ^ d[s] ^ key1;
          d[s] = p;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
      }
      for (int s = 0; s < kSide; s++) {
        const uvec one = (a[s] & low) | (b[s] << 32), two = (c[s] & low) | (d[s] << 32);
        std::memcpy(to + part + s * kLanes, &one, sizeof one);
        std::memcpy(to + kCalls + part + s * kLanes, &two, sizeof two);
      }
    }
  }
}

static inline double unit_interval(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

}  // namespace tallytree::TT_LEVEL
