"""Overlapping counts: exact answers of pooled tests, beside PySDD, and how often unreliable beliefs are flagged.

Run it as ``python benchmarks/bench_overlap.py`` (``--quick`` for the smaller sizes and fewer graphs). "cpu" is the
processor time of all threads, for machines that are busy with other work.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tallytree as tt
from tallytree.loopy import reliability

POOLS = ((96, 8, 2, 0.04), (144, 12, 2, 0.04), (200, 10, 3, 0.0), (400, 20, 2, 0.04))
BESIDE = ((24, 4), (36, 6), (48, 6), (60, 6), (72, 8), (96, 8))
PATIENCE = 5.0  # seconds that PySDD may take before no larger problem is tried
NARROW = (
    64  # states up to which beliefs are compared with exact ones here: fewer than most of these graphs need
)
WIDEST = 2**16
FRESH = 2031  # seed of graphs that no threshold was chosen on


def pools(
    rng: np.random.Generator, n: int, size: int, rounds: int, noise: float, prevalence: float
) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Log-odds of people, members of pools in rounds, and results that are wrong with probability `noise`."""
    sets = [own for _ in range(rounds) for own in np.split(rng.permutation(n), n // size)]
    ill = rng.random(n) < prevalence
    results = np.array([ill[own].any() for own in sets]) ^ (rng.random(len(sets)) < noise)
    return np.full(n, np.log(prevalence / (1.0 - prevalence))) + 0.5 * rng.normal(size=n), sets, results


def graph_of(logits: np.ndarray, sets: list[np.ndarray], results: np.ndarray, noise: float) -> tt.FactorGraph:
    groups = []
    for own, positive in zip(sets, results):
        some = np.arange(len(own) + 1) > 0
        with np.errstate(divide="ignore"):
            groups.append(tt.Group(own, np.log(np.where(some == positive, 1.0 - noise, noise))))
    return tt.FactorGraph(logits, groups)


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    start, used = time.perf_counter(), time.process_time()
    answer = work()
    return time.perf_counter() - start, time.process_time() - used, answer


def pooled_tests(quick: bool) -> None:
    print("exact marginals of pooled tests, the search for an order included (target: 2 s each)")
    print(f"{'people':>6} {'pools':>6} {'size':>5} {'noise':>6} {'width':>9} {'wall':>9} {'cpu':>9}")
    for n, size, rounds, noise in POOLS[: 3 if quick else 4]:
        parts = pools(np.random.default_rng(0), n, size, rounds, noise, 0.03 if noise else 0.1)
        graph = graph_of(*parts, noise)
        wall, cpu, exact = timed(lambda graph=graph: _exact(graph))
        print(
            f"{n:6d} {len(parts[1]):6d} {size:5d} {noise:6.2f} {exact.width:9d} {wall:8.3f}s {cpu:8.3f}s",
            flush=True,
        )


def _exact(graph: tt.FactorGraph, limit: float = 2.0**24) -> Any:
    result = graph.exact(limit)
    result.log_odds  # noqa: B018 - computed when it is asked for
    return result


def beside_pysdd(quick: bool) -> None:
    try:
        import pysdd.sdd  # noqa: F401
    except ImportError:
        print("PySDD is not installed")
        return
    print("noisy pools, two for everybody, all marginals: compiled and counted by PySDD, and exact here")
    print(f"{'people':>6} {'pools':>6} {'width':>7} {'PySDD':>9} {'here':>9} {'ratio':>7} {'difference':>10}")
    for n, size in BESIDE[: 2 if quick else None]:
        logits, sets, results = pools(np.random.default_rng(0), n, size, 2, 0.04, 0.03)
        graph = graph_of(logits, sets, results, 0.04)
        here, _, exact = timed(lambda graph=graph: _exact(graph))
        peer, _, theirs = timed(lambda a=logits, b=sets, c=results: counted(a, b, c, 0.04))
        difference = np.abs(theirs - exact.marginals).max()
        print(
            f"{n:6d} {len(sets):6d} {exact.width:7d} {peer:8.3f}s {here:8.3f}s {peer / here:6.1f}x {difference:10.1e}",
            flush=True,
        )
        if peer > PATIENCE:
            break


def counted(logits: np.ndarray, sets: list[np.ndarray], results: np.ndarray, noise: float) -> np.ndarray:
    """Marginals by PySDD: "the pool is positive" is a variable of its own, weighted by what the test said."""
    from pysdd.sdd import SddManager, Vtree, WmcManager

    n = len(logits)
    manager = SddManager.from_vtree(Vtree(n + len(sets), list(range(1, n + len(sets) + 1)), "balanced"))
    manager.auto_gc_and_minimize_on()
    node = manager.true()
    node.ref()
    for a, own in enumerate(sets):
        some = manager.false()
        for v in own.tolist():
            some = some | manager.literal(v + 1)
        pool = manager.literal(n + a + 1)
        both = node & ((pool & some) | (~pool & ~some))
        both.ref()
        node.deref()
        node = both
    counter = WmcManager(node, log_mode=True)
    right, wrong = np.log1p(-noise), np.log(noise)
    weights = {v + 1: float(logits[v]) for v in range(n)} | {-v - 1: 0.0 for v in range(n)}
    for a, positive in enumerate(results.tolist()):
        weights[n + a + 1], weights[-n - a - 1] = (right, wrong) if positive else (wrong, right)
    for literal, weight in weights.items():
        counter.set_literal_weight(manager.literal(literal), weight)
    counter.propagate()
    return np.array([np.exp(counter.literal_pr(manager.literal(v))) for v in range(1, n + 1)])


# -- flags


def some_pools(rng: np.random.Generator, noise: float) -> tt.FactorGraph:
    n, size = ((24, 4), (36, 6), (48, 6), (48, 8), (60, 6), (72, 8))[rng.integers(6)]
    return graph_of(
        *pools(rng, n, size, int(rng.integers(2, 4)), noise, rng.choice([0.02, 0.05, 0.1, 0.2])), noise
    )


def quotas(rng: np.random.Generator) -> tt.FactorGraph:
    """Exact totals of the rows and columns of a random matrix."""
    shape = rng.integers(4, 8, 2)
    index, on = np.arange(shape.prod()).reshape(shape), rng.random(shape) < rng.choice([0.2, 0.4])
    lines = [*zip(index, on.sum(1)), *zip(index.T, on.sum(0))]
    logits = rng.normal(size=index.size) * rng.choice([0.5, 1.0, 2.0])
    return tt.FactorGraph(logits, [tt.Group(own, tt.exactly(int(k))) for own, k in lines])


def random_factors(rng: np.random.Generator) -> tt.FactorGraph:
    n, scale = int(rng.integers(20, 45)), rng.choice([0.3, 1.0, 2.0])
    sizes = rng.integers(2, 6, rng.integers(n // 4, n // 2))
    groups = [tt.Group(rng.permutation(n)[:k], rng.normal(size=k + 1) * scale) for k in sizes.tolist()]
    return tt.FactorGraph(rng.normal(size=n), groups)


KINDS: dict[str, Callable[[np.random.Generator], tt.FactorGraph]] = {
    "noisy pools": lambda rng: some_pools(rng, rng.choice([0.01, 0.04, 0.1])),
    "noise-free pools": lambda rng: some_pools(rng, 0.0),
    "crossed quotas": quotas,
    "random factors": random_factors,
}


def flags(number: int) -> None:
    """Graphs with a belief that is off by more than 0.1, and good ones: how many of each are flagged."""
    reliability.NARROW = NARROW
    print(
        f"flagged as not reliable; exact only up to {NARROW} states (target: 95 of 100 that are off by more than 0.1, "
        "at most 5 of 100 within 0.02)"
    )
    print(
        f"{'graphs':<18} {'wider':>5} {'off by > 0.1':>14} {'within 0.02':>14} {'within 0.1':>14} {'cpu':>8}"
    )
    all_rows = []
    for name, make in KINDS.items():
        rng, rows = np.random.default_rng(FRESH), []
        for _ in range(number):
            graph = make(rng)
            if graph.width <= WIDEST:
                beliefs = tt.loopy_bp(graph)
                error = np.abs(beliefs.marginals - _exact(graph).marginals).max()
                _, cpu, reliable = timed(lambda beliefs=beliefs: beliefs.reliable)
                rows.append((error, not reliable, graph.width > NARROW, cpu))
        _print_flags(name, rows)
        all_rows += rows
    _print_flags("all", all_rows)
    _print_flags(f"wider than {NARROW}", [row for row in all_rows if row[2]])


def _print_flags(name: str, rows: list[tuple[float, bool, bool, float]]) -> None:
    error, flagged, wider, cpu = (np.array(column) for column in zip(*rows))
    shares = [
        f"{flagged[chosen].sum():5d} of {chosen.sum():3d}  "
        for chosen in (error > 0.1, error <= 0.02, error <= 0.1)
    ]
    print(f"{name:<18} {wider.sum():5d} " + " ".join(shares) + f" {cpu.mean():6.3f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer graphs")
    quick = parser.parse_args().quick
    tt.show_config()
    pooled_tests(quick)
    beside_pysdd(quick)
    flags(20 if quick else 400)


if __name__ == "__main__":
    main()
