// Rows of memory, one per model, to and from registers that hold one entry of every model.
#pragma once
#include "base/transpose.hpp"

namespace tallytree::TT_LEVEL {

// Calls take(i, v) for every entry i < count, v holding entry i of every model; lanes without one repeat the first.
template <class Take>
static inline void by_entry(const double* const* rows, int models, ptrdiff_t count, const Take& take) {
  ptrdiff_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    vec block[kLanes];
    for (int l = 0; l < kLanes; l++) block[l] = load(rows[l < models ? l : 0] + i);
    transpose(block);
    for (int j = 0; j < kLanes; j++) take(i + j, block[j]);
  }
  for (; i < count; i++) {
    vec v = splat(rows[0][i]);
    for (int l = 1; l < models; l++) v[l] = rows[l][i];
    take(i, v);
  }
}

// rows[l][i] = entry i of model l, as give(i) tells it for all models.
template <class Give>
static inline void to_rows(double* const* rows, int models, ptrdiff_t count, const Give& give) {
  ptrdiff_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    vec block[kLanes];
    for (int j = 0; j < kLanes; j++) block[j] = give(i + j);
    transpose(block);
    for (int l = 0; l < models; l++) store(rows[l] + i, block[l]);
  }
  for (; i < count; i++) {
    const vec v = give(i);
    for (int l = 0; l < models; l++) rows[l][i] = v[l];
  }
}

}  // namespace tallytree::TT_LEVEL
