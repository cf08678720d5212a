// Memory of the arrays that go to Python: large ones in huge pages, and a few freed ones kept for the next.
#pragma once
#include <cstddef>

namespace tallytree {

double* new_doubles(size_t count);  // null if there is no memory
void free_doubles(double* data) noexcept;

}  // namespace tallytree
