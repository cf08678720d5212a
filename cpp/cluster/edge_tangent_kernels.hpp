// Derivatives in a pairwise forest with one count: plain data and the kernel.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tallytree {

// A rooted tree; vertex weights and edge tables are plain numbers of at most 1.
struct EdgeTree {
  int32_t vertices;
  const int32_t *order, *parent, *edge;  // order: parents first; edge: to the parent
  const int8_t *flip, *counted;          // flip: whether the edge's table has the child's state first
  const double *leaf, *edges;            // (vertices, 2), (edges, 2, 2)
  const double* slope;                   // (vertices, 2): derivative of the log of the weights
};

// One register of frequencies: e^{iw}, the transforms of f and f h there.
struct EdgeWaves {
  const double *cos_w, *sin_w, *f_re, *f_im, *h_re, *h_im;
  double *re, *im, *change_re, *change_im;  // the characteristic function and its derivative
};

struct EdgeTangentKernels {
  ptrdiff_t (*scratch)(int32_t vertices);  // doubles
  ptrdiff_t (*sums)(int32_t vertices);     // doubles
  // Adds the shares of these frequencies to `sums`. Scales come from the first frequency if `first`, which must be 0.
  void (*pass)(const EdgeTree& tree, const EdgeWaves& waves, bool first, double* scales, double* scratch, double* sums);
  // P(y = 1) and its derivative from the sums, and the largest that a relative error of all terms can do to each.
  void (*finish)(int32_t vertices, const double* sums, double* marginals, double* change, double* worst);
};

}  // namespace tallytree
