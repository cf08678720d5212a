# Whether the engine can be compiled here. `reason` is empty if so, otherwise a sentence that says why not.
function(tallytree_probe reason)
  set(${reason} "" PARENT_SCOPE)
  include(CheckLanguage)
  check_language(CXX)
  if(NOT CMAKE_CXX_COMPILER)
    set(${reason} "no C++ compiler was found (set CXX, or install GCC 12 or Clang 15, or newer)" PARENT_SCOPE)
    return()
  endif()
  enable_language(CXX)
  set(sample ${CMAKE_CURRENT_BINARY_DIR}/probe/sample.cpp)
  file(WRITE ${sample} [[
#include <concepts>
#include <new>
#include <thread>
typedef double vec __attribute__((vector_size(32)));
template <std::floating_point T>
vec twice(T x) {
  const vec a = vec{} + x, b = a > 0.0 ? a : vec{};
  return __builtin_shufflevector(a, b, 0, 4, 2, 6);
}
int main() {
  std::thread([] {}).join();
  return (int)twice(0.0)[0];
}
]])
  find_package(Threads QUIET)
  try_compile(works ${CMAKE_CURRENT_BINARY_DIR}/probe ${sample} CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS ON
              LINK_LIBRARIES $<TARGET_NAME_IF_EXISTS:Threads::Threads> OUTPUT_VARIABLE output)
  if(works)
    return()
  endif()
  string(REGEX MATCH "[^\n]*error[^\n]*" first "${output}")
  set(${reason}
      "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER}) cannot compile C++20 with vector extensions: ${first}"
      PARENT_SCOPE)
endfunction()
