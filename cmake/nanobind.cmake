# nanobind, copied into the build folder. pip installs it anew for every build, in a folder with a new name; where its text is
# the same, nothing that includes it has to be compiled again.
find_package(nanobind CONFIG REQUIRED)
set(nanobind_copy ${CMAKE_CURRENT_BINARY_DIR}/nanobind)
file(GLOB_RECURSE nanobind_files RELATIVE ${NB_DIR} ${NB_DIR}/cmake/* ${NB_DIR}/include/* ${NB_DIR}/src/* ${NB_DIR}/ext/*)
foreach(file IN LISTS nanobind_files)
  configure_file(${NB_DIR}/${file} ${nanobind_copy}/${file} COPYONLY)
endforeach()
set(NB_DIR ${nanobind_copy})
set(NB_DIR ${nanobind_copy} CACHE INTERNAL "" FORCE)
