#include "cluster/edge_tangent_pass.hpp"

#include <algorithm>
#include <cmath>

#include "base/constants.hpp"
#include "base/workspace.hpp"

namespace tallytree {

namespace {

constexpr double kInvisible = 1e-19;   // of the characteristic function, which is 1 at 0
constexpr int kQuietFrequencies = 64;  // so many invisible ones in a row end the sum, unless everything is asked for

// All components hang below one more vertex, which has one state and sends nothing.
struct Joined {
  std::vector<int32_t> order, parent, edge;
  std::vector<int8_t> flip, counted;
  std::vector<double> leaf, tables, slope;

  explicit Joined(const EdgeTangentInputs& in) {
    const int32_t n = in.forest.variables;
    order.push_back(n);
    order.insert(order.end(), in.forest.order, in.forest.order + n);
    parent.assign(in.forest.parent, in.forest.parent + n);
    edge.assign(in.forest.edge, in.forest.edge + n);
    flip.assign(in.forest.flip, in.forest.flip + n);
    for (int32_t v = 0; v < n; v++)
      if (parent[(size_t)v] < 0) parent[(size_t)v] = n, edge[(size_t)v] = in.edges, flip[(size_t)v] = 0;
    parent.push_back(-1);
    edge.push_back(-1);
    flip.push_back(0);
    counted.assign(in.counted, in.counted + n);
    counted.push_back(0);
    leaf.assign(in.leaf, in.leaf + 2 * n);
    leaf.insert(leaf.end(), {1.0, 0.0});
    slope.assign(in.slope, in.slope + 2 * n);
    slope.insert(slope.end(), {0.0, 0.0});
    tables.assign(in.tables, in.tables + 4 * (ptrdiff_t)in.edges);
    tables.insert(tables.end(), 4, 1.0);
  }
  EdgeTree tree() const {
    return {(int32_t)parent.size(), order.data(), parent.data(), edge.data(), flip.data(), counted.data(), leaf.data(),
            tables.data(), slope.data()};
  }
};

}  // namespace

void edge_tangent(const Kernels& kernels, const EdgeTangentInputs& in, double* marginals, double* change,
                  double* worst, std::complex<double>* law, std::complex<double>* law_change) {
  const EdgeTangentKernels& k = *kernels.edge_tangent;
  const Joined joined(in);
  const EdgeTree tree = joined.tree();
  const size_t n = (size_t)tree.vertices, lanes = (size_t)kernels.lanes;
  const AlignedArray scratch = aligned_doubles((size_t)k.scratch(tree.vertices));
  const AlignedArray sums = aligned_doubles((size_t)k.sums(tree.vertices));
  std::fill_n(sums.get(), k.sums(tree.vertices), 0.0);
  std::vector<double> scales(3 * n), out(2 * n);
  std::fill_n(law, in.frequencies, 0.0);
  std::fill_n(law_change, in.frequencies, 0.0);
  int quiet = 0;
  for (ptrdiff_t m = 0; m < in.frequencies && (in.everything || quiet < kQuietFrequencies); m += (ptrdiff_t)lanes) {
    double at[10][8] = {};
    const size_t count = std::min(lanes, (size_t)(in.frequencies - m));
    for (size_t l = 0; l < count; l++) {
      const double w = 2 * kPi * (double)(m + (ptrdiff_t)l) / (double)in.period;
      at[0][l] = std::cos(w);
      at[1][l] = std::sin(w);
      at[2][l] = in.f[m + (ptrdiff_t)l].real();
      at[3][l] = in.f[m + (ptrdiff_t)l].imag();
      at[4][l] = in.h[m + (ptrdiff_t)l].real();
      at[5][l] = in.h[m + (ptrdiff_t)l].imag();
    }
    k.pass(tree, {at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8], at[9]}, m == 0, scales.data(),
           scratch.get(), sums.get());
    for (size_t l = 0; l < count; l++) {
      law[m + (ptrdiff_t)l] = {at[6][l], at[7][l]};
      law_change[m + (ptrdiff_t)l] = {at[8][l], at[9][l]};
      quiet = std::abs(law[m + (ptrdiff_t)l]) < kInvisible * law[0].real() ? quiet + 1 : 0;
    }
  }
  k.finish(tree.vertices - 1, sums.get(), out.data(), out.data() + n, worst);
  worst[2] = edge_underflow(tree);
  std::copy_n(out.data(), n - 1, marginals);
  std::copy_n(out.data() + n, n - 1, change);
}

}  // namespace tallytree
