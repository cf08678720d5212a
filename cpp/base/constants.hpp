// Numbers that have one value everywhere, and intervals of counts.
#pragma once
#include <cstdint>

namespace tallytree {

constexpr double kInfinity = __builtin_inf();
constexpr double kPi = 3.14159265358979323846;
constexpr double kLn2 = 0.69314718055994530942;
constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;  // n times the first is exact to 2^20
constexpr double kUnitRoundoff = 1.1102230246251565e-16;

// The counts lo..hi; empty when lo > hi.
struct Interval {
  int32_t lo, hi;
};

}  // namespace tallytree
