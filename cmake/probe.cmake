# Whether the engine can be compiled here: `engine_missing` is empty if so, otherwise it says why not.
set(engine_missing "")
include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  set(engine_missing "no C++ compiler was found; GCC 12, Clang 15 or newer is needed, and CXX may name one")
  return()
endif()

enable_language(CXX)
set(engine_sample ${CMAKE_CURRENT_BINARY_DIR}/probe/sample.cpp)
file(WRITE ${engine_sample} [[
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
find_package(Threads REQUIRED)
try_compile(engine_possible ${CMAKE_CURRENT_BINARY_DIR}/probe ${engine_sample} LINK_LIBRARIES Threads::Threads
            CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS ON OUTPUT_VARIABLE engine_output)
if(NOT engine_possible)
  string(REGEX MATCH "[^\n]*error[^\n]*" engine_error "${engine_output}")
  string(CONCAT engine_missing "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER}) cannot "
                               "compile C++20 with vector extensions: ${engine_error}")
endif()
