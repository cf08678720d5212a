// The kernels of one instruction-set level, as a table of plain functions over pointers.
//
// A kernel never validates, allocates in an inner loop, prints or knows Python. A new kernel is a member of its room's table, a
// file that defines it in namespace tallytree::TT_LEVEL, and a name in the list from which the table is made
// (kernel_table.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tallytree {

struct FlatKernels;
struct TreeKernels;
struct ClusterKernels;
struct SampleKernels;
struct FrontierKernels;
struct HookKernels;

struct Kernels {
  const char* level;
  int lanes;

  // sum_i log(1 + exp(x_i)); an infinite x_i (excluded or forced variable) contributes 0.
  double (*softplus_sum)(const double* x, ptrdiff_t n);

  // Copies n doubles and returns their extremes, both NaN if one of them is; +inf and -inf for none.
  void (*copy_and_scan)(const double* from, ptrdiff_t n, double* to, double* smallest, double* largest);

  // P(y = 1) = 1 / (1 + e^-(nu + message)); an infinite nu decides by itself.
  void (*posterior_marginals)(const double* nu, const double* message, ptrdiff_t n, double* out);

  // out[t] = max_{i < m} a[i] + c[m - 1 - i + t] for t < width
  void (*max_plus)(const double* a, ptrdiff_t m, const double* c, ptrdiff_t width, double* out);

  const FlatKernels* flat;  // flat/kernels.hpp
  const TreeKernels* tree;  // tree/kernels.hpp
  const ClusterKernels* cluster;  // cluster/types.hpp
  const SampleKernels* sample;  // sample/kernels.hpp
  const FrontierKernels* frontier;  // frontier/step.hpp
  const HookKernels* hooks;  // test_hooks/hook_kernels.hpp; null without the build option for tests
};

// The table in use, and the choice of another (for tests): "v2", "v3", "v4" or "generic"; nullptr if absent.
const Kernels* find_kernels(const char* level);
const Kernels* best_kernels();

}  // namespace tallytree

// The table of a room's kernels: `LIST(EACH)` names its functions once, in the order of the members of the same names, whose
// types are what declares the functions here.
#define TT_KERNEL_DECLARED(name) std::remove_pointer_t<decltype(Table::name)> name;
#define TT_KERNEL_LISTED(name) name,
#define TT_KERNEL_TABLE(Type, table, LIST) \
  using Table = Type;                      \
  LIST(TT_KERNEL_DECLARED)                 \
  extern const Type table;                 \
  const Type table = {LIST(TT_KERNEL_LISTED)};
