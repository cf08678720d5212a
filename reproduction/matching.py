"""Section 6.2: generalised bipartite matching, loopy belief propagation against its baselines.

Rows hold 2 or 3, columns 1 or 2; affinities are standard normal. The truth is enumeration on 3 x 6 and a long Gibbs
run, by exact row and column blocks and trades, on 20 x 40.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tallytree.arrays import Float64
from tallytree.assignment import Assignment, assignment
from tallytree.potentials import all_or_none, between

from .baselines import block_gibbs
from .sizes import Sizes
from .store import Store
from .workers import each

GRIDS = ((3, 6), (20, 40))
_REPEATS = 3
_ROWS, _COLUMNS = between(2, 3), between(1, 2)
NAMES = {"lbp": "LBP", "node": "Node Marginals", "lp": "LP", "gibbs": "2x2 Gibbs"}


def measure(sizes: Sizes, seed: int, store: Store, jobs: int) -> dict[str, Any]:
    """Error and seconds of every method and run, larger problems, and one problem to look at."""
    rows: list[dict[str, Any]] = []
    for shape, runs in zip(GRIDS, sizes.runs):
        grid = f"{shape[0]}x{shape[1]}"
        inputs = [{"shape": shape, "run": run, "seed": seed, "size": sizes.name} for run in range(runs)]
        length = (sizes.truth_sweeps, sizes.truth_chains)
        tasks = [
            (f"matching-truth-{grid}-{run}", known, true_marginals, (shape, run, seed, *length))
            for run, known in enumerate(inputs)
        ]
        for run, truth in enumerate(each(store, tasks, jobs)):
            methods = partial(_methods, shape, run, seed, truth["marginals"], sizes)
            found = store.numbers(f"matching-{grid}-{run}", inputs[run], methods)
            rows += [{"shape": grid, "run": run, **row} for row in found]
            rows[-1]["truth_error"] = truth["standard_error"]
    common = {"seed": seed, "size": sizes.name}
    large = [
        store.numbers(f"matching-large-{n}", {"n": n} | common, partial(_large, n, seed))
        for n in sizes.large_grids
    ]
    stuck = store.numbers("matching-stuck", common, partial(_stuck, sizes, seed))
    return {"rows": rows, "large": large, "stuck": stuck}


def affinity(shape: tuple[int, int], run: int, seed: int) -> Float64:
    """The random problem of a run."""
    return np.random.default_rng([seed, *shape, run]).normal(size=shape)


def problem(theta: Float64) -> Any:
    """Rows 2-3, columns 1-2."""
    return assignment(theta, rows=_ROWS, columns=_COLUMNS)


def true_marginals(shape: tuple[int, int], run: int, seed: int, sweeps: int, chains: int) -> dict[str, Any]:
    """What stands for the truth, with its standard error (0 for enumeration)."""
    theta = affinity(shape, run, seed)
    if theta.size <= 20:
        return {"marginals": enumerated(theta).tolist(), "standard_error": 0.0}
    found = problem(theta).gibbs_marginals(
        sweeps, rng=np.random.default_rng([seed, run, 1]), burn_in=max(sweeps // 10, 10), chains=chains
    )
    return {
        "marginals": np.asarray(found.marginals).tolist(),
        "standard_error": float(np.mean(found.standard_error)),
    }


def enumerated(theta: Float64) -> Float64:
    """Marginals by summing over all matrices."""
    n_rows, n_columns = theta.shape
    bits = ((np.arange(2**theta.size)[:, None] >> np.arange(theta.size)) & 1).astype(np.int8)
    y = bits.reshape(-1, n_rows, n_columns)
    allowed = np.isin(y.sum(2), (2, 3)).all(1) & np.isin(y.sum(1), (1, 2)).all(1)
    weight = np.exp(bits[allowed] @ theta.reshape(-1))
    return np.asarray(np.tensordot(weight / weight.sum(), y[allowed].astype(np.float64), (0, 0)))


def _methods(
    shape: tuple[int, int], run: int, seed: int, marginals: Any, sizes: Sizes
) -> list[dict[str, Any]]:
    theta, truth = affinity(shape, run, seed), np.array(marginals)
    problem(theta).loopy_bp()  # load what is loaded once
    fresh = partial(problem, theta)
    seconds, beliefs = _least_time(fresh, lambda whole: whole.loopy_bp())
    settled = {"sweeps": beliefs.result.iterations, "converged": bool(beliefs.result.converged)}
    rows = [_row("lbp", beliefs.marginals, truth, seconds) | settled]
    for method, ask in (("node", Assignment.node_marginals), ("lp", Assignment.lp_marginals)):
        seconds, answer = _least_time(fresh, ask)
        rows.append(_row(method, answer, truth, seconds))
    for sweeps in sizes.gibbs_sweeps:
        rng = np.random.default_rng([seed, run, 2])

        def chain(whole: Assignment, sweeps: int = sweeps, rng: np.random.Generator = rng) -> Float64:
            return block_gibbs(whole, theta, _ROWS, _COLUMNS, sweeps, rng, sweeps // 10)

        seconds, found = _least_time(fresh, chain, 1)
        rows.append(_row("gibbs", found, truth, seconds) | {"sweeps": sweeps})
    return rows


def _row(method: str, marginals: Any, truth: Float64, seconds: float) -> dict[str, Any]:
    gap = np.asarray(marginals) - truth
    return {"method": method, "error": float(np.abs(gap).mean()), "seconds": seconds}


def _stuck(sizes: Sizes, seed: int) -> dict[str, Any]:
    """Counts of 0 or 4 in all rows and columns of a 4 x 4 grid: the sampler cannot leave the state it starts from."""
    theta, either = np.zeros((4, 4)), all_or_none(math.inf)
    whole, sweeps = assignment(theta, rows=either, columns=either), max(sizes.gibbs_sweeps)
    marginals = block_gibbs(whole, theta, either, either, sweeps, np.random.default_rng([seed, 3]))
    return {"sweeps": sweeps, "low": float(marginals.min()), "high": float(marginals.max())}


def _large(n: int, seed: int) -> dict[str, Any]:
    # On a square grid rows of 2-3 and columns of 1-2 leave only 2 and 2: both have 2-3 here.
    theta = affinity((n, n), 0, seed)

    def fresh() -> Assignment:
        whole = assignment(theta, rows=between(2, 3), columns=between(2, 3))
        whole.graph  # noqa: B018 (the setup is not timed)
        return whole

    repeats = _REPEATS if n <= 200 else 1
    seconds, beliefs = _least_time(fresh, lambda whole: whole.loopy_bp(), repeats)
    lp_seconds, _ = _least_time(fresh, Assignment.lp_marginals, repeats)
    return {
        "n": n,
        "shape": f"{n}x{n}",
        "seconds": seconds,
        "lp_seconds": lp_seconds,
        "sweeps": beliefs.result.iterations,
        "converged": bool(beliefs.result.converged),
        "trace": np.asarray(beliefs.result.trace).tolist(),
    }


def _least_time(
    fresh: Callable[[], Assignment], method: Callable[[Assignment], Any], repeats: int = _REPEATS
) -> tuple[float, Any]:
    """Seconds and answer; of several repetitions the least time, since other work can only add to it.

    Every repetition has a problem of its own: a problem remembers its answers.
    """
    least = math.inf
    for _ in range(repeats):
        whole = fresh()
        start = time.perf_counter()
        answer = method(whole)
        least = min(least, time.perf_counter() - start)
    return least, answer


def means(rows: list[dict[str, Any]], shape: str, method: str) -> tuple[float, float, list[float]]:
    """Mean error, median seconds and all errors of a method on a grid; of Gibbs the longest run."""
    taken = [r for r in rows if r["shape"] == shape and r["method"] == method]
    if method == "gibbs" and taken:
        longest = max(r["sweeps"] for r in taken)
        taken = [r for r in taken if r["sweeps"] == longest]
    if not taken:
        return math.nan, math.nan, []
    errors = [float(r["error"]) for r in taken]
    return float(np.mean(errors)), float(np.median([r["seconds"] for r in taken])), errors
