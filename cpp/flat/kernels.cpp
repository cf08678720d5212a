// The flat solver's kernel table of this level.
#include "flat/kernels.hpp"

#include "base/kernel_table.hpp"

#define TT_FLAT_KERNELS(EACH) \
  EACH(chebyshev_sums) EACH(small_deviation_sums) EACH(multiply_factors) EACH(transform) EACH(inverse) \
  EACH(leave_one_out) EACH(mixture_answers) EACH(marginals_plain) EACH(messages_plain) EACH(tilted_moments) \
  EACH(exp_table) EACH(max_table) EACH(direct_scratch) EACH(direct) EACH(single_scratch) EACH(single) \
  EACH(single_pmf) EACH(messages_from_ratio) EACH(power_sums) EACH(power_answers) \
  EACH(chain_scratch) EACH(chain) EACH(tangent_direct_scratch) EACH(tangent_direct) EACH(weighted_sums) \
  EACH(weighted_powers) EACH(tangent_apply) EACH(tangent_apply_plain)

namespace tallytree::TT_LEVEL {

TT_KERNEL_TABLE(FlatKernels, flat_kernels, TT_FLAT_KERNELS)

}  // namespace tallytree::TT_LEVEL
