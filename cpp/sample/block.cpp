// Variables of a block, one after the other, given how many are still to come.
//
// With rho(r) = P(r of the later ones on) / P(r - 1 of them on) a variable of odds w is on with probability
// w / (w + rho(r)), and rho(r) <- (rho(r) + w) rho(r-1) / (rho(r-1) + w) when it joins: positive terms only.
#include "base/real.hpp"
#include "base/elementary.hpp"
#include "sample/lanes.hpp"

namespace tallytree::TT_LEVEL {

namespace {

constexpr int kRow = kBlock + 8;
constexpr double kPlainSpan = 600.0;  // log-odds of a block within this range need no logarithms

double log_add(double a, double b) {
  const double top = a > b ? a : b;
  return top == -__builtin_inf() ? top : top + real::log1p(real::exp(-real::fabs(a - b)));
}

void set_row(BlockTable* table, int i) {
  const int most = table->n - i;  // all that are left
  double* on = table->on[i];
  on[0] = 0.0;
  on[most] = 1.0;  // exactly
  for (int r = most + 1; r < kRow; r++) on[r] = 1.0;
  for (int r = 0; r < kThresholds; r++) table->high[i][r] = (uint16_t)(int)(on[r] * 32768.0);
}

// Leaves rho(1..n), divided by exp(centre), in ratio[1..n].
void recursion(const double* nu, int n, double centre, double* ratio, BlockTable* table) {
  double off[kRow], sum[kRow];
  for (int r = 0; r < kRow; r++) ratio[r] = 0.0;
  for (int i = n - 1; i >= 0; i--) {
    const double w = real::exp(nu[i] - centre);
    const int most = n - i;
    off[0] = 1.0;
    for (int r = 1; r <= most; r += kLanes) {
      const vec rho = load(ratio + r), s = rho + w, inverse = 1.0 / s;
      store(sum + r, s);
      store(off + r, rho * inverse);
      if (table) store(table->on[i] + r, w * inverse);
    }
    for (int r = 1; r <= most; r += kLanes) store(ratio + r, load(sum + r) * load(off + r - 1));
    for (int r = most + 1; r < most + kLanes && r < kRow; r++) ratio[r] = 0.0;
    if (table) set_row(table, i);
  }
}

// The same in logarithms.
void log_recursion(const double* nu, int n, double* log_ratio, BlockTable* table) {
  for (int r = 0; r < kRow; r++) log_ratio[r] = -__builtin_inf();
  for (int i = n - 1; i >= 0; i--) {
    double joined[kRow];
    for (int r = 1; r <= n - i; r++) joined[r] = log_add(log_ratio[r], nu[i]);
    if (table) {
      for (int r = 1; r <= n - i; r++) table->on[i][r] = 1.0 / (1.0 + real::exp(log_ratio[r] - nu[i]));
      set_row(table, i);
    }
    for (int r = n - i; r >= 2; r--) log_ratio[r] = log_ratio[r - 1] + (joined[r] - joined[r - 1]);
    log_ratio[1] = joined[1];
  }
}

// Middle of the log-odds, or NaN where they spread too far.
double centre_of(const double* nu, int n) {
  double low = nu[0], high = nu[0];
  for (int i = 1; i < n; i++) {
    low = nu[i] < low ? nu[i] : low;
    high = nu[i] > high ? nu[i] : high;
  }
  return high - low <= kPlainSpan ? 0.5 * (low + high) : __builtin_nan("");
}

// 64 x 64 bits.
void transpose(uint64_t* m) {
  uint64_t mask = 0x00000000ffffffffu;
  for (int j = 32; j; j >>= 1, mask ^= mask << j)
    for (int base = 0; base < 64; base += 2 * j)
      for (int k = base; k < base + j; k++) {
        const uint64_t t = ((m[k] >> j) ^ m[k + j]) & mask;
        m[k] ^= t << j;
        m[k + j] ^= t;
      }
}

}  // namespace

// log P(r + 1) - log P(r) falls with r, so the most probable count is where its sign changes. Summed from there, the
// entries that matter are small numbers however large the log-odds are; they add up to one.
void block_message(const double* nu, int n, double* out) {
  double ratio[kRow + kLanes];
  out[0] = 0;
  if (n == 0) return;
  const double centre = centre_of(nu, n);
  if (centre == centre) {
    recursion(nu, n, centre, ratio, nullptr);
    for (int r = 1; r <= n; r++) ratio[r] = real::log(ratio[r]) + centre;
  } else {
    log_recursion(nu, n, ratio, nullptr);
  }
  int mode = 0;
  while (mode < n && ratio[mode + 1] > 0) mode++;
  out[mode] = 0;
  double total = 1.0;
  for (int r = mode + 1; r <= n; r++) total += real::exp(out[r] = out[r - 1] + ratio[r]);
  for (int r = mode; r > 0; r--) total += real::exp(out[r - 1] = out[r] - ratio[r]);
  const double log_total = real::log(total);
  for (int r = 0; r <= n; r++) out[r] -= log_total;
}

void block_table(const double* nu, int n, BlockTable* table) {
  double ratio[kRow + kLanes];
  table->n = n;
  table->counted = true;
  const double centre = n ? centre_of(nu, n) : 0.0;
  if (centre == centre) recursion(nu, n, centre, ratio, table);
  else log_recursion(nu, n, ratio, table);
}

void plain_table(const double* nu, int n, BlockTable* table) {
  table->n = n;
  table->counted = false;
  for (int i = 0; i < n; i++) {
    const double on = 1.0 / (1.0 + real::exp(-nu[i]));
    for (int r = 0; r < kRow; r++) table->on[i][r] = on;
    for (int r = 0; r < kThresholds; r++) table->high[i][r] = (uint16_t)(int)(on * 32768.0);
  }
}

void draw_block(const BlockTable* table, const int32_t* counts, int lanes, const SampleKey* key, uint32_t tag,
                uint32_t id, uint32_t group, uint64_t* words) {
  alignas(64) uint16_t r[64] = {};
  alignas(64) uint64_t bits[64 * 64 / 4 + 2 * kCalls];
  uint64_t full = 0, any = 0;
  for (int lane = 0; table->counted && lane < lanes; lane++) {
    full |= (uint64_t)(counts[lane] == kThresholds) << lane;
    r[lane] = (uint16_t)(counts[lane] == kThresholds ? 0 : counts[lane]);
    any |= r[lane];
  }
  int width = 1;
  while (width < lanes) width *= 2;
  for (int i = 0; i < 64; i++) words[i] = 0;
  if (any || !table->counted) {
    const ptrdiff_t calls = ((ptrdiff_t)table->n * width + 8 * kCalls - 1) / (8 * kCalls) * kCalls;
    philox(*key, tag, id, group, calls, bits);
    const uint16_t* halves = (const uint16_t*)bits;
#ifdef TT_DRAW_LANES
    if (width == 64) draw_lanes(table, r, halves, *key, tag, id, group, words);
    else
#endif
      draw_any(table, r, width, halves, *key, tag, id, group, words);
    transpose(words);
  }
  for (; full; full &= full - 1) words[__builtin_ctzll(full)] = ~(uint64_t)0;
}

void write_block(const uint64_t* words, int lanes, const int64_t* variables, int n, bool contiguous, uint8_t* out,
                 const int64_t* rows, ptrdiff_t stride) {
  for (int lane = 0; lane < lanes; lane++) {
    uint8_t* row = out + rows[lane] * stride;
    const uint64_t word = words[lane];
    if (!contiguous) {
      for (int i = 0; i < n; i++) row[variables[i]] = (uint8_t)(word >> i & 1);
      continue;
    }
    uint8_t* to = row + variables[0];
#if defined(__AVX512BW__)
    _mm512_mask_storeu_epi8(to, n == 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1, _mm512_maskz_set1_epi8(word, 1));
#else
    uint64_t bytes[8];
    for (int j = 0; j < 8; j++) {
      const uint64_t spread = (word >> 8 * j & 0xff) * 0x0101010101010101u & 0x8040201008040201u;
      bytes[j] = (spread + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
    }
    if (n == 64) std::memcpy(to, bytes, 64);
    else std::memcpy(to, bytes, (size_t)n);
#endif
  }
}

}  // namespace tallytree::TT_LEVEL
