// P(y = 1) from log-odds and messages.
#include "base/deviation.hpp"
#include "base/kernels.hpp"

namespace tallytree::TT_LEVEL {

// 1 / (1 + e^-(nu + message)); an infinite nu decides by itself.
void posterior_marginals(const double* nu, const double* message, ptrdiff_t n, double* out) {
  const double inf = __builtin_inf();
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    const vec x = load_up_to(nu + i, n - i, 0.0), m = load_up_to(message + i, n - i, 0.0);
    const vec t = abs(x) == inf ? x : x + m, e = exp(-abs(t)), p = (t < 0.0 ? e : splat(1.0)) / (1.0 + e);
    store_up_to(out + i, p, n - i);
  }
}

}  // namespace tallytree::TT_LEVEL
