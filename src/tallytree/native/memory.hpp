// Large arrays for Python, in huge pages.
#pragma once
#include <cstddef>

namespace tallytree {

// Freed with std::free; null if there is no memory.
double* new_doubles(size_t count);

}  // namespace tallytree
