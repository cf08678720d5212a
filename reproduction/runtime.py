"""Section 6.1, and the costs of sections 3 to 5: processor time and memory against size.

Every problem is solved in a process of its own, so that its peak memory is its own and a limit can end it, and on
one thread, so that the growth is the algorithm's. The processes are forked from one that has loaded the library.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.arrays import Float64

from . import workloads
from .claim import interval
from .sizes import Sizes
from .store import Store

NAMES = {**workloads.METHODS, **workloads.COSTS}
# Smaller sizes measure the cost of a call. From 4096 variables on the Chain's table leaves the cache and is had afresh
# from the system, which makes every cell ten times as slow: time is quadratic below and above, not across that step.
FITTED_FROM = {
    "chain": 2**12,
    "potetz-lee": 64,
    "unbalanced": 2**8,
    "limited-k": 2**9,
    "limited-d": 2**17,
} | dict.fromkeys(
    ("tree", "fft-tree", "auto", "rc", "sample", "edges", "edges-path", "sample-rc", "sample-one"), 2**12
)
# Bytes beyond the bare process, a usual limit of the paper's time: the chain is run into it.
CHAIN_LIMIT = 2e9
SMALL = (8, 16, 32)  # D that are called very small
_TURNS = 1000
# Less is within what the process has at hand.
MEMORY_FROM = {"chain": 2**12} | dict.fromkeys(("tree", "fft-tree", "auto"), 2**14)


def measure(sizes: Sizes, seed: int, store: Store) -> list[dict[str, Any]]:
    """Rows of kind, x and per seed seconds, processor time and bytes; points beyond a cap say why they are absent."""
    with Forks(sizes) as forks:
        return [row for kind in NAMES for row in _one_kind(kind, sizes, seed, store, forks)]


def small(sizes: Sizes, seed: int, store: Store) -> list[dict[str, Any]]:
    """Median processor times of Chain and FFT Tree at very small D, taken in turns: both meet the same disturbances."""
    return [
        store.numbers(
            f"runtime-small-{d}",
            {"D": d, "seed": seed, "seeds": sizes.seeds},
            partial(_in_turns, d, seed, sizes.seeds),
        )
        for d in SMALL
    ]


def _in_turns(d: int, seed: int, seeds: int) -> dict[str, Any]:
    out: dict[str, Any] = {"D": d, "chain": [], "fft-tree": []}
    for s in range(seeds):
        solve = {
            k: workloads.problem(k, d, np.random.default_rng([seed, s, d])) for k in ("chain", "fft-tree")
        }
        times: dict[str, list[float]] = {kind: [] for kind in solve}
        for _ in range(_TURNS):
            for kind, function in solve.items():
                used = time.process_time()
                function()
                times[kind].append(time.process_time() - used)
        for kind, values in times.items():
            out[kind].append(float(np.median(values)))
    return out


def points(sizes: Sizes, kind: str) -> list[int]:
    """Sizes at which a kind is tried."""
    if kind == "potetz-lee":
        return list(sizes.cubic_sizes)
    if kind in ("limited-d", "limited-k"):
        return [2**e for e in (sizes.limited_exponents if kind == "limited-d" else sizes.limit_exponents)]
    if kind == "unbalanced":
        return [2**e for e in sizes.unbalanced_exponents]
    if kind in workloads.COSTS:
        ours = kind in ("edges-path", "sample-rc", "sample-one")
        return [2**e for e in (sizes.own_cost_exponents if ours else sizes.cost_exponents)]
    further = sizes.far_exponents if kind in ("auto", "fft-tree") else ()
    between = sizes.chain_sizes if kind == "chain" else ()
    return sorted([*(2**e for e in (*sizes.exponents, *further)), *between])


def _one_kind(kind: str, sizes: Sizes, seed: int, store: Store, forks: Forks) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    stopped = ""
    for x in points(sizes, kind):
        stopped = stopped or _beyond(kind, x, rows, sizes)
        inputs = {
            "kind": kind,
            "x": x,
            "seed": seed,
            "seeds": sizes.seeds,
            "size": sizes.name,
            "tried": not stopped,
        }
        compute = partial(_point, forks, kind, x, seed, sizes, stopped)
        row = store.numbers(f"runtime-{kind}-{x}", inputs, compute)
        stopped = stopped or row.get("note", "")
        rows.append({"kind": kind, "x": x, "seconds": [], "processor": [], "bytes": [], "note": "", **row})
    return rows


def _point(forks: Forks, kind: str, x: int, seed: int, sizes: Sizes, why: str) -> dict[str, Any]:
    if why:
        return {"note": why}
    room = CHAIN_LIMIT if kind == "chain" else None
    out: dict[str, Any] = {"seconds": [], "processor": [], "bytes": [], "mean": [], "note": ""}
    for s in range(sizes.seeds):
        found = forks.ask(kind, x, [seed, s], sizes.repeat_time, room)
        if found.get("note"):
            return {"note": found["note"]}
        for name in ("seconds", "processor", "bytes", "mean"):
            out[name].append(found[name])
    return out


def _beyond(kind: str, x: int, rows: Sequence[dict[str, Any]], sizes: Sizes) -> str:
    """Why a size is not tried, judged by the smaller ones; empty if it is."""
    timed = [(r["x"], max(r["processor"])) for r in rows if r["processor"]]
    if not timed:
        return ""
    before, used = timed[-1]
    power = {"chain": 2.0, "tree": 2.0, "unbalanced": 2.0, "potetz-lee": 3.0, "sample-rc": 1.5}.get(kind, 1.1)
    expected = used * (x / before) ** power
    if expected > sizes.time_cap:
        return f"not tried: about {expected:.0f} s expected, limit {sizes.time_cap:g} s"
    return ""


class Forks:
    """A process that has loaded the library and forks one per problem; without ``fork`` they are solved here."""

    def __init__(self, sizes: Sizes) -> None:
        self._alone = sizes.own_process and hasattr(os, "fork")
        self._limit = max(20.0 * sizes.time_cap, 60.0)
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.communicate()

    def ask(
        self, kind: str, x: int, seed: Sequence[int], repeat: float, room: float | None = None
    ) -> dict[str, Any]:
        """Seconds, processor time, bytes and a checksum of one problem, or a note that says why there are none."""
        if not self._alone:
            return single(kind, x, seed, repeat)
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "reproduction.runtime"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    "TALLYTREE_NUM_THREADS": "1",
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                },
                cwd=Path(__file__).parents[1],
            )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(
            json.dumps([kind, x, list(seed), repeat, room, self._limit]), file=self._server.stdin, flush=True
        )
        found: dict[str, Any] = json.loads(self._server.stdout.readline())
        return found


def _serve() -> None:
    workloads.problem("auto", 8, np.random.default_rng(0))()  # load what is loaded once
    for line in sys.stdin:
        print(json.dumps(_forked(*json.loads(line))), flush=True)


def _forked(
    kind: str, x: int, seed: Sequence[int], repeat: float, room: float | None, limit: float
) -> dict[str, Any]:
    """One problem in a child, ended after `limit` seconds and, with `room`, at that many bytes beyond the start."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            _limit_memory(room)
            answer = single(kind, x, seed, repeat)
        except MemoryError:
            answer = {"note": "ran out of memory" + ("" if room is None else f" within {room / 1e9:.1f} GB")}
        except Exception as error:
            answer = {"note": f"failed: {type(error).__name__}: {str(error)[:200]}"}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], limit)
    if not ready:
        os.kill(child, signal.SIGKILL)
    content = os.read(reader, 1 << 16)
    os.close(reader)
    os.waitpid(child, 0)
    if not ready:
        return {"note": f"ended after {limit:.0f} s"}
    found: dict[str, Any] = (
        json.loads(content) if content else {"note": "ran out of memory: the process was ended"}
    )
    return found


def single(kind: str, x: int, seed: Sequence[int], repeat: float) -> dict[str, Any]:
    """Least time of several solutions of one random problem; peak bytes of the first beyond the inputs.

    ``seconds`` are those of the clock, ``processor`` those of all threads together: other work on the machine makes the
    clock run on, and the processor less so.
    """
    solve = workloads.problem(kind, x, np.random.default_rng([*seed, x]))
    before = _peak(reset=True)
    clock: list[float] = []
    processor: list[float] = []
    while not clock or sum(clock) < repeat or len(clock) < _repeats(processor[0]):
        start, used = time.perf_counter(), time.process_time()
        answer = solve()
        processor.append(time.process_time() - used)
        clock.append(time.perf_counter() - start)
        if len(clock) == 1:
            after, check = _peak(), float(np.mean(answer))
    return {
        "seconds": min(clock),
        "processor": min(processor),
        "bytes": None if before is None or after is None else max(after - before, 0),
        "mean": check,
    }


def _repeats(first: float) -> int:
    """Least number of repetitions: the first one also analyses the structure and is given its memory by the system.

    It is decided by processor time, so that other work on the machine does not reduce it.
    """
    return 5 if first < 0.01 else 3 if first < 0.3 else 2 if first < 20.0 else 1


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


def _limit_memory(more: float | None) -> None:
    """No more than so many bytes from now on, where the system has such a limit."""
    if more is None:
        return
    try:
        import resource
    except ImportError:
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)  # what the shell allows can only be lowered
    wanted = int(pages * resource.getpagesize() + more)
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most < 0 else min(wanted, most), most))


def measured(
    rows: Sequence[dict[str, Any]], kind: str, value: str, least: float = 0
) -> tuple[Float64, Float64]:
    """Sizes from ``least`` on, and what was measured there, (sizes, seeds)."""
    mine = [
        r
        for r in rows
        if r["kind"] == kind and r["x"] >= least and r[value] and all((v or 0) > 0 for v in r[value])
    ]
    return np.array([r["x"] for r in mine], np.float64), np.array([r[value] for r in mine], np.float64)


def exponents(
    rows: Sequence[dict[str, Any]], kind: str, value: str, most: float = math.inf
) -> tuple[float, ...]:
    """Per seed the exponent p of ``a x^p``, by least squares of logarithms over the sizes that are fitted."""
    least = (MEMORY_FROM if value == "bytes" else FITTED_FROM).get(kind, math.inf)
    x, y = measured(rows, kind, value, least)
    x, y = x[x <= most], y[x <= most]
    if len(x) < 3:
        return ()
    return tuple(float(p) for p in np.polyfit(np.log(x), np.log(y), 1)[0])


def growth_text(rows: Sequence[dict[str, Any]], kind: str, value: str) -> str:
    """The exponent as a label: mean and half the width of its interval over seeds; empty if it was not fitted."""
    found = exponents(rows, kind, value)
    if len(found) < 2:
        return ""
    low, high = interval(found)
    half = (high - low) / 2
    spread = "{<}0.001" if half < 0.001 else f"{half:.{2 if half >= 0.01 else 3}f}"
    return f"{(low + high) / 2:.2f} \\pm {spread}"


if __name__ == "__main__":
    _serve()
