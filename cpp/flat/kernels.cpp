// The flat solver's kernel table of this level.
#include "flat/kernels.hpp"

namespace tallytree::TT_LEVEL {

void chebyshev_sums(const double*, ptrdiff_t, double, int, FlatTotals*, double*);
ptrdiff_t small_deviation_sums(const double*, ptrdiff_t, double, double*, double*, double*, double*);
void multiply_factors(const double*, ptrdiff_t, const double*, const double*, int, double*, double*);
void transform(const Turns&, const double*, ptrdiff_t, double*, double*);
void inverse(const Turns&, const double*, const double*, ptrdiff_t, double*);
void leave_one_out(const double*, const double*, int, const double*, const double*, const double*, const double*,
                   const double*, int, double*, double*, double*);
void marginals(const double*, ptrdiff_t, const FlatMixtureView*, double*);
void messages(const double*, ptrdiff_t, const FlatMixtureView*, double*);
void marginals_plain(const double*, ptrdiff_t, double, const double*, int, double*);
void messages_plain(const double*, ptrdiff_t, double, const double*, int, double*);
void tilted_moments(const double*, const double*, const double*, ptrdiff_t, double, double, double*);
void tilted_mean(const double*, const double*, ptrdiff_t, double, double*);
void exp_table(const double*, ptrdiff_t, double, double, double, double*);
double max_table(const double*, ptrdiff_t, double, double);
ptrdiff_t direct_scratch(ptrdiff_t);
void direct(const double* const*, const double* const*, const double*, int, ptrdiff_t, double*, DirectTotals*,
            double* const*, double* const*);
ptrdiff_t alone_scratch(ptrdiff_t);
void alone(const double*, const double*, double, ptrdiff_t, double*, DirectTotals*, double*, double*);
double alone_pmf(const double*, double, ptrdiff_t, double*, double*);
void messages_from_ratio(const double*, ptrdiff_t, double, double*);
void power_sums(const double*, ptrdiff_t, const double*, int, PowerSums*);
void power_marginals(const double*, ptrdiff_t, const PowerForm&, double*);
void power_messages(const double*, ptrdiff_t, const PowerForm&, double*);

ptrdiff_t chain_scratch(ptrdiff_t, ptrdiff_t);
void chain(const double*, const double*, const double*, ptrdiff_t, ptrdiff_t, double*, double*, double*, double*,
           double*);

extern const FlatKernels flat_kernels;
const FlatKernels flat_kernels = {
    chebyshev_sums, small_deviation_sums, multiply_factors, transform,      inverse,
    leave_one_out,  marginals,            messages,         marginals_plain, messages_plain, tilted_moments,
    tilted_mean,
    exp_table,      max_table,            direct_scratch,   direct,         alone_scratch, alone,
    alone_pmf,
    messages_from_ratio, power_sums,      power_marginals,  power_messages,
    chain_scratch,  chain,
};

}  // namespace tallytree::TT_LEVEL
