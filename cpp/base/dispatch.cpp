// Run-time choice of the instruction-set level.
#include <cstring>

#include "base/kernels.hpp"

namespace tallytree {

#define TT_DECLARE(level) \
  namespace level {       \
  extern const Kernels kernels; \
  }
#ifdef TT_HAVE_v4
TT_DECLARE(v4)
#endif
#ifdef TT_HAVE_v3
TT_DECLARE(v3)
#endif
#ifdef TT_HAVE_v2
TT_DECLARE(v2)
#endif
#ifdef TT_HAVE_generic
TT_DECLARE(generic)
#endif

// Best first; nullptr where this machine cannot run the level.
static const Kernels* candidate(int i) {
  switch (i) {
#ifdef TT_HAVE_v4
    case 0: return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")
                       ? &v4::kernels : nullptr;
#endif
#ifdef TT_HAVE_v3
    case 1: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")
                       ? &v3::kernels : nullptr;
#endif
#ifdef TT_HAVE_v2
    case 2: return __builtin_cpu_supports("sse4.2") ? &v2::kernels : nullptr;
#endif
#ifdef TT_HAVE_generic
    case 3: return &generic::kernels;
#endif
    default: return nullptr;
  }
}

const Kernels* find_kernels(const char* level) {
  for (int i = 0; i < 4; i++) {
    const Kernels* k = candidate(i);
    if (k && !std::strcmp(k->level, level)) return k;
  }
  return nullptr;
}

const Kernels* best_kernels() {
  for (int i = 0; i < 4; i++)
    if (const Kernels* k = candidate(i)) return k;
  return nullptr;
}

}  // namespace tallytree
