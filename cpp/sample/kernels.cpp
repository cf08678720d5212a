// The sampler's kernel table of this level.
#include "sample/kernels.hpp"

#include "base/kernel_table.hpp"

#define TT_SAMPLE_KERNELS(EACH) \
  EACH(log_convolve) EACH(block_message) EACH(block_table) EACH(independent_table) EACH(draw_block) EACH(write_block) \
  EACH(random_words) EACH(random_bits) EACH(split) EACH(pick_counts) EACH(draw_bernoulli)

namespace tallytree::TT_LEVEL {

TT_KERNEL_TABLE(SampleKernels, sample_kernels, TT_SAMPLE_KERNELS)

}  // namespace tallytree::TT_LEVEL
