"""Section 6.2: generalised bipartite matching, loopy belief propagation against its baselines.

Rows hold 2 or 3, columns 1 or 2; affinities are standard normal. The truth is enumeration on 3 x 6 and a long Gibbs
run, by exact row and column blocks and trades, on 20 x 40.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tallytree.arrays import Float64
from tallytree.assignment import Assignment, assignment
from tallytree.potentials import (
    all_or_none,
    at_least,
    at_most,
    between,
    exactly,
    gaussian,
    noisy_or,
    one_of,
    parity,
    quadratic,
)

from .baselines import block_gibbs
from .sizes import Sizes
from .store import Store
from .workers import each

GRIDS = ((3, 6), (20, 40))
_REPEATS = 3
_ROWS, _COLUMNS = between(2, 3), between(1, 2)
CONSTRAINTS = {
    "ranges of counts, parity and soft potentials": {
        "1 or 2": between(1, 2), "at most 1": at_most(1), "at least 2": at_least(2), "even": parity("even"),
        "Gaussian": gaussian(2.0, 0.7), "noisy-OR": noisy_or(0.5), "smooth": quadratic(0.3),
        "competing": quadratic(-0.5),
    },
    "exact counts": {"exactly 1": exactly(1), "exactly 2": exactly(2)},
    "disjoint sets of counts": {"1 or 4": one_of([1, 4]), "0 or 3": one_of([0, 3])},
}  # fmt: skip
NAMES = {"lbp": "LBP", "node": "Node Marginals", "lp": "LP", "gibbs": "2x2 Gibbs"}


def measure(sizes: Sizes, seed: int, store: Store, jobs: int) -> dict[str, Any]:
    """Error and time of every method and run, larger problems, other constraints and a sampler that is stuck."""
    rows: list[dict[str, Any]] = []
    large: list[dict[str, Any]] = []
    length = (sizes.truth_sweeps, sizes.truth_chains)
    known = {"seed": seed, "size": sizes.name}
    cases = [
        (shape, s, run)
        for shape, runs in zip(GRIDS, sizes.runs)
        for s in range(sizes.seeds)
        for run in range(runs)
    ]
    names = ["{}x{}-{}-{}".format(*shape, s, run) for shape, s, run in cases]
    tasks = [
        (f"matching-truth-{name}", known, true_marginals, (case[0], case[2], [seed, case[1]], *length))
        for name, case in zip(names, cases)
    ]
    truths = each(store, tasks, jobs)
    for name, (shape, s, run), truth in zip(names, cases, truths):
        methods = partial(_methods, shape, run, [seed, s], truth["marginals"], sizes)
        found = store.numbers(f"matching-{name}", known, methods)
        rows += [{"shape": "{}x{}".format(*shape), "seed": s, "run": run, **row} for row in found]
        rows[-1]["truth_error"] = truth["standard_error"]
    for n in sizes.large_grids:
        for s in range(sizes.seeds if n == sizes.large_grids[0] else 1):
            large.append(
                store.numbers(f"matching-large-{n}-{s}", known, partial(_large, n, [seed, s])) | {"seed": s}
            )
    stuck = [
        store.numbers(f"matching-stuck-{s}", known, partial(_stuck, sizes, [seed, s]))
        for s in range(sizes.seeds)
    ]
    variety = [
        store.numbers(f"matching-variety-{s}", known, partial(_variety, [seed, s], sizes.variety_runs))
        for s in range(sizes.seeds)
    ]
    return {"rows": rows, "large": large, "stuck": stuck, "variety": variety}


def affinity(shape: tuple[int, int], run: int, seed: Sequence[int]) -> Float64:
    """The random problem of a run."""
    return np.random.default_rng([*seed, *shape, run]).normal(size=shape)


def problem(theta: Float64) -> Any:
    """Rows 2-3, columns 1-2."""
    return assignment(theta, rows=_ROWS, columns=_COLUMNS)


def true_marginals(
    shape: tuple[int, int], run: int, seed: Sequence[int], sweeps: int, chains: int
) -> dict[str, Any]:
    """What stands for the truth, with its standard error (0 for enumeration)."""
    theta = affinity(shape, run, seed)
    if theta.size <= 20:
        return {"marginals": enumerated(theta).tolist(), "standard_error": 0.0}
    found = problem(theta).gibbs_marginals(
        sweeps, rng=np.random.default_rng([*seed, run, 1]), burn_in=max(sweeps // 10, 10), chains=chains
    )
    return {
        "marginals": np.asarray(found.marginals).tolist(),
        "standard_error": float(np.mean(found.standard_error)),
    }


def enumerated(theta: Float64, rows: Any = _ROWS, columns: Any = _COLUMNS) -> Float64:
    """Marginals by summing over all matrices."""
    n_rows, n_columns = theta.shape
    bits, in_row, in_column = _all_matrices(n_rows, n_columns)
    log_weight = np.einsum("sc,c->s", bits, theta.reshape(-1))
    log_weight += rows.log_table(n_columns)[in_row].sum(1) + columns.log_table(n_rows)[in_column].sum(1)
    weight = np.exp(log_weight - log_weight.max())
    # Not by BLAS, whose last bits depend on its threads.
    return np.asarray(np.einsum("s,sc->c", weight / weight.sum(), bits).reshape(theta.shape))


@lru_cache(2)
def _all_matrices(n_rows: int, n_columns: int) -> tuple[Any, Any, Any]:
    """All binary matrices as rows of cells, with the counts of their rows and columns."""
    cells = n_rows * n_columns
    bits = ((np.arange(2**cells)[:, None] >> np.arange(cells)) & 1).astype(np.float64)
    y = bits.reshape(-1, n_rows, n_columns)
    return bits, y.sum(2).astype(np.intp), y.sum(1).astype(np.intp)


def _methods(
    shape: tuple[int, int], run: int, seed: Sequence[int], marginals: Any, sizes: Sizes
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
        rng = np.random.default_rng([*seed, run, 2])

        def chain(whole: Assignment, sweeps: int = sweeps, rng: np.random.Generator = rng) -> Float64:
            return block_gibbs(whole, theta, _ROWS, _COLUMNS, sweeps, rng, sweeps // 10)

        seconds, found = _least_time(fresh, chain, 1)
        rows.append(_row("gibbs", found, truth, seconds) | {"sweeps": sweeps})
    return rows


def _row(method: str, marginals: Any, truth: Float64, seconds: float) -> dict[str, Any]:
    gap = np.asarray(marginals) - truth
    return {"method": method, "error": float(np.abs(gap).mean()), "seconds": seconds}


def _stuck(sizes: Sizes, seed: Sequence[int]) -> dict[str, Any]:
    """Counts of 0 or 4 in all rows and columns of a 4 x 4 grid, where all on and all off are equally likely.

    The sampler cannot leave the state it starts from; with counts from 1 to 3, a control, it can.
    """
    theta, either, control = np.zeros((4, 4)), all_or_none(math.inf), between(1, 3)
    sweeps = max(sizes.gibbs_sweeps)
    out: dict[str, Any] = {"sweeps": sweeps}
    for name, constraint in (("disjoint", either), ("control", control)):
        whole = assignment(theta, rows=constraint, columns=constraint)
        rng = np.random.default_rng([*seed, 3])
        marginals = block_gibbs(whole, theta, constraint, constraint, sweeps, rng)
        out[name] = float(np.abs(marginals - enumerated(theta, constraint, constraint)).mean())
    return out


def _variety(seed: Sequence[int], runs: int) -> dict[str, Any]:
    """Mean error of LBP and of Node Marginals, and slowest time, under many constraints on 4 x 4 grids."""
    out: dict[str, Any] = {}
    for name, constraint in (item for kind in CONSTRAINTS.values() for item in kind.items()):
        errors, nodes, times = [], [], []
        for run in range(runs):
            theta = affinity((4, 4), run, seed)
            truth = enumerated(theta, constraint, constraint)
            fresh = partial(assignment, theta, rows=constraint, columns=constraint)
            used, beliefs = _least_time(fresh, lambda whole: whole.loopy_bp(), 1)
            errors.append(float(np.abs(beliefs.marginals - truth).mean()))
            nodes.append(float(np.abs(fresh().node_marginals() - truth).mean()))
            times.append(used)
        out[name] = {"error": float(np.mean(errors)), "node": float(np.mean(nodes)), "seconds": max(times)}
    return out


def _large(n: int, seed: Sequence[int]) -> dict[str, Any]:
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
    """Processor time and answer; of several repetitions the least time, since other work can only add to it.

    Every repetition has a problem of its own: a problem remembers its answers.
    """
    least = math.inf
    for _ in range(repeats):
        whole = fresh()
        start = time.process_time()
        answer = method(whole)
        least = min(least, time.process_time() - start)
    return least, answer


def means(
    rows: list[dict[str, Any]], shape: str, method: str, seed: int | None = None
) -> tuple[float, float, list[float]]:
    """Mean error, median time and all errors of a method on a grid, of one seed or all; of Gibbs the longest run."""
    taken = [
        r
        for r in rows
        if r["shape"] == shape and r["method"] == method and (seed is None or r["seed"] == seed)
    ]
    if method == "gibbs" and taken:
        longest = max(r["sweeps"] for r in taken)
        taken = [r for r in taken if r["sweeps"] == longest]
    if not taken:
        return math.nan, math.nan, []
    errors = [float(r["error"]) for r in taken]
    return float(np.mean(errors)), float(np.median([r["seconds"] for r in taken])), errors


def as_good(rows: list[dict[str, Any]], shape: str, seed: int) -> float:
    """Median time of the shortest Gibbs runs whose mean error is not above LBP's; of the longest if there are none."""
    mine = [r for r in rows if r["shape"] == shape and r["seed"] == seed]
    target = float(np.mean([r["error"] for r in mine if r["method"] == "lbp"]))
    found = math.nan
    for sweeps in sorted({r["sweeps"] for r in mine if r["method"] == "gibbs"}):
        runs = [r for r in mine if r["method"] == "gibbs" and r["sweeps"] == sweeps]
        found = float(np.median([r["seconds"] for r in runs]))
        if np.mean([r["error"] for r in runs]) <= target:
            break
    return found
