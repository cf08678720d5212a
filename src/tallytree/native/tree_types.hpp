// Plain data shared by the tree driver (compiled once) and the tree kernels (compiled per level).
//
// No inline functions live here: a copy compiled for AVX-512 must never be the one the linker keeps.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tallytree {

// The counts lo..hi; empty when lo > hi.
struct Interval {
  int32_t lo, hi;
};

// Topology of a binary forest. Nodes 0..leaves-1 are the variables, leaves+i is inner node i; children have
// smaller ids than their parent.
struct ForestView {
  int32_t leaves, inner;
  const int32_t *left, *right;  // (inner,)
  const int32_t* parent;        // (leaves + inner,), -1 at a root
  const int32_t* size;          // (leaves + inner,), variables below
  const int64_t* table_offset;  // (inner,), -1: no table
};

// A vector over the counts lo .. lo+length-1. Entry j stands for value[j] * 2^(scale + e), where e is 0
// (linear passes), exponent[j / tile] (tiled) or exponent[j] (wide). All exponents are integers held as doubles.
struct Message {
  double* value;
  double* exponent;
  int32_t lo, length;
  double scale;
};

// What a node remembers for the certificate.
struct NodeNotes {
  double table_exponent;  // the table is used as f * 2^-table_exponent, so that it is at most about 1
  double shift;           // up = f c 2^-shift: the power of two taken out after the merge
  double sum;             // sum of the up values
  double norm2;           // Euclidean norm of the up values
  double smallest;        // smallest positive up value
  double lost_up;         // log2 of the absolute error that underflow may have caused in up and down values
  double lost_down;
  double rounding;        // relative rounding error made in this node's own merge, up
  double trimmed;         // mass of up values cut off at the ends
  double outside_table;   // largest (scaled) table value at counts that were cut off
  double merge_error;     // absolute error of one entry of an FFT merge
  double amplified;       // this node's merge and trim errors, relative to Z
  double path_relative;   // errors of the downward FFTs above this node, relative to Z
  double path_absolute;   // the same as an absolute error of one down entry
  double down_bound;      // upper bound of all down values, also those at counts cut off
  int64_t spectra;        // where the children's spectra are kept, in `spectra` below; -1: direct merge
  double* spectrum_left;
  double* spectrum_right;
  int32_t transform;      // real length of those transforms
};

// Memory that grows in blocks and is released all at once.
struct Arena;
double* arena_take(Arena* arena, size_t doubles);  // 64-byte aligned

// Twiddle factors for one transform length and lane count.
struct FftPlan;
struct PlanCache;

// What one thread owns.
struct Worker {
  Arena* arena;     // messages and spectra, alive until the item is finished
  double* scratch;  // `scratch_parts` pieces of `scratch_stride` doubles, 64-byte aligned
  size_t scratch_stride;
};
constexpr int kScratchParts = 8;

// One model of the batch while it is being solved.
struct TreeItem {
  const ForestView* forest;
  const double *nu, *tables;
  double tilt;
  const Interval *support;  // counts at which up messages can be positive
  const Interval *reach;    // counts needed downwards: support, were one infinite logit finite
  double *leaf_value[2], *leaf_exponent[2];  // Bernoulli weights of y=0 and y=1 (the latter times e^tilt)
  Message *up, *down;
  NodeNotes* notes;
  double* messages;     // (leaves,) or null
  double* log_beliefs;  // packed like tables, or null
  double* leaf_bound;   // (leaves,), bound on the error of each message
  PlanCache* plans;
  bool use_fft;
};

}  // namespace tallytree
