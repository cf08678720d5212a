// A set with many children and no table between it and them: their counts are added by characteristic functions.
#pragma once
#include <vector>

#include "flat/flat.hpp"
#include "tree/blocks.hpp"
#include "tree/kernels.hpp"

namespace tallytree {

// What a star keeps for the way down.
struct StarState {
  bool used = false;  // false: its nodes are merged two by two
  Spectrum grid;      // frequencies; re, im: the product over all children
  int32_t shared_offset = 0;       // every child's counts are taken relative to lo + shared_offset
  std::vector<double> re, im;      // (children, grid.padded): of every child
  std::vector<double> least;       // (grid.frequencies,): smallest size of a child's characteristic function
  std::vector<double> relative_error;  // (grid.frequencies,): of a product of (almost) all children, times `least`
  std::vector<double> drift_re, drift_im;  // what such a product has to be multiplied by
  double lost = 0;                 // log2 of what underflow took from a child, at most
};

// False if the children do not suit: too little variance, one of them too dominant, or counts on a lattice.
bool star_up(const Kernels& kernels, const Star& star, TreeItem& item, std::vector<Worker>& workers, int thread,
             bool alone, StarState* state);
void star_down(const Kernels& kernels, const Star& star, const StarState& state, TreeItem& item,
               std::vector<Worker>& workers, int thread, bool alone);

}  // namespace tallytree
