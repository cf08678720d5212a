// Numbers that have one value everywhere.
#pragma once

namespace tallytree {

constexpr double kInfinity = __builtin_inf();
constexpr double kPi = 3.14159265358979323846;
constexpr double kLn2 = 0.69314718055994530942;
constexpr double kUnitRoundoff = 1.1102230246251565e-16;

}  // namespace tallytree
