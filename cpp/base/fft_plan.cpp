
#include <cmath>
#include <stdexcept>

#include "base/parallel.hpp"
#include "base/workspace.hpp"

namespace tallytree {

struct OwnedPlan {
  FftPlan plan;
  AlignedArray outer, inner;
};

namespace {

// The angle 2 pi num / den as a fraction, so that its cosine and sine can be reduced to an eighth of a turn exactly.
struct Turn {
  int64_t num, den;

  Turn part(int radix, int q) const { return {num + q * den, den * radix}; }  // (angle + 2 pi q) / radix
  Turn times(int p) const { return {num * p % den, den}; }

  void cos_sin(double& c, double& s) const {
    int64_t n = num % den;
    int quarter = (int)((8 * n + den) / (2 * den));  // nearest multiple of a quarter turn
    const double a = 2 * M_PI * ((double)(4 * n - quarter * den) / (4.0 * (double)den));
    const double x = std::cos(a), y = std::sin(a);
    switch (quarter & 3) {
      case 0: c = x, s = y; break;
      case 1: c = -y, s = x; break;
      case 2: c = -x, s = -y; break;
      default: c = y, s = -x; break;
    }
  }
};

void add_radices(int32_t length, FftStage* stages, int32_t& count) {
  count = 0;
  while (length % 3 == 0) stages[count++].radix = 3, length /= 3;
  int log2 = 0;
  while (1 << log2 < length) log2++;
  if (log2 & 1) stages[count++].radix = 2;
  for (int k = 0; k < log2 / 2; k++) stages[count++].radix = 4;
}

// Walks the stages from the block with angle `root`; writes factor t of lane `lane` at out[t * lanes + lane].
std::vector<Turn> walk(Turn root, int32_t length, FftStage* stages, int32_t count, double* out, int lanes, int lane) {
  std::vector<Turn> angles = {root}, next;
  ptrdiff_t at = 0;
  for (int32_t k = 0; k < count; k++) {
    const int radix = stages[k].radix;
    stages[k].length = length;
    stages[k].blocks = (int32_t)angles.size();
    stages[k].twiddles = at;
    next.clear();
    for (const Turn a : angles) {
      const Turn base = a.part(radix, 0);
      for (int p = 1; p < radix; p++, at += 2)
        base.times(p).cos_sin(out[at * lanes + lane], out[(at + 1) * lanes + lane]);
      for (int q = 0; q < radix; q++) next.push_back(a.part(radix, q));
    }
    angles.swap(next);
    length /= radix;
  }
  return angles;
}

std::unique_ptr<OwnedPlan> make_plan(int32_t N, int lanes) {
  auto owned = std::make_unique<OwnedPlan>();
  FftPlan& plan = owned->plan;
  plan.length = N;
  const int32_t M = N / 2, q = M / lanes;
  add_radices(lanes, plan.outer, plan.outer_stages);
  add_radices(q, plan.inner, plan.inner_stages);
  owned->outer = aligned_doubles((size_t)(2 * lanes));
  owned->inner = aligned_doubles((size_t)(2 * q * lanes));
  const std::vector<Turn> lane_angles =
      walk({1, 4}, M, plan.outer, plan.outer_stages, owned->outer.get(), 1, 0);  // t^M = i, a quarter turn
  for (int lane = 0; lane < lanes; lane++)
    walk(lane_angles[(size_t)lane], q, plan.inner, plan.inner_stages, owned->inner.get(), lanes, lane);
  plan.outer_twiddles = owned->outer.get();
  plan.inner_twiddles = owned->inner.get();
  return owned;
}

}  // namespace

// Slot 2k: length 128 * 2^k; slot 2k+1: 384 * 2^k; one row per lane count 2, 4, 8.
struct PlanCache {
  std::atomic<OwnedPlan*> slot[3][48] = {};

  ~PlanCache() {
    for (auto& row : slot)
      for (auto& s : row) delete s.load();
  }
};

std::shared_ptr<PlanCache> new_plan_cache() { return std::make_shared<PlanCache>(); }

int32_t fft_length(int64_t n) {
  if (n > kLongestTransform) throw std::length_error("a transform of more than 3 * 2^29 numbers was asked for");
  int64_t power = 128, third = 384;
  while (power < n) power *= 2;
  while (third < n) third *= 2;
  return (int32_t)(power < third ? power : third);
}

const FftPlan* fft_plan(PlanCache* cache, int32_t length, int lanes) {
  int slot = length % 3 == 0;
  for (int64_t n = length % 3 == 0 ? 384 : 128; n < length; n *= 2) slot += 2;
  return &made_once(cache->slot[lanes == 8 ? 2 : lanes == 4 ? 1 : 0][slot], [&] { return make_plan(length, lanes); }).plan;
}

}  // namespace tallytree
