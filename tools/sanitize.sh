#!/usr/bin/env bash
# The kernel tests under the address and undefined-behaviour sanitizers.
#
#   bash tools/sanitize.sh [PYTEST ARGUMENTS]
#   bash tools/sanitize.sh fuzz [ARGUMENTS OF tools.fuzz]     random models of every kind instead of tests
#
# Builds the extension with -DTALLYTREE_SANITIZE=ON and runs the kernel tests, or what the arguments name, against it.
# Needs GCC with libasan and libubsan. Any report ends the run with a non-zero status. SANITIZE_BUILD=FOLDER keeps the
# build for the next time.
set -euo pipefail
. "$(dirname "$0")/other-build.sh"
other_build "${SANITIZE_BUILD:-}" -DTALLYTREE_SANITIZE=ON

# The sanitizers' run-time libraries come first in the process, because Python itself is not linked with them. Leaks
# are not looked for: Python leaves memory to the system when it ends.
compiler=${CXX:-g++}
export LD_PRELOAD="$($compiler -print-file-name=libasan.so) $($compiler -print-file-name=libubsan.so)"
export ASAN_OPTIONS=detect_leaks=0
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

python -S -c 'import tallytree._native as n; print("sanitized extension:", n.__file__, *n.levels())'
if [ "${1:-}" = fuzz ]; then
  python -S -m tools.fuzz --jobs 0 --engine native "${@:2}"  # the other engine is NumPy's code
  exit
fi
if [ $# -eq 0 ]; then
  set -- "${kernel_tests[@]}" tests/test_fuzz.py
fi
"${pytest[@]}" "$@"
