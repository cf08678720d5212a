// Samples of many small models on one tree: up side by side, then down by one decision per merge, model by model.
//
// The count of the left child has weights up_l(i) up_r(z - i) given the parent's count z, a root's count those of its
// message. A weight that underflowed to zero is never chosen and the others keep their proportions, so samples follow
// the law given that nothing underflowed: all that can be wrong is the share of the weight that was lost.
#include "base/philox.hpp"
#include "tree/small_tree.hpp"

namespace tallytree::TT_LEVEL {

namespace {

// Decisions of one sample: a split per inner node, a count per root, a state per free leaf. In whole calls of the
// generator, as words of 64 bits.
ptrdiff_t random_words(const TreeView& f) {
  ptrdiff_t decisions = f.inner;
  for (int32_t v = 0; v < f.leaves + f.inner; v++) decisions += f.parent[v] < 0;
  return (decisions + 2 * kCalls - 1) / (2 * kCalls) * (2 * kCalls);
}

// The first index at which the running sum of the weights exceeds its share `u` of the total: never one of weight 0.
ptrdiff_t choose_weight(double* weight, ptrdiff_t n, double u) {
  double total = 0;
  for (ptrdiff_t i = 0; i < n; i++) weight[i] = total += weight[i];
  const double reached = u * total;
  ptrdiff_t i = 0;
  while (i + 1 < n && !(weight[i] > reached)) i++;
  while (i > 0 && weight[i] == weight[i - 1]) i--;  // only if u * total was rounded up to the total
  return i;
}

struct SmallWalk {
  const SmallTree<vec*>& up;
  int lane;
  const uint64_t* words;
  int32_t* count;  // of every node
  double* weight;

  const double* message(int32_t node) const { return (const double*)up.up[node] + lane; }

  void root(int32_t node, uint64_t bits) const {
    const double* x = message(node);
    const ptrdiff_t n = up.f.size[node] + 1;
    for (ptrdiff_t k = 0; k < n; k++) weight[k] = x[k * kLanes];
    count[node] = (int32_t)choose_weight(weight, n, unit_interval(bits));
  }

  void split(int32_t i) const {
    const TreeView& f = up.f;
    const int32_t a = f.left[i], b = f.right[i], z = count[f.leaves + i];
    const int32_t low = z > f.size[b] ? z - f.size[b] : 0, high = z < f.size[a] ? z : f.size[a];
    int32_t chosen = low;
    if (high > low) {
      const double *x = message(a) + (ptrdiff_t)low * kLanes, *y = message(b) + (ptrdiff_t)(z - low) * kLanes;
      const ptrdiff_t n = high - low + 1;
      for (ptrdiff_t j = 0; j < n; j++) weight[j] = x[j * kLanes] * y[-j * kLanes];
      chosen = low + (int32_t)choose_weight(weight, n, unit_interval(words[i]));
    }
    count[a] = chosen;
    count[b] = z - chosen;
  }

  void run(uint8_t* out) const {
    const TreeView& f = up.f;
    const uint64_t* next = words + f.inner;
    for (int32_t i = f.inner; i-- > 0;) {
      if (f.parent[f.leaves + i] < 0) root(f.leaves + i, *next++);
      split(i);
    }
    for (int32_t d = 0; d < f.leaves; d++) {
      if (f.parent[d] < 0) root(d, *next++);
      out[d] = (uint8_t)count[d];
    }
  }
};

// Weight that underflow took from the roots, as a share of what is there.
vec lost_share(const SmallTree<vec*>& up) {
  vec lost = vec{};
  for (int32_t i = 0; i < up.f.inner; i++) {
    const int32_t v = up.f.leaves + i;
    if (up.f.parent[v] >= 0) continue;
    const ptrdiff_t n = up.f.size[v] + 1;
    vec sum = vec{};
    for (ptrdiff_t k = 0; k < n; k++) sum += up.up[v][k];
    for (int l = 0; l < kLanes; l++)
      lost[l] += sum[l] > 0 ? (double)n * real::exp2(up.lost_up[v][l]) / sum[l] : __builtin_inf();
  }
  return lost;
}

}  // namespace

void small_draws(const TreeView& f, const SmallModels& in, const SmallDraws& draws, double* scratch, double* lost) {
  SmallTree<vec*> up(f, in, scratch);
  for (int32_t i = 0; i < f.inner; i++) up.merge(i, true);
  const vec share = lost_share(up);
  for (int l = 0; l < in.count; l++) lost[l] = share[l];
  const ptrdiff_t words = random_words(f);
  uint64_t* random = up.room.take_other<uint64_t>(words);
  double* weight = up.room.take_other<double>(longest_message(f));
  int32_t* count = up.room.take_other<int32_t>((ptrdiff_t)f.leaves + f.inner);
  SampleKey key;
  std::memcpy(key.word, draws.key, sizeof key.word);
  for (int l = 0; l < in.count; l++) {
    if (!draws.out[l] || lost[l] == __builtin_inf()) continue;
    for (ptrdiff_t s = 0; s < draws.samples; s++) {
      philox(key, kTagLane, draws.model[l], (uint32_t)s, words / 2, random);
      SmallWalk{up, l, random, count, weight}.run(draws.out[l] + s * draws.stride);
    }
  }
}

}  // namespace tallytree::TT_LEVEL
