// The sampler's kernel table of this level.
#include "sample/kernels.hpp"

namespace tallytree::TT_LEVEL {

void log_convolve(const double*, ptrdiff_t, const double*, ptrdiff_t, ptrdiff_t, ptrdiff_t, double*, double*);
void block_message(const double*, int, double*);
void block_table(const double*, int, BlockTable*);
void plain_table(const double*, int, BlockTable*);
void draw_block(const BlockTable*, const int32_t*, int, const SampleKey*, uint32_t, uint32_t, uint32_t, uint64_t*);
void write_block(const uint64_t*, int, const int64_t*, int, bool, uint8_t*, const int64_t*, ptrdiff_t);
void random_words(const SampleKey*, uint32_t, uint32_t, uint32_t, ptrdiff_t, uint64_t*);
void random_bits(const SampleKey*, uint32_t, uint32_t, uint32_t, ptrdiff_t, uint64_t*);
void split(const MessageView*, const MessageView*, const int32_t*, const uint64_t*, ptrdiff_t, int32_t*, int32_t*,
           int32_t*, double*);
void choose(const MessageView*, const uint64_t*, ptrdiff_t, int32_t*, double*);
ptrdiff_t draw_bernoulli(const double*, ptrdiff_t, double, const SampleKey*, uint32_t, uint32_t, uint32_t, uint64_t*,
                         uint8_t*);

extern const SampleKernels sample_kernels;
const SampleKernels sample_kernels = {
    log_convolve, block_message, block_table, plain_table, draw_block,
    write_block,  random_words,  random_bits, split,       choose,
    draw_bernoulli,
};

}  // namespace tallytree::TT_LEVEL
