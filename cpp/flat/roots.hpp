// Roots of unity to the last bit: all rotations of a spectrum are powers of one of them.
#pragma once
#include <cstddef>

namespace tallytree {

// Where roots go: `cos` and `sin`, and, unless null, what is to be taken from them to have the exact numbers.
struct RootsTo {
  double *cos, *sin, *off_cos, *off_sin;
};
// e^{2 pi i m step / period} for m < count.
void roots_of_unity(ptrdiff_t period, ptrdiff_t step, int count, const RootsTo& out);
// tan(2 pi m / (4 period)) for m < count, count <= (period + 1) / 2.
void quarter_tangents(ptrdiff_t period, int count, double* out);

}  // namespace tallytree
