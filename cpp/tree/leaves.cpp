// Leaf messages of the variables that are not inside a block.
#include "tree/leaf_weights.hpp"
#include "tree/kernels.hpp"

namespace tallytree::TT_LEVEL {

void tree_leaves(const TreeItem& item, const int32_t* variables, ptrdiff_t count) {
  const Tilt tilt(item.tilt);
  for (ptrdiff_t first = 0; first < count; first += kLanes) {
    const ptrdiff_t n = count - first < kLanes ? count - first : kLanes;
    vec x = {};
    for (ptrdiff_t j = 0; j < n; j++) x[j] = item.nu[variables[first + j]];
    const LeafWeights w = leaf_weights(x, tilt);
    for (ptrdiff_t j = 0; j < n; j++) {
      const int32_t d = variables[first + j];
      item.leaf_value[0][d] = w.off[j];
      item.leaf_exponent[0][d] = w.off_exponent[j];
      item.leaf_value[1][d] = w.on[j];
      item.leaf_exponent[1][d] = w.on_exponent[j];
    }
  }
}

}  // namespace tallytree::TT_LEVEL
