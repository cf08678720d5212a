// Elementary functions of the flat kernels: log(1 + e), and a logit split into likely state and deviation.
#pragma once
#include "base/exponent.hpp"

namespace tallytree::TT_LEVEL {

// log(1 + e) for 0 <= e <= 1, relatively accurate.
static inline vec log1p_unit(vec e) {
  vec z = e / (2.0 + e), z2 = z * z, p = splat(1.0 / 37);
#pragma GCC unroll 20
  for (int j = 35; j >= 3; j -= 2) p = p * z2 + 1.0 / j;
  return 2.0 * z + 2.0 * z * (z2 * p);
}

static inline vec abs(vec x) { return x < 0.0 ? -x : x; }

// A tilted logit as likely state and distance from it.
struct Deviation {
  vec sign;     // +1 likely on, -1 likely off
  vec e;        // e^-|t|
  vec inverse;  // 1 / (1 + e)
  vec delta;    // 2 e / (1 + e)
};
static inline Deviation deviation(vec t) {
  Deviation d;
  d.sign = t < 0.0 ? splat(-1.0) : splat(1.0);
  d.e = exp(-abs(t));
  d.inverse = 1.0 / (1.0 + d.e);
  d.delta = (d.e + d.e) * d.inverse;
  return d;
}

// The two states of a variable: their weights, which add up to one, or what others say of them. In lanes, or one (double).
template <class Number>
struct Sides {
  Number off, on;
};
using Leaf = Sides<vec>;
static inline Leaf leaf_of(vec t, const Deviation& d) {
  const vec rare = 0.5 * d.delta;
  return {t < 0.0 ? d.inverse : rare, t < 0.0 ? rare : d.inverse};
}

// d P(y = 1) along a direction v, for weights p(y), the message d(y) of all others and its derivative d'(y):
// p q (v d(0) d(1) + d'(1) d(0) - d'(0) d(1)) / Z^2. Only Z is divided by.
template <class Number>
static inline Number change_of_marginal(Sides<Number> p, Sides<Number> d, Sides<Number> change, Number z, Number v) {
  const Number inverse = 1.0 / z, on = p.on * (d.on * inverse), off = p.off * (d.off * inverse), spread = on * off;
  const Number cross = (p.on * (change.on * inverse)) * off - (p.off * (change.off * inverse)) * on;
  return (spread > 0.0 ? spread * v : Number{}) + cross;
}

}  // namespace tallytree::TT_LEVEL
