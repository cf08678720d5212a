// Map: a solution turns logits into posterior log-odds and marginals, each variable by itself.
#pragma once
#include <cstddef>
#include <vector>

#include "flat/flat.hpp"

namespace tallytree {

// A solution that needs nothing but a logit to answer for its variable: made ready once, used for any part of the logits.
// It borrows the solution. Direct trees list their answers instead, see flat_marginals and flat_messages.
class FlatMap {
 public:
  FlatMap(const FlatKernels* kernels, const FlatSolution& solution);
  FlatMap(const FlatMap&) = delete;
  void marginals(const double* nu, ptrdiff_t n, double* out) const;  // P(y_i = 1)
  void messages(const double* nu, ptrdiff_t n, double* out) const;   // posterior log-odds less the logits

 private:
  bool smooth() const;
  const FlatKernels* kernels_;
  const FlatSolution& solution_;
  std::vector<FlatPieceView> piece_;
  FlatMixtureView mixture_;
  std::vector<double> ratio_;  // series of r itself, of one smooth piece
};

enum class Wanted { marginals, log_odds };

// A chunk of any logits, infinite ones too, in single or double precision; on threads, block by block.
template <class T>
void map_chunk(const FlatMap& map, int threads, const T* nu, ptrdiff_t n, Wanted wanted, T* out);

// A solution without a direct tree as plain numbers, and back.
std::vector<double> packed(FlatSolution& solution);
FlatSolution unpacked(const double* numbers);

}  // namespace tallytree
