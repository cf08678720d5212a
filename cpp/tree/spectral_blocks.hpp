// Parts of a nested model that are solved by characteristic functions: loose variables of a group (a wave: no tree below the
// group), and a set with many children and no table between it and them (a star: their counts are added).
#pragma once

#include "flat/flat.hpp"
#include "tree/count_tree.hpp"

namespace tallytree {

// One wave of a model under way: its variables and their characteristic function.
struct WaveState {
  std::vector<double> gathered;  // empty where the variables lie side by side
  std::vector<int32_t> finite;   // which of them have finite logits; empty: all
  int32_t forced = 0;            // how many of the others are on
  Logits logits;
  Spectrum spectrum;
};

// False if the characteristic function cannot serve: the cavities of infinite logits, or too few finite ones.
bool prepare_wave(const Kernels& kernels, int threads, const WaveBlock& wave, const double* nu, double tilt,
                  bool cavities, WaveState* state);
Interval possible_counts(const WaveState& state);
void wave_up(const TreeKernels& kernels, const WaveBlock& wave, const WaveState& state, TreeItem& item, Worker& worker);
void wave_down(const TreeKernels& kernels, const WaveBlock& wave, const WaveState& state, TreeItem& item,
               Worker& worker);

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
