// Probabilistic divide and conquer (Arratia and DeSalvo, 2016) for variables given their total.
//
// Under a tilt that makes the total's mean the wanted one, which does not change the conditional law, the first half of
// the variables is drawn as if it were free and kept with probability P(rest) / max P, where P is the law of the second
// half's count and `rest` what is left for it. What is kept has the conditional law, for about 1.4 draws of every
// variable; the second half is treated likewise. P is the inverse transform of a characteristic function: relative to
// its largest value, which is all that matters here, it is right to about 1e-13.
#include "sample/tree.hpp"

#include <algorithm>
#include <cmath>

#include "flat/flat.hpp"

namespace tallytree {

namespace {

constexpr ptrdiff_t kChunk = 4096;          // variables that share a stream of random numbers
constexpr ptrdiff_t kWorthSplitting = 1 << 15;
constexpr int kMostAttempts = 2000;         // the chance of as many rejections under a good tilt is below 1e-300
constexpr double kManyUndecided = 25;       // variance from which one step of Newton's method finds the next tilt

struct Halves {
  const Kernels& kernels;
  int threads;
  const double* nu;
  const SampleKey& key;
  uint8_t* out;
  FlatTotals untilted;

  Logits logits(ptrdiff_t from, ptrdiff_t n) const { return {kernels.flat, kernels.lanes, threads, nu + from, n}; }

  double tilt_to(ptrdiff_t from, ptrdiff_t n, ptrdiff_t count) const {
    const Logits part = logits(from, n);
    return LogitSummary(part, part.sums(0, 8).totals).with_mean((double)count, 0).s;
  }

  ptrdiff_t draw_free(ptrdiff_t from, ptrdiff_t n, double tilt, uint32_t round) const {
    const ptrdiff_t chunks = (n + kChunk - 1) / kChunk;
    std::vector<ptrdiff_t> counts((size_t)chunks);
    parallel_for(chunks, n >= kWorthSplitting ? threads : 1, [&](ptrdiff_t c) {
      uint64_t words[kChunk + 32];
      const ptrdiff_t start = from + c * kChunk, length = std::min(kChunk, n - c * kChunk);
      counts[(size_t)c] = kernels.sample->draw_bernoulli(nu + start, length, tilt, &key, kTagHalf, (uint32_t)c, round,
                                                         words, out + start);
    });
    ptrdiff_t total = 0;
    for (const ptrdiff_t count : counts) total += count;
    return total;
  }

  void draw_block(ptrdiff_t from, ptrdiff_t n, ptrdiff_t count, double tilt) const {
    if (n < 1) return;
    double tilted[kBlock];
    for (ptrdiff_t i = 0; i < n; i++) tilted[i] = nu[from + i] + tilt;
    BlockTable table;
    uint64_t words[64];
    const int32_t wanted = (int32_t)count;
    kernels.sample->block_table(tilted, (int)n, &table);
    kernels.sample->draw_block(&table, &wanted, 1, &key, kTagBlock, 0, 0, words);
    for (ptrdiff_t i = 0; i < n; i++) out[from + i] = (uint8_t)(words[0] >> i & 1);
  }
};

// Numbers in [0, 1) from a stream of their own, one after the other.
class UnitStream {
 public:
  UnitStream(const Kernels& kernels, const SampleKey& key) : kernels_(kernels), key_(key) {}
  double next() {
    if (used_ == kWords) {
      kernels_.sample->random_words(&key_, kTagDecision, 0, group_++, kWords / 2, words_);
      used_ = 0;
    }
    return (double)(words_[used_++] >> 11) * 0x1p-53;
  }

 private:
  static constexpr int kWords = 32;
  const Kernels& kernels_;
  const SampleKey key_;
  uint32_t group_ = 0;
  int used_ = kWords;
  uint64_t words_[kWords];
};

// The law of a count under a tilt, up to a factor.
class CountLaw {
 public:
  CountLaw(const Logits& logits, const FlatTotals& untilted, double tilt, double variance)
      : logits_(logits), spectrum_(spectrum(logits, untilted, tilt, nullptr, variance)), terms_(spectrum_) {
    // The mode of a sum of Bernoulli variables is one of the two integers next to its mean.
    const ptrdiff_t below = (ptrdiff_t)std::floor(spectrum_.mean);
    largest_ = std::fmax(at(below), at(below + 1));
  }
  double mean() const { return spectrum_.mean; }
  double variance() const { return spectrum_.variance; }
  double share(ptrdiff_t count) const { return at(count) / largest_; }

 private:
  double at(ptrdiff_t count) const {
    if (count < spectrum_.low || count > spectrum_.high || count < 0 || count > logits_.n) return 0;
    const TurnsFrom to(spectrum_, count);
    double p = 0;
    for (size_t m = 0; m < (size_t)spectrum_.frequencies; m++)
      p += terms_.re[m] * to.cos_first[m] + terms_.im[m] * to.sin_first[m];
    return p;
  }
  Logits logits_;
  Spectrum spectrum_;
  InverseTerms terms_;
  double largest_;
};

}  // namespace

bool draw_given_count(const Kernels& kernels, int threads, const double* nu, ptrdiff_t n, ptrdiff_t count,
                      const SampleKey& key, uint8_t* out) {
  const Logits all = {kernels.flat, kernels.lanes, threads, nu, n};
  const Halves halves = {kernels, threads, nu, key, out, n ? all.sums(0, 8).totals : FlatTotals{}};
  const auto certain = [&](ptrdiff_t left) { return count == 0 || count == left; };
  ptrdiff_t from = 0, left = n;
  double tilt = certain(n) ? 0 : LogitSummary(all, halves.untilted).with_mean((double)count, 0).s, variance = 0;
  uint32_t round = 0;
  UnitStream decisions(kernels, key);
  while (left > kBlock && !certain(left)) {
    const ptrdiff_t half = left / 2, rest = left - half;
    const CountLaw law(halves.logits(from + half, rest), halves.untilted, tilt, variance);
    ptrdiff_t drawn = 0;
    for (int attempt = 0;; attempt++) {
      if (attempt == kMostAttempts) return false;
      drawn = halves.draw_free(from, half, tilt, round++);
      if (decisions.next() < law.share(count - drawn)) break;
    }
    from += half;
    left = rest;
    count -= drawn;
    variance = 0.5 * law.variance();
    if (certain(left)) break;
    tilt = law.variance() > kManyUndecided ? tilt + ((double)count - law.mean()) / law.variance()
                                           : halves.tilt_to(from, left, count);
  }
  if (certain(left)) std::fill(out + from, out + from + left, (uint8_t)(count > 0));
  else halves.draw_block(from, left, count, tilt);
  return true;
}

}  // namespace tallytree
