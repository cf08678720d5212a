// Linear passes ("direct" and "fft"): messages are plain doubles with one power of two per message.
#pragma once
#include "base/convolve.hpp"
#include "tree/kernels.hpp"

namespace tallytree::TT_LEVEL {

// Values below 2^kTiny relative to the largest of a message are not trusted: products of two of them underflow.
constexpr double kTiny = -1000.0;

// The largest exact subtree for which an error is followed entry by entry (see linear_pass.cpp). Larger ones made the
// bounds of clustering trees and of groups of any size looser.
constexpr int kProbeSize = 2;

// log2 of an upper bound of a sum of n values, given what they add up to after losses of at most 2^lost each.
static inline double log2_total(double sum, double lost, int n) {
  return log2_sum_above(real::log2(sum), lost + real::log2((double)n));
}

// The up message of a node with its notes; a leaf's is built here.
struct UpView : UpNotes {
  double pair[kLanes];
  Message message;

  UpView(const TreeItem& item, int32_t node) {
    const int32_t leaves = item.tree->leaves;
    if (node < leaves) {
      leaf(item, node);
    } else {
      UpNotes::operator=(item.notes[node - leaves]);
      message = item.up[node - leaves];
    }
  }
  UpView(const UpView&) = delete;

  double log2_total() const { return TT_LEVEL::log2_total(sum, lost_up, message.length); }

 private:
  void leaf(const TreeItem& item, int32_t node) {
    const Interval s = item.support[node];
    double scale = kZeroExponent;
    for (int y = s.lo; y <= s.hi; y++) scale = max(scale, item.leaf_exponent[y][node]);
    sum = norm2 = trimmed = 0;
    smallest = 1;
    lost_up = -__builtin_inf();
    exact = true;
    for (int y = s.lo; y <= s.hi; y++) {
      const double shift = item.leaf_exponent[y][node] - scale, mantissa = item.leaf_value[y][node];
      const double value = shift < kTiny ? 0.0 : mantissa * pow2(shift);
      if (shift < kTiny && mantissa > 0) lost_up = kTiny + 1;
      pair[y - s.lo] = value;
      sum += value;
      if (value > 0) smallest = min(smallest, value);
    }
    norm2 = sum;
    message = {pair, nullptr, s.lo, s.hi - s.lo + 1, scale};
  }
};

// out[k] = max_j g[k+j] u[j] for k < n.
template <class Number>
static inline void worst_of(const Number* g, const Number* u, int nu, Number* out, int n) {
  for (int k = 0; k < n; k++) {
    out[k] = Number{};
    for (int j = 0; j < nu; j++) out[k] = max(out[k], g[k + j] * u[j]);
  }
}

// The first `count` lanes of x, the rest filled with `pad`.
static inline vec first_lanes(vec x, int count, double pad) {
  vec index;
  for (int j = 0; j < kLanes; j++) index[j] = j;
  return index < (double)count ? x : splat(pad);
}

// log f - tilt * (count - centre) at a root, log f elsewhere.
static inline vec log_table(const TreeItem& item, int32_t i, int count, int valid) {
  const int64_t at = item.tree->table_offset[i] + count;
  const double* f = item.tables + at;
  vec x;
  if (at + kLanes <= item.table_entries) x = first_lanes(load(f), valid, -__builtin_inf());
  else x = load_part(f, valid < kLanes ? valid : kLanes, -__builtin_inf());
  if (item.tilt != 0 && item.tree->parent[item.tree->leaves + i] < 0)
    for (int j = 0; j < kLanes; j++) x[j] -= item.tilt * (count + j - item.centre);
  return x;
}

struct TableLoss {
  bool dropped;     // a positive value below 2^kTiny became 0
  double smallest;  // smallest positive value kept
};

// out[j] = f(lo + j) * 2^-top for j < n, zero beyond to a whole vector.
static inline TableLoss scaled_table(const TreeItem& item, int32_t i, int lo, int n, double top, double* out) {
  vec least = splat(2.0);
  ivec dropped = {};
  for (int j = 0; j < n; j += kLanes) {
    vec exponent;
    const vec value = exp_split_or_zero(log_table(item, i, lo + j, n - j), exponent);
    const vec shift = exponent - top;
    const vec f = shift < kTiny ? vec{} : value * pow2(shift);
    dropped |= (shift < kTiny) & (value > 0.0);
    least = f > 0.0 ? min(least, f) : least;
    store(out + j, f);
  }
  return {any(dropped), min_lanes(least)};
}

// The largest exponent of the table over lo .. lo+n-1; kZeroExponent if it vanishes there.
static inline double table_exponent(const TreeItem& item, int32_t i, int lo, int n) {
  vec largest = splat(-__builtin_inf());
  for (int j = 0; j < n; j += kLanes) largest = max(largest, log_table(item, i, lo + j, n - j));
  const double m = max_lanes(largest);
  if (m == -__builtin_inf()) return kZeroExponent;
  vec exponent;
  exp_split(splat(m), exponent);
  return exponent[0];
}

// log(d(1) / d(0)) of a leaf, whose downward message begins at its reach; infinite where one of them is 0. The two may have
// exponents: `log_scale` is the logarithm of the scale of d(1) by that of d(0).
static inline void write_message(TreeItem& item, int32_t leaf, const double* d, double log_scale = 0) {
  const Interval reach = item.reach[leaf];
  const double off = reach.lo == 0 ? d[0] : 0.0, on = reach.hi == 1 ? d[1 - reach.lo] : 0.0;
  if (off > 0 && on > 0) {
    item.messages[leaf] = log_scale + log_ratio(on, off) + item.tilt;
  } else {
    item.messages[leaf] = on > 0 ? __builtin_inf() : off > 0 ? -__builtin_inf() : 0.0;
  }
}

// The posterior log-distribution of a node's count, log(up) + log(down) - log <up, down>, where it is wanted.
static inline void write_beliefs(TreeItem& item, int32_t i) {
  if (!item.log_beliefs || item.tree->table_offset[i] < 0) return;
  const Message u = item.up[i], d = item.down[i];
  double* out = item.log_beliefs + item.tree->table_offset[i];
  const int lo = max(u.lo, d.lo), hi = min(u.lo + u.length, d.lo + d.length);
  const auto exponent = [&](int k) { return u.exponent ? u.exponent[k - u.lo] + d.exponent[k - d.lo] : 0.0; };
  double top = 2 * kZeroExponent;  // taken out, so that logarithms of counts that matter are not large
  for (int k = lo; k < hi; k++) top = max(top, exponent(k));
  double largest = -__builtin_inf(), sum = 0;
  for (int k = lo; k < hi; k += kLanes) {
    const int valid = min(kLanes, hi - k);
    vec e = {};
    for (int l = 0; l < valid; l++) e[l] = exponent(k + l) - top;
    const vec x = e * kLn2 + (log(load_part(u.value + k - u.lo, valid, 0.0)) + log(load_part(d.value + k - d.lo, valid, 0.0)));
    store_up_to(out + k, x, hi - k);
    largest = max(largest, max_lanes(x));
  }
  if (largest == -__builtin_inf()) return;
  for (int k = lo; k < hi; k++) sum += real::exp(out[k] - largest);
  const double log_sum = largest + real::log(sum);
  for (int k = lo; k < hi; k++) out[k] -= log_sum;
}

}  // namespace tallytree::TT_LEVEL
