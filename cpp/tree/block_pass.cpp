// Linear passes through blocks: subtrees of one shape without tables, one block per SIMD lane.
//
// The up values of a block are not kept: on the way down they are computed once more, which is cheaper than memory.
#include "base/simd_rows.hpp"
#include "base/simd_tree.hpp"
#include "tree/linear.hpp"

namespace tallytree::TT_LEVEL {

// Bernoulli weights of the two states of a variable, with exponents so that no logit is too large.
struct LeafWeights {
  vec off, off_exponent, on, on_exponent;
};

struct Tilt {
  vec value, exponent;

  explicit Tilt(double tilt) { value = exp_split(splat(tilt), exponent); }
};

// With p = sigmoid(x): weight of y=0 is 1-p, weight of y=1 is p e^tilt. Excluded (-inf) and forced (+inf) variables
// get an exact zero.
static inline LeafWeights leaf_weights(vec x, const Tilt& tilt) {
  vec rare_exponent;
  const vec rare = exp_split_or_zero(x < 0.0 ? x : -x, rare_exponent);
  const vec likely = 1.0 / (1.0 + rare * pow2(rare_exponent)), unlikely = rare * likely;
  const auto positive = x > 0.0, excluded = x == -__builtin_inf();
  LeafWeights w;
  w.off = positive ? unlikely : likely;
  w.off_exponent = positive ? rare_exponent : vec{};
  w.on = (positive ? likely : unlikely) * tilt.value;
  w.on_exponent = excluded ? splat(kZeroExponent) : (positive ? vec{} : rare_exponent) + tilt.exponent;
  return w;
}

void tree_leaves(const TreeItem& item, const int32_t* variables, ptrdiff_t count) {
  const Tilt tilt(item.tilt);
  for (ptrdiff_t first = 0; first < count; first += kLanes) {
    const ptrdiff_t n = count - first < kLanes ? count - first : kLanes;
    vec x = {};
    for (ptrdiff_t j = 0; j < n; j++) x[j] = item.nu[variables[first + j]];
    const LeafWeights w = leaf_weights(x, tilt);
    for (ptrdiff_t j = 0; j < n; j++) {
      const int32_t d = variables[first + j];
      item.leaf_value[0][d] = w.off[j];
      item.leaf_exponent[0][d] = w.off_exponent[j];
      item.leaf_value[1][d] = w.on[j];
      item.leaf_exponent[1][d] = w.on_exponent[j];
    }
  }
}

// Vectors of all slots: entry k of slot s is slot(s)[k], one block per lane.
struct Slots {
  const BlockShape& shape;
  vec* data;

  vec* slot(int s) const { return data + shape.start[s]; }
};

// Up values of the blocks first .. first+count-1 of the group. Returns the exponent taken out, per lane.
static vec block_up_values(const TreeItem& item, const BlockGroup& group, int first, int count, const Slots& up,
                           vec* padded) {
  const BlockShape& shape = *group.shape;
  const Tilt tilt(item.tilt);
  vec scale = {};
  for (int s = 0; s < shape.leaves; s++) {
    vec x = {};
    for (int j = 0; j < count; j++) x[j] = item.nu[group.leaves[(ptrdiff_t)(first + j) * shape.leaves + s]];
    const LeafWeights w = leaf_weights(x, tilt);
    const vec e = max(w.off_exponent, w.on_exponent);
    up.slot(s)[0] = w.off * pow2(w.off_exponent - e);
    up.slot(s)[1] = w.on * pow2(w.on_exponent - e);
    scale += e;
  }
  for (int m = 0; m < shape.merges; m++) {
    const int l = shape.left[m], r = shape.right[m];
    convolve_any(up.slot(l), shape.size[l] + 1, up.slot(r), shape.size[r] + 1, up.slot(shape.leaves + m), padded);
  }
  return scale;
}

static void up_lanes(TreeItem& item, Worker& worker, const BlockGroup& group, int first, int count) {
  const BlockShape& shape = *group.shape;
  const Slots up = {shape, (vec*)worker.scratch};
  const vec scale = block_up_values(item, group, first, count, up, up.data + shape.total);
  const int n = shape.leaves + 1;
  vec* root = up.slot(shape.leaves + shape.merges - 1);

  vec top = {};
  for (int k = 0; k < n; k++) top = max(top, root[k]);
  const vec shift = exponent_of(top), factor = pow2(-shift);
  vec sum = {}, squares = {}, least = splat(2.0);
  ivec dropped = {};
  for (int k = 0; k < n; k++) {
    vec x = root[k] * factor;
    const auto small = x < 0x1p-1000;
    dropped |= small;  // no entry of a block is zero but by underflow
    x = small ? vec{} : x;
    least = small ? least : min(least, x);
    sum += x;
    squares += x * x;
    root[k] = x;
  }
  double* rows[kLanes];
  for (int j = 0; j < count; j++) {
    const int32_t i = group.roots[first + j];
    rows[j] = arena_take(worker.arena, (size_t)(n + 2 * kLanes));
    fill(rows[j] + n, kLanes, 0.0);
    item.up[i] = {rows[j], nullptr, 0, n, scale[j] + shift[j]};
    NodeNotes& note = item.notes[i];
    note = {};
    note.sum = sum[j];
    note.norm2 = real::sqrt((double)squares[j]);
    note.smallest = least[j];
    note.lost_up = dropped[j] ? kTiny + 1 : -__builtin_inf();
    note.rounding = 24.0 * shape.merges;
    note.shift = shift[j];
  }
  to_rows(rows, count, n, [&](ptrdiff_t k) { return root[k]; });
}

void block_up(TreeItem& item, Worker& worker, const BlockGroup& group) {
  for (int first = 0; first < group.count; first += kLanes)
    up_lanes(item, worker, group, first, min(kLanes, group.count - first));
}

// Z / up(k), as in linear_pass.cpp.
static void start_probe(const vec* u, const vec* d, int n, vec* probe) {
  vec z = {};
  for (int k = 0; k < n; k++) z += u[k] * d[k];
  for (int k = 0; k < n; k++) probe[k] = u[k] > 0.0 ? z / u[k] : vec{};
}

// Messages of the leaves in slot s, and the largest of what the certificate needs.
struct Finish {
  vec amplification = {}, weakest = splat(__builtin_inf()), largest = {};

  vec leaf(const vec* d, const vec* probe, double tilt) {
    const vec off = d[0], on = d[1];
    weakest = min(weakest, min(off, on));
    if (probe) amplification = max(amplification, probe[0] / off + probe[1] / on);
    vec r = log(on) - log(off) + tilt;
    r = r == r ? r : vec{};
    largest = abs(r) < __builtin_inf() ? max(largest, abs(r)) : largest;
    return r;
  }
};

static void down_lanes(TreeItem& item, Worker& worker, const BlockGroup& group, int first, int count) {
  const BlockShape& shape = *group.shape;
  vec* room = (vec*)worker.scratch;
  const Slots up = {shape, room}, down = {shape, room + shape.total}, probe = {shape, room + 2 * shape.total};
  block_up_values(item, group, first, count, up, room + 3 * shape.total);
  const int root = shape.leaves + shape.merges - 1;
  const double* rows[kLanes];
  for (int j = 0; j < count; j++) rows[j] = item.down[group.roots[first + j]].value;
  by_entry(rows, count, shape.leaves + 1, [&](ptrdiff_t k, vec x) { down.slot(root)[k] = x; });

  // A probe starts in the largest subtrees of at most kProbeSize leaves and is passed on below them.
  const bool probing = item.use_fft;
  bool starts[2 * kBlockLeavesMost] = {};
  Finish finish;
  for (int m = shape.merges; m-- > 0;) {
    const int s = shape.leaves + m, children[2] = {shape.left[m], shape.right[m]};
    for (int side = 0; side < 2; side++) {
      const int v = children[side], w = children[1 - side], n = shape.size[v] + 1, nw = shape.size[w] + 1;
      correlate_any(down.slot(s), up.slot(w), nw, down.slot(v), n);
      if (!probing || shape.size[v] > kProbeSize) continue;
      if (shape.size[s] > kProbeSize) start_probe(up.slot(v), down.slot(v), n, probe.slot(v));
      else if (starts[s]) worst_of(probe.slot(s), up.slot(w), nw, probe.slot(v), n);
      else correlate_any(probe.slot(s), up.slot(w), nw, probe.slot(v), n);
      starts[v] = shape.size[s] > kProbeSize;
    }
  }
  for (int s = 0; s < shape.leaves; s++) {
    const vec r = finish.leaf(down.slot(s), probing ? probe.slot(s) : nullptr, item.tilt);
    for (int j = 0; j < count; j++) item.messages[group.leaves[(ptrdiff_t)(first + j) * shape.leaves + s]] = r[j];
  }
  vec total = {};
  for (int k = 0; k <= shape.leaves; k++) total += up.slot(root)[k];
  for (int j = 0; j < count; j++) {
    NodeNotes& note = item.notes[group.roots[first + j]];
    const double amplification = finish.amplification[j];
    note.block_amplification = amplification >= 0 ? amplification : __builtin_inf();
    note.block_message = finish.largest[j];
    // Losses above and inside the block, as absolute errors of the leaves' down values.
    const double lost = log2_sum_above(note.lost_down, note.lost_up) + real::log2((double)total[j] + 1.0) + 4;
    note.block_bound = note.path_error > 0 ? note.block_amplification * note.path_error : 0.0;
    if (lost > -__builtin_inf())
      note.block_bound += lost > 0 ? __builtin_inf() : 2 * pow2(max(real::ceil(lost), -1022.0)) / finish.weakest[j];
    if (!(note.block_bound >= 0)) note.block_bound = __builtin_inf();
  }
}

void block_down(TreeItem& item, Worker& worker, const BlockGroup& group) {
  for (int first = 0; first < group.count; first += kLanes)
    down_lanes(item, worker, group, first, min(kLanes, group.count - first));
}

}  // namespace tallytree::TT_LEVEL
