// Plain data shared by the tree driver (compiled once) and the tree kernels (compiled per level).
//
// No inline functions live here: a copy compiled for AVX-512 must never be the one the linker keeps.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/constants.hpp"
#include "base/kernels.hpp"
#include "base/worker.hpp"

namespace tallytree {

// Topology of a binary tree. Nodes 0..leaves-1 are the variables, leaves+i is inner node i; children have
// smaller ids than their parent.
struct TreeView {
  int32_t leaves, inner;
  const int32_t *left, *right;  // (inner,); -1: a block (see BlockGroup)
  const int32_t* parent;        // (leaves + inner,), -1 at a root
  const int32_t* size;          // (leaves + inner,), variables below
  const int64_t* table_offset;  // (inner,), -1: no table
};

// A vector over the counts lo .. lo+length-1. Entry j stands for value[j] * 2^(scale + e), where e is 0
// (linear passes) or exponent[j] (wide). All exponents are integers held as doubles.
struct Message {
  double* value;
  double* exponent;
  int32_t lo, length;
  double scale;
};

// What a node remembers for the way down and for the certificate. "Relative to Z" means: as a share of the total
// weight, which at every node is <up, down>.
struct UpNotes {
  double sum, norm2;  // of the up values
  double smallest;    // smallest positive up value
  double lost_up;     // log2 of the absolute error that underflow may have caused in the up values
  double trimmed;     // mass of up values cut off at the ends; this and `exact` are of the "fft" method only
  bool exact;         // nothing below was transformed or cut, and the subtree is small
};
struct NodeNotes : UpNotes {
  double table_exponent;  // the table is used as f * 2^-table_exponent, so that it is at most about 1
  double shift;           // up = f c 2^-shift: the power of two taken out after the merge
  double rounding;        // variance of this merge's relative rounding error, in squared unit round-offs
  double lost_down;       // as lost_up, for the down values
  // The rest serves the "fft" method only.
  double outside_table;   // largest table value (scaled) at counts that were cut off
  double overlap;         // <up, down>
  double down_limit;      // upper bound of the down values, also at counts that were cut off
  double amplified;       // errors of cut ends and losses at this node, relative to Z
  double transformed;     // likewise the rounding error of this node's transforms, independent of all others
  double path_error;      // errors of the downward transforms above this node, relative to Z
  double* probe;          // how an error relative to Z at the top of an exact subtree shows in the down values
  double *left_spectrum, *right_spectrum;
  int32_t transform;      // their length; 0: merged directly
  double wave_error;      // of every value of a wave before the table came in (see WaveMessage)
  double block_bound, block_amplification, block_message;  // largest of a block's leaves
  bool probe_starts;      // the probe of this node was not passed down to it
};

constexpr int kBlockLeavesMost = 32;  // leaves of a block
// The shape of a small subtree without tables. Slots 0..leaves-1 are its leaves, slot leaves+m is merge m, children
// before parents. A slot's vector starts at `start` and has size+1 entries.
struct BlockShape {
  int32_t leaves, merges;
  const int32_t *left, *right;  // (merges,)
  const int32_t *size, *start;  // (leaves + merges,)
  int32_t total;                // entries of all vectors
};
// Up to eight subtrees of one shape: their inner nodes, and the variables below each, (count, shape->leaves).
struct BlockGroup {
  const BlockShape* shape;
  int32_t count;
  const int32_t *roots, *leaves;
};

// The upward message of a block that is solved by its characteristic function: value[j] 2^scale for the counts lo + j,
// each wrong by at most `error` (before the scale). `value` has room for kPad more entries.
struct WaveMessage {
  double* value;
  int32_t lo, length;
  double scale, sum, error;
  double outside;  // mass at other counts
};

// What a star must know of a child's message before it merges them all: moments of the counts, the first count being 0,
// and how much of the message overlaps with itself when shifted by kStarShifts[j] counts (see spectral_blocks.cpp).
constexpr int kStarShiftCount = 10;
constexpr int kStarShifts[kStarShiftCount] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64};
struct ChildShape {
  double mean, variance, overlap[kStarShiftCount];
};

// Models with more variables are solved one by one; also SMALL_IN_LANES of engine/thresholds.py.
constexpr int32_t kSmallModelMost = 320;

// Up to one register of models on one tree, and one direction each where derivatives are wanted. What is not wanted is
// null; arrays beyond `count` repeat the first.
struct SmallModels {
  int count;
  bool shared_tables;
  const double *nu[8], *tables[8], *v[8], *h[8];
  double *messages[8], *change[8];         // (leaves,): log-odds, and d P(y = 1)
  double *beliefs[8], *belief_change[8];   // P(count) of every node with a table, packed like the tables, and d P(count)
};

// Samples of these models. Random numbers are those of stream (model, sample), whatever shares the register.
struct SmallDraws {
  const uint32_t* key;  // 128 bits
  uint32_t model[8];
  ptrdiff_t samples;
  ptrdiff_t stride;  // bytes from one sample of a model to the next
  uint8_t* out[8];   // the first sample of each model; null: only the bound is wanted
};

// One model of the batch while it is being solved.
struct TreeItem {
  const TreeView* tree;
  const double *nu, *tables;
  int64_t table_entries;
  double tilt, centre;  // the tilt takes tilt * (count - centre) from the tables of the roots
  const Interval *support;  // counts at which up messages can be positive
  const Interval *reach;    // counts needed downwards: support, were one infinite logit finite
  double *leaf_value[2], *leaf_exponent[2];  // Bernoulli weights of y=0 and y=1 (the latter times e^tilt)
  Message *up, *down;
  NodeNotes* notes;
  double* messages;     // (leaves,) or null
  double* log_beliefs;  // packed like tables, or null
  // The error of message d is at most leaf_bound[d] + leaf_amplification[d] * (sum of all `amplified`).
  double *leaf_bound, *leaf_amplification;
  PlanCache* plans;
  bool use_fft;
};

// A message over the counts lo .. lo + length - 1 and its derivative.
struct DualMessage {
  double *value, *change;
  int32_t lo, length;
};
struct DualUp : DualMessage {
  double sum, norm, change_sum, change_norm;  // 1-norms and 2-norms of both parts
};

// What an inner node remembers. Errors are shares of Z, or of Z times the size of the direction for derivatives.
struct TangentNode {
  DualUp up;
  DualMessage down;
  double factor;                              // up = f c factor
  double log_top, table_limit;                // the table is used as f e^-log_top; its largest value, also where cut off
  double direction_limit;                     // largest |h|
  double cut, change_cut;                     // mass of up cut off at its ends
  int32_t transform;                          // length of the transforms; 0: merged directly
  double* spectra;                            // left, its derivative, right, its derivative
  double down_limit, down_change_limit;       // upper bounds of the down values, also at counts that were cut off
  double overlap;                             // <up, down>
  double cut_error, cut_change_error;         // by cut ends and underflow
  double noise, change_noise;                 // squares: by this node's upward transform
  double path, change_path;                   // squares: by the downward transforms above
};

// One model and one direction. `h`, `change`, `beliefs` and `belief_change` may be null.
struct TangentItem {
  const TreeView* tree;
  const double *nu, *tables, *v, *h;
  TangentNode* nodes;
  double *change, *beliefs, *belief_change;
  double* leaf_path;  // (leaves, 2): path and change_path
  PlanCache* plans;
  bool use_fft;
  double direction_limit;  // sum of |v|: what the values of a message are multiplied by, at most, in their derivatives
};

// The tree kernels of one level, as a table of plain functions.

// "waves" is "fft" with the loose variables of every group solved by their characteristic function where that works.
enum class KernelName { direct, fft, waves, wide };

template <class Item>
using NodeKernel = void (*)(Item& item, Worker& worker, int32_t node);

struct TreeKernels {
  // Messages of the variables that are not inside a block.
  void (*tree_leaves)(const TreeItem& item, const int32_t* variables, ptrdiff_t count);
  // For the linear method.
  void (*block_up)(TreeItem& item, Worker& worker, const BlockGroup& group);
  void (*block_down)(TreeItem& item, Worker& worker, const BlockGroup& group);
  void (*wave_up)(TreeItem& item, Worker& worker, int32_t node, const WaveMessage& wave);
  // g = f . down of the node, zero up to kPad entries beyond; also notes the error of its upward message.
  void (*wave_gradient)(TreeItem& item, Worker& worker, int32_t node, double* g);
  void (*child_shape)(const double* value, int32_t length, double sum, ChildShape* shape);
  double (*child_log_mgf)(const double* value, int32_t length, double sum, double s, int32_t centre);
  // Down values of a star's child, the sums over everything else; `error` is that of each.
  void (*star_child)(TreeItem& item, Worker& worker, int32_t star, int32_t child, const double* value, double error,
                     double down_limit, double lost);
  Interval (*star_domain)(const TreeItem& item, int32_t node);
  // Many small models side by side; a bound of infinity asks for another pass. The scratch memory, in doubles, is for any of
  // these.
  ptrdiff_t (*small_scratch)(const TreeView& tree, bool derivatives);
  void (*small_messages)(const TreeView& tree, const SmallModels& models, double* scratch, double* log_mean, double* bound);
  void (*small_tangents)(const TreeView& tree, const SmallModels& models, double* scratch, double* bound);
  // One configuration after the other. `lost` is the share of all weight that samples cannot reach because it underflowed;
  // infinite where nothing is certain.
  void (*small_draws)(const TreeView& tree, const SmallModels& models, const SmallDraws& draws, double* scratch,
                      double* lost);
  // log P(count) of the root `node`. Rows of `out` have as many entries as the node has counts; false where an entry may have
  // underflowed.
  void (*small_counts)(const TreeView& tree, const SmallModels& models, int32_t node, double* scratch, double* const* out,
                       bool* certain);
  // Passes over the inner nodes: `up` in ascending order of ids; `start_down` at the roots, then `down` in descending order.
  NodeKernel<TreeItem> linear_up, linear_start_down, linear_down, wide_up, wide_start_down, wide_down;
  NodeKernel<TangentItem> tangent_up, tangent_start_down, tangent_down;
};

}  // namespace tallytree
