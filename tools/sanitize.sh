#!/usr/bin/env bash
# The kernel tests under the address and undefined-behaviour sanitizers.
#
#   bash tools/sanitize.sh [PYTEST ARGUMENTS]
#   bash tools/sanitize.sh fuzz [ARGUMENTS OF tools.fuzz]     random models of every kind instead of tests
#
# Builds the extension with -DTALLYTREE_SANITIZE=ON in a scratch folder, beside a copy of the package, and runs
# the kernel tests (or what the arguments name) against that copy; the installed package is not touched. Needs
# GCC with libasan and libubsan, and an environment in which the tests run (cmake, ninja, nanobind, pytest). Any
# report ends the run with a non-zero status. SANITIZE_BUILD=FOLDER keeps the build for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=${SANITIZE_BUILD:-$work/build}

cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTALLYTREE_SANITIZE=ON \
  -DPython_EXECUTABLE="$(command -v python)" -Dnanobind_DIR="$(python -m nanobind --cmake_dir)" >"$work/cmake.log" ||
  { cat "$work/cmake.log"; exit 1; }
cmake --build "$build" --target _native

mkdir -p "$work/package"
cp -r "$root/src/tallytree" "$work/package/tallytree"
cp "$build"/engine/_native*.so "$work/package/tallytree/"

# The sanitizers' run-time libraries come first in the process, because Python itself is not linked with them. Leaks
# are not looked for: Python leaves memory to the system when it ends.
compiler=${CXX:-g++}
export LD_PRELOAD="$($compiler -print-file-name=libasan.so) $($compiler -print-file-name=libubsan.so)"
export ASAN_OPTIONS=detect_leaks=0
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
# -S keeps an editable installation from getting in front of the copy; workers of pytest-xdist would start without it.
unset PYTEST_ADDOPTS
packages=$(env -u LD_PRELOAD python -c 'import sys; print(":".join(p for p in sys.path if p.endswith("site-packages")))')
export PYTHONPATH="$work/package:$packages"

python -S -c 'import tallytree._native as n; print("sanitized extension:", n.__file__, *n.levels())'
if [ "${1:-}" = fuzz ]; then
  python -S -m tools.fuzz --jobs 0 "${@:2}"
  exit
fi
if [ $# -eq 0 ]; then
  set -- tests/test_native_*.py tests/test_waves.py tests/test_lane_forest.py tests/test_closed_forms.py tests/test_levels.py tests/test_fuzz.py
fi
python -S -m pytest -o addopts=-q -p no:cacheprovider "$@"
