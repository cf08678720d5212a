// Variables of a block, one after the other, given how many are still to come.
//
// With rho(r) = P(r of the later ones on) / P(r - 1 of them on) a variable of odds w is on with probability
// w / (w + rho(r)), and rho(r) <- (rho(r) + w) rho(r-1) / (rho(r-1) + w) when it joins: positive terms only.
#include "base/exponent.hpp"
#include "base/philox.hpp"
#include "sample/kernels.hpp"
#if defined(__AVX512BW__)
#include <immintrin.h>
#elif defined(__SSSE3__)
#include <tmmintrin.h>  // all that is needed, and quickly read
#endif

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

// -- up to 64 samples side by side: a random number against a threshold from a table ---------------------------------

// The leading 15 bits were equal: 53 more decide.
bool tie(const BlockTable* table, int i, int r, const SampleKey& key, uint32_t tag, uint32_t id,
                       uint32_t group, int lane) {
  uint64_t bits[2 * kCalls];
  SampleKey own = key;
  own.word[2] ^= (uint32_t)(1 + kBlock * i + lane) << 8;  // one batch of calls per tie
  philox(own, kTagTie + (tag << 8), id, group, kCalls, bits);
  const double scaled = table->on[i][r] * 32768.0;
  return unit_interval(bits[0]) < scaled - real::floor(scaled);
}

#if defined(__AVX512BW__)
#define TT_DRAW_LANES
// 64 samples: a row of thresholds fits two registers, and one permutation looks up 32 counts.
void draw_lanes(const BlockTable* table, uint16_t* r, const uint16_t* bits, const SampleKey& key, uint32_t tag,
                       uint32_t id, uint32_t group, uint64_t* words) {
  __m512i r0 = _mm512_loadu_si512(r), r1 = _mm512_loadu_si512(r + 32);
  const __m512i one = _mm512_set1_epi16(table->counted ? 1 : 0), keep = _mm512_set1_epi16(0x7fff);
  for (int i = 0; i < table->n; i++) {
    const __m512i low = _mm512_load_si512(table->high[i]), high = _mm512_load_si512(table->high[i] + 32);
    const __m512i u0 = _mm512_and_si512(_mm512_loadu_si512(bits + 64 * i), keep);
    const __m512i u1 = _mm512_and_si512(_mm512_loadu_si512(bits + 64 * i + 32), keep);
    const __m512i t0 = _mm512_permutex2var_epi16(low, r0, high), t1 = _mm512_permutex2var_epi16(low, r1, high);
    uint64_t y = _mm512_cmplt_epu16_mask(u0, t0) | (uint64_t)_mm512_cmplt_epu16_mask(u1, t1) << 32;
    uint64_t same = _mm512_cmpeq_epi16_mask(u0, t0) | (uint64_t)_mm512_cmpeq_epi16_mask(u1, t1) << 32;
    if (__builtin_expect(same != 0, 0)) {
      alignas(64) uint16_t now[64];
      _mm512_store_si512(now, r0);
      _mm512_store_si512(now + 32, r1);
      for (; same; same &= same - 1) {
        const int lane = __builtin_ctzll(same);
        y |= (uint64_t)tie(table, i, now[lane], key, tag, id, group, lane) << lane;
      }
    }
    r0 = _mm512_mask_sub_epi16(r0, (__mmask32)y, r0, one);
    r1 = _mm512_mask_sub_epi16(r1, (__mmask32)(y >> 32), r1, one);
    words[i] = y;
  }
}
#elif defined(__SSSE3__)
#define TT_DRAW_LANES
// 64 samples in four registers of bytes: thresholds are looked up sixteen counts at a time, bytes apart.
void draw_lanes(const BlockTable* table, uint16_t* r, const uint16_t* bits, const SampleKey& key, uint32_t tag,
                       uint32_t id, uint32_t group, uint64_t* words) {
  const __m128i zero = _mm_setzero_si128(), byte = _mm_set1_epi16(0xff), keep = _mm_set1_epi16(0x7fff);
  const __m128i counted = _mm_set1_epi8(table->counted ? -1 : 0), beyond = _mm_set1_epi8(0x70);
  __m128i count[4];
  uint16_t most = 0;
  for (int lane = 0; lane < 64; lane++) most = r[lane] > most ? r[lane] : most;
  const int tables = most / 16 + 1;
  for (int q = 0; q < 4; q++)
    count[q] = _mm_packus_epi16(_mm_loadu_si128((const __m128i*)(r + 16 * q)),
                                _mm_loadu_si128((const __m128i*)(r + 16 * q + 8)));
  for (int i = 0; i < table->n; i++) {
    __m128i low[4], high[4];
    for (int t = 0; t < tables; t++) {
      const __m128i a = _mm_load_si128((const __m128i*)(table->high[i] + 16 * t));
      const __m128i b = _mm_load_si128((const __m128i*)(table->high[i] + 16 * t + 8));
      low[t] = _mm_packus_epi16(_mm_and_si128(a, byte), _mm_and_si128(b, byte));
      high[t] = _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
    }
    uint64_t y = 0, same = 0;
    __m128i any = zero, equal[4];
    for (int q = 0; q < 4; q++) {
      __m128i lo = zero, hi = zero;
      for (int t = 0; t < tables; t++) {
        // Indices outside this sixteen get their top bit set, for which the shuffle gives 0.
        const __m128i at = _mm_adds_epu8(_mm_sub_epi8(count[q], _mm_set1_epi8((char)(16 * t))), beyond);
        lo = _mm_or_si128(lo, _mm_shuffle_epi8(low[t], at));
        hi = _mm_or_si128(hi, _mm_shuffle_epi8(high[t], at));
      }
      const __m128i* u = (const __m128i*)(bits + 64 * i + 16 * q);
      const __m128i u0 = _mm_and_si128(_mm_loadu_si128(u), keep), u1 = _mm_and_si128(_mm_loadu_si128(u + 1), keep);
      const __m128i t0 = _mm_unpacklo_epi8(lo, hi), t1 = _mm_unpackhi_epi8(lo, hi);
      const __m128i off = _mm_packs_epi16(_mm_cmpeq_epi16(_mm_subs_epu16(t0, u0), zero),
                                          _mm_cmpeq_epi16(_mm_subs_epu16(t1, u1), zero));
      equal[q] = _mm_packs_epi16(_mm_cmpeq_epi16(t0, u0), _mm_cmpeq_epi16(t1, u1));
      any = _mm_or_si128(any, equal[q]);
      y |= (uint64_t)(uint16_t)~_mm_movemask_epi8(off) << (16 * q);
      count[q] = _mm_add_epi8(count[q], _mm_andnot_si128(off, counted));
    }
    if (__builtin_expect(_mm_movemask_epi8(any) != 0, 0)) {
      for (int q = 0; q < 4; q++) same |= (uint64_t)(uint16_t)_mm_movemask_epi8(equal[q]) << (16 * q);
      for (; same; same &= same - 1) {
        const int lane = __builtin_ctzll(same);
        uint8_t* now = (uint8_t*)count + lane;
        if (!tie(table, i, *now, key, tag, id, group, lane)) continue;
        y |= (uint64_t)1 << lane;
        *now = (uint8_t)(*now - table->counted);
      }
    }
    words[i] = y;
  }
}
#endif

// `width` samples side by side, a power of two.
void draw_any(const BlockTable* table, uint16_t* r, int width, const uint16_t* bits, const SampleKey& key,
                     uint32_t tag, uint32_t id, uint32_t group, uint64_t* words) {
  const uint16_t one = table->counted ? 1 : 0;
  for (int i = 0; i < table->n; i++) {
    const uint16_t *row = table->high[i], *u = bits + (ptrdiff_t)width * i;
    uint64_t y = 0, same = 0;
    for (int lane = 0; lane < width; lane++) {
      const uint16_t v = u[lane] & 0x7fff, t = row[r[lane]];
      const uint64_t on = v < t;
      same |= (uint64_t)(v == t) << lane;
      y |= on << lane;
      r[lane] = (uint16_t)(r[lane] - (on ? one : 0));
    }
    if (__builtin_expect(same != 0, 0))
      for (; same; same &= same - 1) {
        const int lane = __builtin_ctzll(same);
        if (!tie(table, i, r[lane], key, tag, id, group, lane)) continue;
        y |= (uint64_t)1 << lane;
        r[lane] = (uint16_t)(r[lane] - one);
      }
    words[i] = y;
  }
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

void independent_table(const double* nu, int n, BlockTable* table) {
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
