// Linear passes through blocks: subtrees of one shape without tables, one block per SIMD lane.
//
// The up values of a block are not kept: on the way down they are computed once more, which is cheaper than memory.
#include "tree/leaf_weights.hpp"
#include "tree/linear.hpp"
#include "base/lane_entries.hpp"
#include "tree/kernels.hpp"

namespace tallytree::TT_LEVEL {

// Vectors of all slots, entry k of slot s of lane j at [(start[s] + k) * kLanes + j].
struct Lanes {
  const BlockShape& shape;
  double* data;

  double* slot(int s) const { return data + (ptrdiff_t)shape.start[s] * kLanes; }
};

// out[k] = sum_i a[i] b[k-i], all lanes.
static void convolve_lanes(const double* a, int na, const double* b, int nb, double* out) {
  for (int k = 0; k < na + nb - 1; k++) {
    const int i0 = max(0, k - nb + 1), i1 = min(na - 1, k);
    vec even = {}, odd = {};
    int i = i0;
    for (; i + 1 <= i1; i += 2) {
      even += load(a + i * kLanes) * load(b + (k - i) * kLanes);
      odd += load(a + (i + 1) * kLanes) * load(b + (k - i - 1) * kLanes);
    }
    if (i <= i1) even += load(a + i * kLanes) * load(b + (k - i) * kLanes);
    store(out + k * kLanes, even + odd);
  }
}

// out[k] = sum_j g[k+j] u[j] for k < n, all lanes; four outputs at a time share the load of u[j].
static void correlate_lanes(const double* g, const double* u, int nu, double* out, int n) {
  int k = 0;
  for (; k + 4 <= n; k += 4) {
    vec sum[4] = {};
    for (int j = 0; j < nu; j++) {
      const vec w = load(u + j * kLanes);
#pragma GCC unroll 4
      for (int t = 0; t < 4; t++) sum[t] += load(g + (k + t + j) * kLanes) * w;
    }
    for (int t = 0; t < 4; t++) store(out + (k + t) * kLanes, sum[t]);
  }
  for (; k < n; k++) {
    vec sum = {};
    for (int j = 0; j < nu; j++) sum += load(g + (k + j) * kLanes) * load(u + j * kLanes);
    store(out + k * kLanes, sum);
  }
}

// out[k] = max_j g[k+j] u[j] for k < n, all lanes.
static void worst_lanes(const double* g, const double* u, int nu, double* out, int n) {
  for (int k = 0; k < n; k++) {
    vec worst = {};
    for (int j = 0; j < nu; j++) worst = max(worst, load(g + (k + j) * kLanes) * load(u + j * kLanes));
    store(out + k * kLanes, worst);
  }
}

// Up values of the blocks first .. first+count-1 of the group. Returns the exponent taken out, per lane.
static vec block_up_values(const TreeItem& item, const BlockGroup& group, int first, int count, const Lanes& up) {
  const BlockShape& shape = *group.shape;
  const Tilt tilt(item.tilt);
  vec scale = {};
  for (int s = 0; s < shape.leaves; s++) {
    vec x = {};
    for (int j = 0; j < count; j++) x[j] = item.nu[group.leaves[(ptrdiff_t)(first + j) * shape.leaves + s]];
    const LeafWeights w = leaf_weights(x, tilt);
    const vec e = max(w.off_exponent, w.on_exponent);
    store(up.slot(s), w.off * pow2(w.off_exponent - e));
    store(up.slot(s) + kLanes, w.on * pow2(w.on_exponent - e));
    scale += e;
  }
  for (int m = 0; m < shape.merges; m++) {
    const int l = shape.left[m], r = shape.right[m];
    convolve_lanes(up.slot(l), shape.size[l] + 1, up.slot(r), shape.size[r] + 1, up.slot(shape.leaves + m));
  }
  return scale;
}

static void up_lanes(TreeItem& item, Worker& worker, const BlockGroup& group, int first, int count) {
  const BlockShape& shape = *group.shape;
  const Lanes up = {shape, worker.scratch};
  const vec scale = block_up_values(item, group, first, count, up);
  const int n = shape.leaves + 1;
  double* root = up.slot(shape.leaves + shape.merges - 1);

  vec top = {};
  for (int k = 0; k < n; k++) top = max(top, load(root + k * kLanes));
  const vec shift = exponent_of(top), factor = pow2(-shift);
  vec sum = {}, squares = {}, least = splat(2.0);
  ivec dropped = {};
  for (int k = 0; k < n; k++) {
    vec x = load(root + k * kLanes) * factor;
    const auto small = x < 0x1p-1000;
    dropped |= small;  // no entry of a block is zero but by underflow
    x = small ? vec{} : x;
    least = small ? least : min(least, x);
    sum += x;
    squares += x * x;
    store(root + k * kLanes, x);
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
  to_rows(rows, count, n, [&](ptrdiff_t k) { return load(root + k * kLanes); });
}

void block_up(TreeItem& item, Worker& worker, const BlockGroup& group) {
  for (int first = 0; first < group.count; first += kLanes)
    up_lanes(item, worker, group, first, min(kLanes, group.count - first));
}

// Z / up(k), as in linear_down.cpp.
static void start_probe(const double* u, const double* d, int n, double* probe) {
  vec z = {};
  for (int k = 0; k < n; k++) z += load(u + k * kLanes) * load(d + k * kLanes);
  for (int k = 0; k < n; k++) {
    const vec x = load(u + k * kLanes);
    store(probe + k * kLanes, x > 0.0 ? z / x : vec{});
  }
}

// Messages of the leaves in slot s, and the largest of what the certificate needs.
struct Finish {
  vec amplification = {}, weakest = splat(__builtin_inf()), largest = {};

  vec leaf(const double* d, const double* probe, double tilt) {
    const vec off = load(d), on = load(d + kLanes);
    weakest = min(weakest, min(off, on));
    if (probe) amplification = max(amplification, load(probe) / off + load(probe + kLanes) / on);
    vec r = log(on) - log(off) + tilt;
    r = r == r ? r : vec{};
    const vec size = r < 0.0 ? -r : r;
    largest = size < __builtin_inf() ? max(largest, size) : largest;
    return r;
  }
};

static void down_lanes(TreeItem& item, Worker& worker, const BlockGroup& group, int first, int count) {
  const BlockShape& shape = *group.shape;
  const ptrdiff_t part = (ptrdiff_t)shape.total * kLanes;
  const Lanes up = {shape, worker.scratch}, down = {shape, worker.scratch + part};
  const Lanes probe = {shape, worker.scratch + 2 * part};
  block_up_values(item, group, first, count, up);
  const int root = shape.leaves + shape.merges - 1;
  const double* rows[kLanes];
  for (int j = 0; j < count; j++) rows[j] = item.down[group.roots[first + j]].value;
  by_entry(rows, count, shape.leaves + 1, [&](ptrdiff_t k, vec x) { store(down.slot(root) + k * kLanes, x); });

  // A probe starts in the largest subtrees of at most kProbeSize leaves and is passed on below them.
  const bool probing = item.use_fft;
  bool starts[2 * kBlockLeavesMost] = {};
  Finish finish;
  for (int m = shape.merges; m-- > 0;) {
    const int s = shape.leaves + m, children[2] = {shape.left[m], shape.right[m]};
    for (int side = 0; side < 2; side++) {
      const int v = children[side], w = children[1 - side], n = shape.size[v] + 1, nw = shape.size[w] + 1;
      correlate_lanes(down.slot(s), up.slot(w), nw, down.slot(v), n);
      if (!probing || shape.size[v] > kProbeSize) continue;
      if (shape.size[s] > kProbeSize) start_probe(up.slot(v), down.slot(v), n, probe.slot(v));
      else if (starts[s]) worst_lanes(probe.slot(s), up.slot(w), nw, probe.slot(v), n);
      else correlate_lanes(probe.slot(s), up.slot(w), nw, probe.slot(v), n);
      starts[v] = shape.size[s] > kProbeSize;
    }
  }
  for (int s = 0; s < shape.leaves; s++) {
    const vec r = finish.leaf(down.slot(s), probing ? probe.slot(s) : nullptr, item.tilt);
    for (int j = 0; j < count; j++) item.messages[group.leaves[(ptrdiff_t)(first + j) * shape.leaves + s]] = r[j];
  }
  vec total = {};
  for (int k = 0; k <= shape.leaves; k++) total += load(up.slot(root) + k * kLanes);
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
