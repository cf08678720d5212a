# Sourced by the checks of other builds: the extension with other options, beside a copy of the package.
#
#   other_build FOLDER-OR-EMPTY [CMAKE ARGUMENTS]     builds there (in a scratch folder where it is empty)
#   kernel_tests                                      the tests that run compiled code, as an array
#
# Afterwards `python -S` imports the copy; the installed package is not touched. Needs an environment in which the
# tests run (cmake, ninja, nanobind, pytest). `$work` is a scratch folder that goes when the script ends.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

kernel_tests=(tests/test_native_*.py tests/test_waves.py tests/test_small_*.py tests/test_closed_forms.py tests/test_levels.py)

other_build() {
  build=${1:-$work/build}
  shift
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$(command -v python)" \
    -Dnanobind_DIR="$(python -m nanobind --cmake_dir)" "$@" >"$work/cmake.log" || { cat "$work/cmake.log"; return 1; }
  cmake --build "$build" --target _native

  mkdir -p "$work/package"
  cp -r "$root/src/tallytree" "$work/package/tallytree"
  cp "$build"/engine/_native*.so "$work/package/tallytree/"

  # -S keeps an editable installation from getting in front of the copy; workers of pytest-xdist would start without it.
  unset PYTEST_ADDOPTS
  PYTHONPATH=$work/package:$(python -c 'import sys; print(":".join(p for p in sys.path if p.endswith("site-packages")))')
  export PYTHONPATH
  pytest=(python -S -m pytest -o addopts=-q -p no:cacheprovider)
}
