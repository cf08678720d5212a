// Random words, independent variables, and counts: from one message, or of two children given their parent's; and how
// messages are convolved.
#include "base/deviation.hpp"
#include "base/kernels.hpp"
#include "base/philox.hpp"
#include "base/wide.hpp"
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

// Convolution of log-messages with relative accuracy in every entry: with one exponent per entry, and by logarithms where
// exponents cannot hold what is asked of them.

namespace {

constexpr double kFarthest = 1e14;  // nats between entries whose exponents tell them from zero

// The weights relative to the largest, whose logarithm is `top`; none if some are too small for that.
Wide weights(Worker& worker, const double* log_weight, int n, double* top) {
  const double zero = -__builtin_inf();
  double least = 0;
  *top = zero;
  for (int i = 0; i < n; i++) *top = max(*top, log_weight[i]);
  for (int i = 0; i < n; i++) least = min(least, log_weight[i] > zero ? log_weight[i] - *top : 0.0);
  if (*top == zero || least < -kFarthest) return {nullptr, nullptr, 0};
  double* value = arena_take(worker.arena, 2 * (size_t)(n + kLanes));
  double* exponent = value + n + kLanes;
  for (int i = 0; i < n; i += kLanes) {
    vec e;
    const vec v = exp_split_or_zero(load_up_to(log_weight + i, n - i, zero) - *top, e);
    store_wide(v, e, value + i, exponent + i);
  }
  return {value, exponent, n};
}

// log sum exp of one entry; -inf where no pair is possible.
double entry(const double* a, int na, const double* b, int nb, int k, double* terms) {
  const int low = max(0, k - nb + 1), n = min(na - 1, k) - low + 1;
  double top = -__builtin_inf();
  for (int i = 0; i < n; i++) {
    terms[i] = a[low + i] + b[k - low - i];
    top = max(top, terms[i]);
  }
  if (top == -__builtin_inf()) return top;
  vec sum = vec{};
  for (int i = 0; i < n; i += kLanes) sum += exp(load_up_to(terms + i, n - i, -__builtin_inf()) - top);
  let_signals_through_after(n);
  return top + real::log(sum_lanes(sum));
}

}  // namespace

void log_convolve(const double* a, ptrdiff_t na, const double* b, ptrdiff_t nb, ptrdiff_t first, ptrdiff_t last,
                  double* out, Worker& worker) {
  double top_a, top_b, *terms = scratch_part(worker, 7);
  const Wide x = weights(worker, a, (int)na, &top_a), y = weights(worker, b, (int)nb, &top_b);
  const int n = (int)(last - first + 1);
  if (!x.length || !y.length) {
    for (int k = 0; k < n; k++) out[k] = entry(a, (int)na, b, (int)nb, (int)first + k, terms);
    return;
  }
  double* value = arena_take(worker.arena, 2 * (size_t)(n + kTileOutputs));
  double* exponent = value + n + kTileOutputs;
  convolve_wide(x, y, (int)first, (int)last + 1, value, exponent, scratch_part(worker, 0));
  for (int k = 0; k < n; k += kLanes) {
    const vec m = load(value + k), e = load(exponent + k), logs = e * kLn2High + (e * kLn2Low + log(m));
    store_up_to(out + k, m > 0.0 ? logs + (top_a + top_b) : splat(-__builtin_inf()), n - k);
  }
}

}  // namespace tallytree::TT_LEVEL
