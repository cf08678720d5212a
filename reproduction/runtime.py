"""Section 6.1: time and memory of the chain, the trees and this library's own choice against the number of variables.

Every point runs in a process of its own, so that its peak memory is its own and a limit can end it; and on one thread,
so that the growth is the algorithm's.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallytree import CountModel
from tallytree.arrays import Float64

from .baselines import potetz_lee
from .sizes import Sizes
from .store import Store

NAMES = {
    "chain": "Chain",
    "tree": "Tree",
    "fft-tree": "FFT Tree",
    "auto": "ours (auto)",
    "potetz-lee": "Potetz-Lee",
}
FITTED_FROM = {
    "chain": 2**10, "tree": 2**12, "fft-tree": 2**12, "auto": 2**12, "potetz-lee": 32,
}  # fmt: skip  # smaller sizes measure the cost of a call
# Bytes beyond the bare process, a usual limit of the paper's time: the chain is run into it.
CHAIN_LIMIT = 2e9
_LONGEST = 20.0  # a point is ended after this many times the cap


def measure(sizes: Sizes, seed: int, store: Store) -> list[dict[str, Any]]:
    """Rows of method, D, seconds and bytes, in order; points beyond a cap say why they are absent."""
    return [row for method in NAMES for row in _one_method(method, sizes, seed, store)]


def points(sizes: Sizes, method: str) -> list[int]:
    """Numbers of variables at which a method is tried."""
    if method == "potetz-lee":
        return list(sizes.cubic_sizes)
    extra = sizes.own_exponents if method == "auto" else ()
    between = sizes.chain_sizes if method == "chain" else ()
    return sorted([*(2**e for e in (*sizes.exponents, *extra)), *between])


def _one_method(method: str, sizes: Sizes, seed: int, store: Store) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    stopped = ""
    for d in points(sizes, method):
        inputs = {
            "method": method,
            "D": d,
            "seed": seed,
            "size": sizes.name,
            "threads": 1,
            "repeats": [4, 2],
        }
        stopped = stopped or _beyond(method, d, rows, sizes)
        row = store.numbers(
            f"runtime-{method}-{d}",
            inputs | {"tried": not stopped},
            partial(_point, method, d, seed, sizes, stopped),
        )
        stopped = stopped or row.get("note", "")
        rows.append(
            {"method": method, "D": d, "seconds": None, "processor": None, "bytes": None, "note": "", **row}
        )
    return rows


def _point(method: str, d: int, seed: int, sizes: Sizes, why: str) -> dict[str, Any]:
    if why:
        return {"note": why}
    if not sizes.own_process:
        return single(method, d, seed, sizes.repeat_time)
    room = CHAIN_LIMIT if method == "chain" else None
    return _in_own_process(method, d, seed, sizes.repeat_time, max(_LONGEST * sizes.time_cap, 30.0), room)


def _beyond(method: str, d: int, rows: Sequence[dict[str, Any]], sizes: Sizes) -> str:
    """Why a size is not tried, judged by the smaller ones; empty if it is."""
    timed = [(r["D"], r["seconds"]) for r in rows if r["seconds"] is not None]
    if not timed:
        return ""
    before, seconds = timed[-1]
    power = {"chain": 2.0, "tree": 2.0, "potetz-lee": 3.0}.get(method, 1.1)
    expected = seconds * (d / before) ** power
    if expected > sizes.time_cap:
        return f"not tried: about {expected:.0f} s expected, limit {sizes.time_cap:g} s"
    return ""


def _in_own_process(
    method: str, d: int, seed: int, repeat: float, limit: float, room: float | None = None
) -> dict[str, Any]:
    """One point, ended after `limit` seconds; with `room`, no more than that many bytes beyond the start can be had."""
    words = [sys.executable, "-m", "reproduction.runtime", method, str(d), str(seed), str(repeat)]
    if room is not None:
        words.append(str(int(room)))
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
            env={**os.environ, "TALLYTREE_NUM_THREADS": "1"},
            cwd=Path(__file__).parents[1],
        )
    except subprocess.TimeoutExpired:
        return {"note": f"ended after {limit:.0f} s"}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        if "MemoryError" in last or done.returncode < 0:
            within = "" if room is None else f" within {room / 1e9:.1f} GB"
            return {"note": f"ran out of memory{within}"}
        return {"note": f"failed: {last[:200]}"}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def single(method: str, d: int, seed: int, repeat: float) -> dict[str, Any]:
    """Seconds of all marginals under one random potential, the best of several; peak bytes beyond the inputs.

    ``seconds`` are those of the clock, ``processor`` those of all threads together: other work on the machine makes the
    clock run on, and the processor less so.
    """
    rng = np.random.default_rng([seed, d])
    logits, table = rng.normal(size=d), rng.normal(size=d + 1)
    _marginals(logits[:4], table[:5], method).sum()  # load what is loaded once
    before = _peak(reset=True)
    clock: list[float] = []
    processor: list[float] = []
    while not clock or sum(clock) < repeat or len(clock) < _repeats(clock[0]):
        start, used = time.perf_counter(), time.process_time()
        marginals = _marginals(logits, table, method)
        processor.append(time.process_time() - used)
        clock.append(time.perf_counter() - start)
        if len(clock) == 1:
            after, check = _peak(), float(np.mean(marginals))
    return {
        "seconds": min(clock),
        "processor": min(processor),
        "first_seconds": clock[0],
        "bytes": None if before is None or after is None else max(after - before, 0),
        "mean_marginal": check,
    }


def _marginals(logits: Float64, table: Float64, method: str) -> Float64:
    if method == "potetz-lee":
        return potetz_lee(logits, table)
    return np.asarray(CountModel(logits, table, method=method).marginals)


def _repeats(first: float) -> int:
    """Least number of repetitions; the first one analyses the structure, too, which later ones reuse."""
    return 4 if first < 1.0 else 2 if first < 10.0 else 1


def _peak(*, reset: bool = False) -> int | None:
    """Largest resident memory so far in bytes, where the system tells; ``reset`` starts from the present."""
    status = Path("/proc/self/status")
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = status.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(found[0]) * 1024 if found else None


def measured(
    rows: Sequence[dict[str, Any]], method: str, value: str, from_d: int = 0
) -> tuple[Float64, Float64]:
    """Numbers of variables from ``from_d`` on, and what was measured there."""
    mine = [r for r in rows if r["method"] == method and r["D"] >= from_d and (r[value] or 0) > 0]
    return np.array([r["D"] for r in mine], np.float64), np.array([r[value] for r in mine], np.float64)


def growth(rows: Sequence[dict[str, Any]], method: str, value: str, from_d: int) -> tuple[float, float]:
    """Exponent p and factor a of ``a D^p``, by least squares of logarithms over sizes from ``from_d`` on."""
    d, y = measured(rows, method, value, from_d)
    if len(d) < 2:
        return math.nan, math.nan
    power, start = np.polyfit(np.log(d), np.log(y), 1)
    return float(power), float(math.exp(start))


def _limit_memory(more: float) -> None:
    """No more than so many bytes from now on, where the system has such a limit."""
    try:
        import resource
    except ImportError:
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (int(pages * resource.getpagesize() + more), -1))


if __name__ == "__main__":
    if len(sys.argv) > 5:
        _limit_memory(int(sys.argv[5]))
    print(json.dumps(single(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
