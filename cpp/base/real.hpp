// Functions of one double for kernel files: the builtins of the compiler, which need no header.
//
// <cmath> takes longer to read than most kernel files take to compile, and each of them is compiled once per level.
#pragma once

namespace tallytree::TT_LEVEL::real {

static inline double ceil(double x) { return __builtin_ceil(x); }
static inline double cos(double x) { return __builtin_cos(x); }
static inline double exp(double x) { return __builtin_exp(x); }
static inline double exp2(double x) { return __builtin_exp2(x); }
static inline double fabs(double x) { return __builtin_fabs(x); }
static inline double floor(double x) { return __builtin_floor(x); }
static inline double ldexp(double x, int n) { return __builtin_ldexp(x, n); }
static inline double log(double x) { return __builtin_log(x); }
static inline double log1p(double x) { return __builtin_log1p(x); }
static inline double log2(double x) { return __builtin_log2(x); }
static inline double sin(double x) { return __builtin_sin(x); }
static inline double sqrt(double x) { return __builtin_sqrt(x); }

}  // namespace tallytree::TT_LEVEL::real
