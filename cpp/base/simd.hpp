// The SIMD lane type: one register of TT_LANES doubles, arithmetic by the compiler's vector extensions.
//
// Kernel files are compiled several times, once per instruction-set level, so everything they define lives in
// namespace tallytree::TT_LEVEL, and they use no standard containers or algorithms: an inline function of
// the standard library compiled for AVX-512 could otherwise be the copy that the linker keeps for everybody.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tallytree::TT_LEVEL {

constexpr int kLanes = TT_LANES;
typedef double vec __attribute__((vector_size(8 * TT_LANES)));
typedef int64_t ivec __attribute__((vector_size(8 * TT_LANES)));

static inline vec load(const double* p) {
  vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
static inline void store(double* p, vec v) { std::memcpy(p, &v, sizeof v); }
static inline vec splat(double x) { return vec{} + x; }

// The first `count` entries, the rest filled with `pad`.
static inline vec load_part(const double* p, ptrdiff_t count, double pad) {
  vec v = splat(pad);
  for (ptrdiff_t j = 0; j < count; j++) v[j] = p[j];
  return v;
}
// A vector of what is left of a row, `pad` behind its end.
static inline vec load_up_to(const double* p, ptrdiff_t left, double pad) {
  return left >= kLanes ? load(p) : load_part(p, left, pad);
}
// As much of a vector as there is room for.
static inline void store_up_to(double* p, vec v, ptrdiff_t room) {
  if (room >= kLanes)
    store(p, v);
  else
    for (ptrdiff_t j = 0; j < room; j++) p[j] = v[j];
}
static inline bool any(ivec mask) {
  int64_t bits = 0;
  for (int j = 0; j < kLanes; j++) bits |= mask[j];
  return bits != 0;
}
static inline double sum_lanes(vec v) {
  double s = 0;
  for (int j = 0; j < kLanes; j++) s += v[j];
  return s;
}

}  // namespace tallytree::TT_LEVEL
