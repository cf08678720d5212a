// The table of a room's kernels: `LIST(EACH)` names its functions once, in the order of the members of the same names, whose
// types are what declares the functions here.
#pragma once
#include <type_traits>

#define TT_KERNEL_DECLARED(name) std::remove_pointer_t<decltype(Table::name)> name;
#define TT_KERNEL_LISTED(name) name,
#define TT_KERNEL_TABLE(Type, table, LIST) \
  using Table = Type;                      \
  LIST(TT_KERNEL_DECLARED)                 \
  extern const Type table;                 \
  const Type table = {LIST(TT_KERNEL_LISTED)};
