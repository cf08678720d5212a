// Direct tree for small flat models: the models of a batch lie side by side in the lanes of a register.
//
// Only positive terms are added, so every number is relatively accurate as long as it stays in range. Leaves
// are pairs (q, p) with q + p = 1 and the table is scaled to maximum 1; then every message is at most 1, all that
// underflow can do is an absolute error below n^3 1e-307, and it is harmless if and only if the
// smallest number that is used as a divisor is far above that. `smallest` reports it.
#include <cmath>

#include "flat_elementary.hpp"
#include "flat_kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr int kGroup = 8;      // leaves of a bottom group; missing leaves are (1, 0)
constexpr int kTile = 8;       // outputs kept in registers
constexpr int kPad = kTile + 1;
constexpr double kTiny = 1e-280;

template <int na, int nb>
inline void convolve_fixed(const vec* a, const vec* b, vec* out) {
  vec acc[na + nb - 1];
  for (int k = 0; k < na + nb - 1; k++) acc[k] = vec{};
#pragma GCC unroll 16
  for (int i = 0; i < na; i++)
#pragma GCC unroll 16
    for (int j = 0; j < nb; j++) acc[i + j] += a[i] * b[j];
  for (int k = 0; k < na + nb - 1; k++) out[k] = acc[k];
}

// out[k] = sum_j d[k + j] u[j]
template <int outputs, int terms>
inline void correlate_fixed(const vec* d, const vec* u, vec* out) {
  vec acc[outputs];
  for (int k = 0; k < outputs; k++) acc[k] = vec{};
#pragma GCC unroll 16
  for (int j = 0; j < terms; j++)
#pragma GCC unroll 16
    for (int k = 0; k < outputs; k++) acc[k] += d[k + j] * u[j];
  for (int k = 0; k < outputs; k++) out[k] = acc[k];
}

template <int tile>
inline void convolve_tile(const vec* a, ptrdiff_t from, ptrdiff_t to, const vec* b, vec* out) {
  vec acc[tile];
  for (int t = 0; t < tile; t++) acc[t] = vec{};
  for (ptrdiff_t i = from; i < to; i++)
#pragma GCC unroll 16
    for (int t = 0; t < tile; t++) acc[t] += a[i] * b[t - i];
  for (int t = 0; t < tile; t++) out[t] = acc[t];
}

template <int tile>
inline void correlate_tile(const vec* d, const vec* u, ptrdiff_t terms, vec* out) {
  vec acc[tile];
  for (int t = 0; t < tile; t++) acc[t] = vec{};
  for (ptrdiff_t j = 0; j < terms; j++)
#pragma GCC unroll 16
    for (int t = 0; t < tile; t++) acc[t] += d[j + t] * u[j];
  for (int t = 0; t < tile; t++) out[t] = acc[t];
}

// Messages have 8 g + 1 entries, so outputs come in tiles of 8 and a last one of 9.
// `padded` holds zeros on either side of a copy of b.
void convolve(const vec* a, ptrdiff_t na, const vec* b, ptrdiff_t nb, vec* out, vec* padded) {
  for (int t = 0; t < kPad; t++) padded[t] = padded[kPad + nb + t] = vec{};
  for (ptrdiff_t j = 0; j < nb; j++) padded[kPad + j] = b[j];
  const ptrdiff_t outputs = na + nb - 1;
  for (ptrdiff_t k = 0; k + 1 < outputs; k += kTile) {
    const bool last = k + kTile + 1 == outputs;
    const ptrdiff_t after = k + kTile + last;
    const ptrdiff_t from = k - nb + 1 > 0 ? k - nb + 1 : 0, to = na < after ? na : after;
    if (last)
      convolve_tile<kTile + 1>(a, from, to, padded + kPad + k, out + k);
    else
      convolve_tile<kTile>(a, from, to, padded + kPad + k, out + k);
  }
}

void correlate(const vec* d, const vec* u, ptrdiff_t terms, vec* out, ptrdiff_t outputs) {
  for (ptrdiff_t k = 0; k + 1 < outputs; k += kTile) {
    if (k + kTile + 1 == outputs)
      correlate_tile<kTile + 1>(d + k, u, terms, out + k);
    else
      correlate_tile<kTile>(d + k, u, terms, out + k);
  }
}

struct Leaf {
  vec off, on;
};

// A subtree over `groups` bottom groups keeps its message first, then the left and the right subtree.
ptrdiff_t tree_size(ptrdiff_t groups) {
  const ptrdiff_t own = kGroup * groups + 1;
  return groups == 1 ? own : own + tree_size((groups + 1) / 2) + tree_size(groups / 2);
}

struct Group {
  vec pairs[4][3], fours[2][5];
};

inline void merge_group(const Leaf* leaf, Group* g) {
  for (int i = 0; i < 4; i++) convolve_fixed<2, 2>(&leaf[2 * i].off, &leaf[2 * i + 1].off, g->pairs[i]);
  for (int i = 0; i < 2; i++) convolve_fixed<3, 3>(g->pairs[2 * i], g->pairs[2 * i + 1], g->fours[i]);
}

void up(const Leaf* leaf, ptrdiff_t groups, vec* tree, vec* padded) {
  if (groups == 1) {
    Group g;
    merge_group(leaf, &g);
    convolve_fixed<5, 5>(g.fours[0], g.fours[1], tree);
    return;
  }
  const ptrdiff_t left = (groups + 1) / 2, right = groups / 2;
  vec *l = tree + kGroup * groups + 1, *r = l + tree_size(left);
  up(leaf, left, l, padded);
  up(leaf + kGroup * left, right, r, padded);
  convolve(l, kGroup * left + 1, r, kGroup * right + 1, tree, padded);
}

// Turns the leaves into their downward messages.
void down(Leaf* leaf, ptrdiff_t groups, const vec* tree, const vec* d, vec* buffer) {
  if (groups == 1) {
    Group g;
    merge_group(leaf, &g);
    vec four[5], pair[3], one[2];
    Leaf result[kGroup];
    for (int h = 0; h < 2; h++) {
      correlate_fixed<5, 5>(d, g.fours[1 - h], four);
      for (int i = 0; i < 2; i++) {
        correlate_fixed<3, 3>(four, g.pairs[2 * h + 1 - i], pair);
        for (int j = 0; j < 2; j++) {
          correlate_fixed<2, 2>(pair, &leaf[4 * h + 2 * i + 1 - j].off, one);
          result[4 * h + 2 * i + j] = {one[0], one[1]};
        }
      }
    }
    for (int i = 0; i < kGroup; i++) leaf[i] = result[i];
    return;
  }
  const ptrdiff_t left = (groups + 1) / 2, right = groups / 2, nl = kGroup * left + 1, nr = kGroup * right + 1;
  const vec *l = tree + kGroup * groups + 1, *r = l + tree_size(left);
  correlate(d, r, nr, buffer, nl);
  down(leaf, left, l, buffer, buffer + nl);
  correlate(d, l, nl, buffer, nr);
  down(leaf + kGroup * left, right, r, buffer, buffer + nr);
}

inline Leaf leaf_of(vec t) {
  const Deviation d = deviation(t);
  const vec rare = 0.5 * d.delta, likely = 1.0 / (1.0 + d.e);
  return {t < 0.0 ? likely : rare, t < 0.0 ? rare : likely};
}

// Entry i of every model; lanes without a model repeat the first.
inline vec gather(const double* const* rows, int models, ptrdiff_t i) {
  vec v = splat(rows[0][i]);
  for (int l = 1; l < models; l++) v[l] = rows[l][i];
  return v;
}

struct Layout {
  ptrdiff_t groups;
  Leaf* leaf;
  vec *tree, *root, *padded, *buffer;
};

Layout layout(ptrdiff_t n, double* scratch) {
  Layout s;
  s.groups = (n + kGroup - 1) / kGroup;
  const ptrdiff_t counts = kGroup * s.groups + 1;
  s.leaf = (Leaf*)scratch;
  s.tree = (vec*)(s.leaf + kGroup * s.groups);
  s.root = s.tree + tree_size(s.groups);
  s.padded = s.root + counts;
  s.buffer = s.padded + counts + 2 * kPad;
  return s;
}

}  // namespace

// Doubles, for memory aligned to a register. Downward messages on a path take at most twice the root's length.
ptrdiff_t direct_scratch(ptrdiff_t n) {
  const ptrdiff_t groups = (n + kGroup - 1) / kGroup, counts = kGroup * groups + 1;
  return kLanes * (2 * kGroup * groups + tree_size(groups) + 2 * counts + 2 * kPad + 2 * counts + 64);
}

void direct(const double* const* nu, const double* const* log_f, const double* tilt, int models, ptrdiff_t n,
            double* scratch, double* log_mean, double* smallest, double* const* ratio) {
  const Layout s = layout(n, scratch);
  const double low = -__builtin_inf();
  vec slope = splat(tilt[0]);
  for (int l = 1; l < models; l++) slope[l] = tilt[l];
  for (ptrdiff_t i = 0; i < n; i++) s.leaf[i] = leaf_of(gather(nu, models, i) + slope);
  for (ptrdiff_t i = n; i < kGroup * s.groups; i++) s.leaf[i] = {splat(1.0), vec{}};
  up(s.leaf, s.groups, s.tree, s.padded);

  vec top = splat(low);
  for (ptrdiff_t k = 0; k <= n; k++) {
    s.root[k] = gather(log_f, models, k) - slope * (double)k;
    top = s.root[k] > top ? s.root[k] : top;
  }
  vec z = vec{};
  for (ptrdiff_t k = 0; k <= n; k++) {
    s.root[k] = exp(s.root[k] - top);
    z += s.root[k] * s.tree[k];
  }
  for (ptrdiff_t k = n + 1; k <= kGroup * s.groups; k++) s.root[k] = vec{};

  vec least = z;
  down(s.leaf, s.groups, s.tree, s.root, s.buffer);
  for (ptrdiff_t i = 0; i < n; i++) {
    const Leaf d = s.leaf[i];
    least = d.off < least ? d.off : least;
    least = d.on < least ? d.on : least;
    const vec r = d.on / d.off;
    for (int l = 0; l < models; l++) ratio[l][i] = r[l];
  }
  for (int l = 0; l < models; l++) {
    log_mean[l] = (z[l] > kTiny ? std::log(z[l]) : low) + top[l];
    smallest[l] = least[l];
  }
}

void marginals_from_ratio(const double* nu, const double* ratio, ptrdiff_t n, double tilt, double* out) {
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    const bool whole = n - i >= kLanes;
    const vec t = (whole ? load(nu + i) : load_part(nu + i, n - i, 0.0)) + tilt;
    const vec r = whole ? load(ratio + i) : load_part(ratio + i, n - i, 1.0);
    const vec e = exp(-abs(t)), a = t < 0.0 ? e * r : r, b = t < 0.0 ? splat(1.0) : e, m = a / (a + b);
    for (ptrdiff_t l = 0; l < (whole ? kLanes : n - i); l++) out[i + l] = m[l];
  }
}

void messages_from_ratio(const double* ratio, ptrdiff_t n, double tilt, double* out) {
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    const bool whole = n - i >= kLanes;
    const vec r = log(whole ? load(ratio + i) : load_part(ratio + i, n - i, 1.0)) + tilt;
    for (ptrdiff_t l = 0; l < (whole ? kLanes : n - i); l++) out[i + l] = r[l];
  }
}

}  // namespace tallytree::TT_LEVEL
