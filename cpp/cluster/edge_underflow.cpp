// The same products and scales as in `edge_pass` at frequency 0, each with a bound on what it lacks.
//
// Rounding is relative as long as no number is too small for it. Below, a product loses up to the smallest normal number,
// and whatever is scaled up afterwards takes that loss along. Bounds are sums of positive terms, entry by entry, so that
// they grow only where the lost weight would have grown.
#include "cluster/edge_tangent_pass.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tallytree {

namespace {

constexpr double kLost = 4 * std::numeric_limits<double>::min();

struct Part {
  double value, lost;
};
inline Part operator*(Part a, Part b) {
  return {a.value * b.value, a.value * b.lost + a.lost * (b.value + b.lost) + kLost};
}
inline Part operator+(Part a, Part b) { return {a.value + b.value, a.lost + b.lost}; }

struct Two {
  Part at[2];
};
inline Two operator*(const Two& a, const Two& b) { return {{a.at[0] * b.at[0], a.at[1] * b.at[1]}}; }

Two scaled(const Two& x) {
  const double top = std::max(x.at[0].value, x.at[1].value);
  const double scale = top > 0 ? std::ldexp(1.0, -std::max(std::ilogb(top), -1022)) : 1.0;
  Two out = x;
  for (Part& p : out.at) p = {p.value * scale, p.lost * scale};
  return out;
}

// What crosses the edge between v and its parent, upwards or downwards.
Two crossed(const EdgeTree& t, int32_t v, const Two& from, bool up) {
  const double* table = t.edges + 4 * (ptrdiff_t)t.edge[v];
  Two out;
  for (int to = 0; to < 2; to++) {
    Part sum = {0, 0};
    for (int y = 0; y < 2; y++) {
      const int above = up ? to : y, below = up ? y : to;
      sum = sum + Part{t.flip[v] ? table[2 * below + above] : table[2 * above + below], kLost} * from.at[y];
    }
    out.at[to] = sum;
  }
  return out;
}

}  // namespace

double edge_underflow(const EdgeTree& t) {
  const size_t n = (size_t)t.vertices;
  std::vector<Two> below(n), sent(n), before(n), over(n);
  for (size_t v = 0; v < n; v++) below[v] = {{{t.leaf[2 * v], kLost}, {t.leaf[2 * v + 1], kLost}}};
  for (size_t i = n; i-- > 1;) {
    const int32_t v = t.order[i];
    const size_t p = (size_t)t.parent[v];
    sent[(size_t)v] = crossed(t, v, below[(size_t)v], true);
    before[(size_t)v] = below[p];
    below[p] = scaled(below[p] * sent[(size_t)v]);
  }
  double worst = 0;
  for (size_t i = 0; i < n; i++) {
    const int32_t v = t.order[i];
    Two& own = over[(size_t)v];
    if (i == 0) {
      own = {{{1, 0}, {1, 0}}};
    } else {
      const size_t p = (size_t)t.parent[v];
      own = scaled(crossed(t, v, before[(size_t)v] * over[p], false));
      over[p] = scaled(over[p] * sent[(size_t)v]);
    }
    const Two belief = below[(size_t)v] * own;
    const Part all = belief.at[0] + belief.at[1];
    const double share = all.lost / all.value;
    worst = share <= worst ? worst : all.value > 0 && share == share ? share : std::numeric_limits<double>::infinity();
  }
  return worst;
}

}  // namespace tallytree
