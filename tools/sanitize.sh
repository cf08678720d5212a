#!/usr/bin/env bash
# Compiled code under the address and undefined-behaviour sanitizers, or under the thread sanitizer.
#
#   bash tools/sanitize.sh [PYTEST ARGUMENTS]
#   bash tools/sanitize.sh fuzz [ARGUMENTS OF tools.fuzz]     random models of every kind instead of tests
#   SANITIZE=thread bash tools/sanitize.sh ...                looks for data races instead
#
# Builds the extension with -DTALLYTREE_SANITIZE=address or thread and runs the kernel tests and a short run of the
# fuzzer (for threads: the tests of threads), or what the arguments name, against it. Needs GCC with libasan, libubsan
# and libtsan. Any report ends the run with a non-zero status. SANITIZE_BUILD=FOLDER keeps the build for the next time.
set -euo pipefail
. "$(dirname "$0")/other-build.sh"
kind=${SANITIZE:-address}
other_build "${SANITIZE_BUILD:-}" -DTALLYTREE_SANITIZE="$kind"

# The sanitizers' run-time libraries come first in the process, because Python itself is not linked with them. Leaks
# are not looked for: Python leaves memory to the system when it ends.
compiler=${CXX:-g++}
if [ "$kind" = thread ]; then
  export LD_PRELOAD="$($compiler -print-file-name=libtsan.so)"
  export TSAN_OPTIONS=halt_on_error=1:exitcode=66
  # Not those that fork or limit memory: this sanitizer supports neither.
  tests=(tests/test_threads.py -k "share_the_pool or runs_once or failing_task or limit_is")
else
  export LD_PRELOAD="$($compiler -print-file-name=libasan.so) $($compiler -print-file-name=libubsan.so)"
  tests=("${kernel_tests[@]}" tests/test_fuzz.py)
fi
export ASAN_OPTIONS=detect_leaks=0
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

python -S -c 'import tallytree._native as n; print("sanitized extension:", n.__file__, *n.levels())'
if [ "${1:-}" = fuzz ]; then
  python -S -m tools.fuzz --jobs 0 --engine native "${@:2}"  # the other engine is NumPy's code
  exit
fi
if [ $# -eq 0 ]; then
  set -- "${tests[@]}"
fi
"${pytest[@]}" "$@"
