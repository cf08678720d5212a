// Loose variables of a group inside a nested model, solved by their characteristic function: no tree below the group.
#pragma once
#include <vector>

#include "flat/flat.hpp"
#include "tree/blocks.hpp"
#include "tree/kernels.hpp"

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

}  // namespace tallytree
