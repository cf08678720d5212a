"""Instruction counts of small calls, for regressions that a noisy machine would hide.

``python benchmarks/run.py --instructions`` makes every call ten times under valgrind's callgrind. The calls are made
from inside the operator ``@=``, whose C function nothing else uses: callgrind counts only there, and writes what it has
counted whenever the function returns. So the interpreter's start, the imports and the warm-up are left out, and one
process serves all cases. Valgrind knows no AVX-512: the engine runs at the best level below that, with one thread.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

LEVELS = ("v3", "v2", "generic")  # what valgrind can run, best first
WITHIN = "PyNumber_InPlaceMatrixMultiply"
CALLS = 10
CASES = (
    "nothing",
    "flat 100",
    "flat 1000",
    "flat 10000",
    "exactly 300 of 1000",
    "batch 16 x 100",
    "nested 256",
    "nested 256, sd 50",
)


# ------------------------------------------------------------------------------------------- what is counted


def call(case: str) -> Callable[[], Any]:
    """A new model, its marginals and log Z; the structure is analysed before."""
    import numpy as np

    import tallytree as tt

    rng = np.random.default_rng(0)
    numbers = [int(n) for n in re.findall(r"\d+", case)]
    if case == "nothing":
        return lambda: None
    if case.startswith("nested"):
        tree = tt.CountTree.balanced(numbers[0])
        sd = numbers[1] if len(numbers) > 1 else 1
        theta = rng.standard_normal(numbers[0])
        packed = sd * rng.standard_normal(sum(len(g) + 1 for g in tree.groups))
        return lambda: _answers(tt.CountModel.from_tree(tree, theta, packed))
    shape = tuple(numbers) if case.startswith("batch") else (numbers[-1],)
    theta = rng.standard_normal(shape)
    if case.startswith("exactly"):
        return lambda: _answers(tt.CountModel(theta, tt.exactly(numbers[0])))
    log_f = rng.standard_normal((*shape[:-1], shape[-1] + 1))
    return lambda: _answers(tt.CountModel(theta, log_f))


def _answers(model: Any) -> None:
    model.log_partition  # noqa: B018
    model.marginals  # noqa: B018


class Repeated:
    """``Repeated() @= work`` makes the call `CALLS` times."""

    def __imatmul__(self, work: Callable[[], Any]) -> Repeated:
        for _ in range(CALLS):
            work()
        return self


def inside() -> None:
    """What runs under valgrind: all cases, one ``@=`` each."""
    gc.disable()
    counted = Repeated()
    for case in CASES:
        work = call(case)
        work()
        work()
        gc.collect()
        counted @= work


# ------------------------------------------------------------------------------------------------ who counts


def count(level: str) -> dict[str, int]:
    """Instructions per call of every case."""
    environment = {
        **os.environ,
        "TALLYTREE_LEVEL": level,
        "TALLYTREE_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        # NumPy must not pick kernels that valgrind cannot run.
        "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
    }
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                "valgrind", "--tool=callgrind", f"--toggle-collect={WITHIN}", f"--dump-after={WITHIN}",
                f"--callgrind-out-file={folder}/out", sys.executable, __file__,
            ],
            capture_output=True, text=True, env=environment, check=False,
        )  # fmt: skip
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise RuntimeError(lines[-1] if lines else f"valgrind ended with status {done.returncode}")
        parts = [(Path(folder) / f"out.{i}").read_text() for i in range(1, len(CASES) + 1)]
    totals = [int(re.search(r"^totals: (\d+)", part, re.MULTILINE).group(1)) for part in parts]  # type: ignore[union-attr]
    return {case: (total - totals[0]) // CALLS for case, total in zip(CASES[1:], totals[1:])}


def main(target: Path | None = None) -> int:
    """Print a table; where valgrind or the engine is absent, say so."""
    from tallytree import config

    if shutil.which("valgrind") is None:
        print("Instruction counts need valgrind, which is not installed.")
        return 0
    if config.native() is None:
        print("Instruction counts need the compiled engine, which is not installed.")
        return 0
    level = next(name for name in LEVELS if name in config.native().levels())
    try:
        results = count(level)
    except (RuntimeError, OSError) as error:
        print(f"Instruction counts failed: {error}")
        return 1
    print(f"instructions per call, level {level}, one thread")
    for case, instructions in results.items():
        print(f"  {case:<24}{instructions:>16,}")
    if target is not None:
        target.write_text(json.dumps({"level": level, "instructions": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    inside()
