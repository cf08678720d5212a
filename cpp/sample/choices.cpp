// Random words, independent variables, and counts: from one message, or of two children given their parent's.
#include "base/deviation.hpp"
#include "base/kernel_table.hpp"
#include "base/philox.hpp"
#include "sample/kernels.hpp"

namespace tallytree::TT_LEVEL {

namespace {

const double kInf = __builtin_inf();
constexpr ptrdiff_t kStep = 8;  // weights per entry of the first level of the search

// Weights of a distribution and running sums of every eight of them.
struct Wheel {
  double* weight;  // room for a multiple of eight
  double* sum;
  ptrdiff_t n, steps;
};

// weight[i] holds logarithms on entry.
void spin_up(Wheel& wheel) {
  const ptrdiff_t n = wheel.n;
  double top = -kInf;
  for (ptrdiff_t i = 0; i < n; i++) top = wheel.weight[i] > top ? wheel.weight[i] : top;
  for (ptrdiff_t i = n; i < n + kStep; i++) wheel.weight[i] = -kInf;
  wheel.steps = (n + kStep - 1) / kStep;
  for (ptrdiff_t i = 0; i < kStep * wheel.steps; i += kLanes)
    store(wheel.weight + i, exp(load(wheel.weight + i) - top));
  double total = 0;
  for (ptrdiff_t s = 0; s < wheel.steps; s++) {
    const double* w = wheel.weight + kStep * s;
    total += ((w[0] + w[1]) + (w[2] + w[3])) + ((w[4] + w[5]) + (w[6] + w[7]));
    wheel.sum[s] = total;
  }
}

// An entry of positive weight.
ptrdiff_t pick(const Wheel& wheel, uint64_t bits) {
  const double target = unit_interval(bits) * wheel.sum[wheel.steps - 1];
  ptrdiff_t low = 0, size = wheel.steps;
  while (size > 1) {  // first step whose running sum exceeds the target
    const ptrdiff_t half = size / 2;
    low += wheel.sum[low + half - 1] <= target ? half : 0;
    size -= half;
  }
  const double* w = wheel.weight + kStep * low;
  double sum = low ? wheel.sum[low - 1] : 0.0;
  ptrdiff_t last = 0;
  for (ptrdiff_t j = 0; j < kStep; j++) {
    if (!(w[j] > 0)) continue;
    last = j;
    sum += w[j];
    if (target < sum) break;
  }
  return kStep * low + last;
}

// 63 random bits as a number in [0, 1): small ones keep all their digits.
vec fine_unit(const uint64_t* words) {
  uvec bits;
  std::memcpy(&bits, words, sizeof bits);
  return __builtin_convertvector((ivec)(bits >> 1), vec) * 0x1p-63;
}

}  // namespace

void random_words(const SampleKey* key, uint32_t tag, uint32_t id, uint32_t group, ptrdiff_t calls, uint64_t* out) {
  philox(*key, tag, id, group, calls, out);
}

void random_bits(const SampleKey* key, uint32_t tag, uint32_t id, uint32_t first_group, ptrdiff_t samples,
                 uint64_t* out) {
  uint64_t bits[4 * kCalls];
  for (ptrdiff_t s = 0; s < samples; s += 64) {
    const ptrdiff_t count = samples - s < 64 ? samples - s : 64;
    philox(*key, tag, id, first_group + (uint32_t)(s / 64), count > 2 * kCalls ? 2 * kCalls : kCalls, bits);
    std::memcpy(out + s, bits, (size_t)count * sizeof(uint64_t));
  }
}

// Each variable leaves its likely state where a random number falls below the probability of that.
ptrdiff_t draw_bernoulli(const double* nu, ptrdiff_t n, double tilt, const SampleKey* key, uint32_t tag, uint32_t id,
                         uint32_t group, uint64_t* words, uint8_t* out) {
  philox(*key, tag, id, group, (n + 2 * kCalls - 1) / (2 * kCalls) * kCalls, words);
  vec total = vec{};
  for (ptrdiff_t i = 0; i < n; i += kLanes) {
    const vec t = load_up_to(nu + i, n - i, -__builtin_inf()) + tilt;
    const vec rare = 0.5 * deviation(t).delta;
    const vec likely = t < 0.0 ? vec{} : splat(1.0);
    const vec on = fine_unit(words + i) < rare ? 1.0 - likely : likely;
    total += on;
    for (ptrdiff_t l = 0; l < kLanes && i + l < n; l++) out[i + l] = (uint8_t)on[l];
  }
  return (ptrdiff_t)sum_lanes(total);
}

void pick_counts(const MessageView* message, const uint64_t* bits, ptrdiff_t samples, int32_t* out, double* scratch) {
  Wheel wheel{scratch, scratch + message->length + kStep, message->length, 0};
  std::memcpy(scratch, message->log_weight, (size_t)message->length * sizeof(double));
  spin_up(wheel);
  for (ptrdiff_t s = 0; s < samples; s++) out[s] = (int32_t)(message->low + pick(wheel, bits[s]));
}

// Samples with the same parent count share one table.
void split(const MessageView* left, const MessageView* right, const int32_t* parent, const uint64_t* bits,
           ptrdiff_t samples, int32_t* left_out, int32_t* right_out, int32_t* order, double* scratch) {
  int32_t least = parent[0], most = parent[0];
  for (ptrdiff_t s = 1; s < samples; s++) {
    least = parent[s] < least ? parent[s] : least;
    most = parent[s] > most ? parent[s] : most;
  }
  // Counting sort by parent count.
  int32_t* start = order + samples;
  const ptrdiff_t range = (ptrdiff_t)most - least + 1;
  for (ptrdiff_t z = 0; z <= range; z++) start[z] = 0;
  for (ptrdiff_t s = 0; s < samples; s++) start[parent[s] - least + 1]++;
  for (ptrdiff_t z = 0; z < range; z++) start[z + 1] += start[z];
  for (ptrdiff_t s = 0; s < samples; s++) order[start[parent[s] - least]++] = (int32_t)s;

  const ptrdiff_t n = right->length;
  double *reversed = scratch, *weight = scratch + n;  // reversed[n - 1 - j] = right[j]
  for (ptrdiff_t j = 0; j < n; j++) reversed[n - 1 - j] = right->log_weight[j];
  const int64_t left_high = left->low + left->length - 1, right_high = right->low + n - 1;
  ptrdiff_t begin = 0;
  for (ptrdiff_t z = 0; z < range; z++) {
    const ptrdiff_t end = start[z];
    if (begin == end) continue;
    const int64_t total = least + z;
    const int64_t low = left->low > total - right_high ? left->low : total - right_high;
    const int64_t high = left_high < total - right->low ? left_high : total - right->low;
    const ptrdiff_t length = high - low + 1;
    if (length == 1) {
      for (ptrdiff_t s = begin; s < end; s++) left_out[order[s]] = (int32_t)low;
    } else {
      const double* a = left->log_weight + (low - left->low);
      const double* b = reversed + (low - total + right_high);
      for (ptrdiff_t i = 0; i < length; i++) weight[i] = a[i] + b[i];
      Wheel wheel{weight, weight + length + kStep, length, 0};
      spin_up(wheel);
      for (ptrdiff_t s = begin; s < end; s++) left_out[order[s]] = (int32_t)(low + pick(wheel, bits[order[s]]));
    }
    begin = end;
  }
  for (ptrdiff_t s = 0; s < samples; s++) right_out[s] = parent[s] - left_out[s];
}

#define TT_SAMPLE_KERNELS(EACH) \
  EACH(log_convolve) EACH(block_message) EACH(block_table) EACH(independent_table) EACH(draw_block) EACH(write_block) \
  EACH(random_words) EACH(random_bits) EACH(split) EACH(pick_counts) EACH(draw_bernoulli)

TT_KERNEL_TABLE(SampleKernels, sample_kernels, TT_SAMPLE_KERNELS)

}  // namespace tallytree::TT_LEVEL
