// Chebyshev series of a function from its values at the nodes cos((2 i + 1) pi / (2 count)).
#include <cmath>
#include <mutex>
#include <vector>

#include "base/constants.hpp"
#include "flat/flat.hpp"

namespace tallytree {

namespace {

constexpr int kAtOnce = 4;  // sums under way at once hide the latency of an addition

std::vector<double> cosines_of(int count) {
  std::vector<double> cosine((size_t)(4 * count));
  for (int i = 0; i <= count; i++) {
    const double c = i < count ? std::cos(kPi * i / (2 * count)) : 0.0;
    cosine[(size_t)i] = c;
    cosine[(size_t)(2 * count - i)] = cosine[(size_t)((2 * count + i) % (4 * count))] = -c;
    cosine[(size_t)((4 * count - i) % (4 * count))] = c;
  }
  return cosine;
}

// One table per number of nodes, made when it is first asked for and never changed.
struct Cosines {
  std::once_flag made[kMaxNodes + kMoreNodes + 1];
  std::vector<double> table[kMaxNodes + kMoreNodes + 1];
};

}  // namespace

const double* chebyshev_cosines(int count) {
  static Cosines all;
  std::call_once(all.made[count], [&] { all.table[count] = cosines_of(count); });
  return all.table[count].data();
}

void chebyshev_fit(const double* value, int count, double* series) {
  const double* cosine = chebyshev_cosines(count);
  for (int first = 0; first < count; first += kAtOnce) {
    double sum[kAtOnce] = {};
    int at[kAtOnce], step[kAtOnce];
    for (int g = 0; g < kAtOnce; g++) {
      at[g] = first + g < count ? first + g : first;
      step[g] = 2 * at[g];
    }
    for (int i = 0; i < count; i++)
      for (int g = 0; g < kAtOnce; g++) {
        sum[g] += value[i] * cosine[at[g]];  // cos(j (2 i + 1) pi / (2 count))
        at[g] += step[g];
        at[g] -= at[g] >= 4 * count ? 4 * count : 0;
      }
    for (int g = 0; g < kAtOnce && first + g < count; g++)
      series[first + g] = sum[g] * (first + g ? 2.0 : 1.0) / count;
  }
}

}  // namespace tallytree
