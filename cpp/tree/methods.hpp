// Names of the tree methods, as Python spells them.
#pragma once
#include <stdexcept>
#include <string>

#include "tree/kernels.hpp"

namespace tallytree {

inline KernelName method_named(const std::string& name) {
  if (name == "direct") return KernelName::direct;
  if (name == "fft") return KernelName::fft;
  if (name == "waves") return KernelName::waves;
  if (name == "tiled") return KernelName::tiled;
  if (name == "wide") return KernelName::wide;
  throw std::invalid_argument("`method` must be direct, fft, waves, tiled or wide, not " + name);
}

}  // namespace tallytree
