// Run-time choice of the instruction-set level.
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

#if defined(__x86_64__)
// What the processor and the system can do. Asked directly: not every compiler's runtime has __builtin_cpu_supports.
struct Machine {
  unsigned basic = 0, extended = 0;  // bits of leaf 1 (ecx) and leaf 7 (ebx)
  unsigned long long saved = 0;      // registers that the system saves

  Machine() {
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) basic = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) extended = b;
    if (basic >> 27 & 1) {
      __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
      saved = (unsigned long long)d << 32 | a;
    }
  }
  bool sse42() const { return basic >> 20 & 1; }
  bool avx2() const {  // with FMA and BMI2
    return (saved & 0x6) == 0x6 && (basic >> 12 & 1) && (basic >> 28 & 1) && (extended >> 5 & 1) && (extended >> 8 & 1);
  }
  bool avx512() const {  // F, DQ, CD, BW, VL
    constexpr unsigned all = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    return avx2() && (saved & 0xe6) == 0xe6 && (extended & all) == all;
  }
};
#endif

// Best first; nullptr where this machine cannot run the level.
static const Kernels* candidate(int i) {
#if defined(__x86_64__)
  static const Machine machine;
#endif
  switch (i) {
#ifdef TT_HAVE_v4
    case 0: return machine.avx512() ? &v4::kernels : nullptr;
#endif
#ifdef TT_HAVE_v3
    case 1: return machine.avx2() ? &v3::kernels : nullptr;
#endif
#ifdef TT_HAVE_v2
    case 2: return machine.sse42() ? &v2::kernels : nullptr;
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
