// What underflow may have taken from the beliefs of a forest in plain numbers.
#pragma once
#include "cluster/edge_tangent_kernels.hpp"

namespace tallytree {

// The largest share of a vertex's weight at frequency 0 that products below the smallest number may have lost.
double edge_underflow(const EdgeTree& tree);

}  // namespace tallytree
