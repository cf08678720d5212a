// One variable after the other for up to 64 samples side by side: a random number against a threshold from a table.
#pragma once
#include "base/real.hpp"
#include "base/philox.hpp"
#include "sample/kernels.hpp"
#if defined(__AVX512BW__)
#include <immintrin.h>
#elif defined(__SSSE3__)
#include <tmmintrin.h>  // all that is needed, and quickly read
#endif

namespace tallytree::TT_LEVEL {

// The leading 15 bits were equal: 53 more decide.
static inline bool tie(const BlockTable* table, int i, int r, const SampleKey& key, uint32_t tag, uint32_t id,
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
static void draw_lanes(const BlockTable* table, uint16_t* r, const uint16_t* bits, const SampleKey& key, uint32_t tag,
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
static void draw_lanes(const BlockTable* table, uint16_t* r, const uint16_t* bits, const SampleKey& key, uint32_t tag,
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
static void draw_any(const BlockTable* table, uint16_t* r, int width, const uint16_t* bits, const SampleKey& key,
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

}  // namespace tallytree::TT_LEVEL
