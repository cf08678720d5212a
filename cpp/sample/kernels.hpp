// The kernels of the sampler, one table per instruction-set level.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/streams.hpp"
#include "base/worker.hpp"

namespace tallytree {

constexpr int kBlock = 64;       // variables of a block at most, and samples of a group: one machine word
constexpr int kThresholds = 64;  // entries of a row of thresholds; the count 64 can occur only before the first variable

// P(variable i on | r of the variables i, i + 1, ... on). `high` holds the 15 leading bits, 2^15 for "always".
struct BlockTable {
  alignas(64) uint16_t high[kBlock][kThresholds];
  double on[kBlock][kBlock + 8];
  int n;
  bool counted;  // false: independent variables, nothing to count down
};

// A message: log-weights of the counts low, low + 1, ..., low + length - 1.
struct MessageView {
  const double* log_weight;
  int64_t low;
  int64_t length;
};

struct SampleKernels {
  // log sum_i exp(a[i] + b[k - i]) for k = first..last; the worker is one for vectors of na + nb entries.
  void (*log_convolve)(const double* a, ptrdiff_t na, const double* b, ptrdiff_t nb, ptrdiff_t first, ptrdiff_t last,
                       double* out, Worker& worker);
  // log P(r of n variables on), r = 0..n, n <= 64.
  void (*block_message)(const double* nu, int n, double* out);
  void (*block_table)(const double* nu, int n, BlockTable* table);
  void (*independent_table)(const double* nu, int n, BlockTable* table);
  // One word per sample, bit i for variable i; counts (lanes <= 64) are ignored where the table does not count.
  void (*draw_block)(const BlockTable* table, const int32_t* counts, int lanes, const SampleKey* key, uint32_t tag,
                     uint32_t id, uint32_t group, uint64_t* words);
  // Bits to bytes 0 and 1 at out + row * stride + variable.
  void (*write_block)(const uint64_t* words, int lanes, const int64_t* variables, int n, bool contiguous, uint8_t* out,
                      const int64_t* rows, ptrdiff_t stride);
  // `calls` (a multiple of 16) calls of the generator, two words each.
  void (*random_words)(const SampleKey* key, uint32_t tag, uint32_t id, uint32_t group, ptrdiff_t calls, uint64_t* out);
  // 64 random bits for every sample of the groups first, first + 1, ...
  void (*random_bits)(const SampleKey* key, uint32_t tag, uint32_t id, uint32_t first_group, ptrdiff_t samples,
                      uint64_t* out);
  // left[s] given parent[s], weights left(i) right(parent - i); right[s] gets the rest. scratch: split_scratch doubles.
  void (*split)(const MessageView* left, const MessageView* right, const int32_t* parent, const uint64_t* bits,
                ptrdiff_t samples, int32_t* left_out, int32_t* right_out, int32_t* order, double* scratch);
  // Counts from one message.
  void (*pick_counts)(const MessageView* message, const uint64_t* bits, ptrdiff_t samples, int32_t* out, double* scratch);
  // n independent variables of log-odds nu + tilt; returns how many are on. words: room for n rounded up to 32.
  ptrdiff_t (*draw_bernoulli)(const double* nu, ptrdiff_t n, double tilt, const SampleKey* key, uint32_t tag,
                              uint32_t id, uint32_t group, uint64_t* words, uint8_t* out);
};

static inline ptrdiff_t split_scratch(ptrdiff_t length) { return 3 * length + 128; }
// int32 entries of `order`.
static inline ptrdiff_t split_order(ptrdiff_t samples, ptrdiff_t range) { return samples + range + 16; }

}  // namespace tallytree
