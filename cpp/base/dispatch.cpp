// Run-time choice of the instruction-set level.
#include <cstring>
#ifndef TT_HAVE_generic
#include <cpuid.h>
#endif

#include "base/kernels.hpp"

namespace tallytree {

#ifdef TT_HAVE_generic
namespace generic {
extern const Kernels kernels;
}

static const Kernels* candidate(int i) { return i == 0 ? &generic::kernels : nullptr; }

#else
namespace v4 {
extern const Kernels kernels;
}
namespace v3 {
extern const Kernels kernels;
}
namespace v2 {
extern const Kernels kernels;
}

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

// Best first; nullptr where this machine cannot run the level.
static const Kernels* candidate(int i) {
  static const Machine machine;
  switch (i) {
    case 0: return machine.avx512() ? &v4::kernels : nullptr;
    case 1: return machine.avx2() ? &v3::kernels : nullptr;
    default: return machine.sse42() ? &v2::kernels : nullptr;
  }
}
#endif

const Kernels* find_kernels(const char* level) {
  for (int i = 0; i < 3; i++) {
    const Kernels* k = candidate(i);
    if (k && !std::strcmp(k->level, level)) return k;
  }
  return nullptr;
}

const Kernels* best_kernels() {
  for (int i = 0; i < 3; i++)
    if (const Kernels* k = candidate(i)) return k;
  return nullptr;
}

}  // namespace tallytree
