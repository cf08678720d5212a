"""Instruction counts of small calls, for regressions that a noisy machine would hide.

``python benchmarks/run.py --instructions`` runs every call twice and eleven times under cachegrind; the difference
divided by nine is the cost of one call, without the interpreter's start, the imports or the warm-up. Counts repeat
to about 0.1 % (Python's hashing is seeded). Valgrind knows no AVX-512, so the engine runs at the best level
below that, with one thread.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

LEVELS = ("v3", "v2", "generic")  # what valgrind can run, best first
FEW, MANY = 2, 11
CASES = (
    "flat 100",
    "flat 1000",
    "flat 10000",
    "exactly 300 of 1000",
    "batch 16 x 100",
    "nested 256",
    "nested 256, sd 50",
)


def call(case: str) -> Any:
    """The call that is counted."""
    import numpy as np

    import tallytree as tt

    rng = np.random.default_rng(0)
    numbers = [int(n) for n in re.findall(r"\d+", case)]
    if case.startswith("nested"):
        tree = tt.CountTree.balanced(numbers[0])
        sd = numbers[1] if len(numbers) > 1 else 1
        theta = rng.standard_normal(numbers[0])
        packed = sd * rng.standard_normal(sum(len(g) + 1 for g in tree.groups))
        model = tt.CountModel.from_tree(tree, theta, packed)
        return lambda: _answers(model.replace(logits=theta))
    shape = tuple(numbers) if case.startswith("batch") else (numbers[-1],)
    theta = rng.standard_normal(shape)
    if case.startswith("exactly"):
        return lambda: _answers(tt.CountModel(theta, tt.exactly(numbers[0])))
    log_f = rng.standard_normal((*shape[:-1], shape[-1] + 1))
    return lambda: _answers(tt.CountModel(theta, log_f))


def _answers(model: Any) -> None:
    model.log_partition  # noqa: B018
    model.marginals  # noqa: B018


def count(case: str, repeats: int, level: str) -> int:
    """Instructions of a process that makes the call so many times."""
    environment = {
        **os.environ,
        "TALLYTREE_LEVEL": level,
        "TALLYTREE_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONMALLOC": "malloc",
        # NumPy must not pick kernels that valgrind cannot run.
        "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
    }
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    plain = [sys.executable, __file__, case]
    subprocess.run([*plain, "1"], env=environment, check=False)  # byte code of edited files is compiled here
    done = subprocess.run(
        [*command, *plain, str(repeats)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode or not found:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no output")
    return int(found.group(1).replace(",", ""))


def main(target: Path | None = None) -> int:
    """Print a table; 0 also where valgrind is absent, which is said."""
    from tallytree import config

    if shutil.which("valgrind") is None:
        print("Instruction counts need valgrind, which is not installed.")
        return 0
    if config.native() is None:
        print("Instruction counts need the compiled engine, which is not installed.")
        return 0
    level = next(name for name in LEVELS if name in config.native().levels())
    print(f"instructions per call, level {level}, one thread")
    results: dict[str, float | None] = {}
    for case in CASES:
        try:
            results[case] = (count(case, MANY, level) - count(case, FEW, level)) / (MANY - FEW)
            print(f"  {case:<24}{results[case]:>16,.0f}", flush=True)
        except RuntimeError as error:
            results[case] = None
            print(f"  {case:<24}{'—':>16}  {error}", flush=True)
    if target is not None:
        target.write_text(json.dumps({"level": level, "instructions": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    work = call(sys.argv[1])
    for _ in range(int(sys.argv[2])):
        work()
