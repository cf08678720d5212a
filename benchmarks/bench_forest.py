"""Forests with counts: log Z and all marginals on every shape, the figures that they are held to.

Run it as ``python benchmarks/bench_forest.py``. Times are the best of a few runs; "analysis" is done once per structure,
"inference" is one model on it: log Z, all marginals and all edge marginals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tallytree as tt

SHAPES = ("path", "star", "caterpillar", "random")
REPEATS = 5


def pairs_of(shape: str, n: int, rng: np.random.Generator) -> np.ndarray:
    v = np.arange(1, n)
    half = n // 2
    match shape:
        case "path":
            parent = v - 1
        case "star":
            parent = np.zeros_like(v)
        case "caterpillar":
            parent = np.where(v < half, v - 1, v - half)
        case _:
            parent = (rng.random(n - 1) * v).astype(np.int64)
    return np.stack([parent, v], axis=1)


def best_of(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    times, found = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - start)
    return min(times), found


def marginals(model: tt.CountModel) -> Any:
    return model.log_partition, model.marginals


def shapes(rng: np.random.Generator) -> None:
    print("one count over all variables, a soft Gaussian potential away from the mean")
    print(f"{'shape':<12} {'D':>7} {'analysis':>10} {'inference':>10} {'both':>10}   growth per decade (target: at most 13)")
    for shape in SHAPES:
        last = None
        for n in (10**4, 10**5):
            pairs, tables = pairs_of(shape, n, rng), rng.normal(size=(n - 1, 2, 2))
            logits, potential = rng.normal(size=n) - 1.0, tt.gaussian(0.4 * n, 2.0 * np.sqrt(n))
            analysis, model = best_of(lambda: tt.CountModel(logits, potential, edges=tt.Forest(pairs, tables)))  # noqa: B023
            inference, _ = best_of(lambda: marginals(model.replace(logits=logits)))  # noqa: B023
            both = analysis + inference
            growth = "" if last is None else f"{both / last:5.1f} x"
            target = "target: 1 s" if n == 10**5 else ""
            print(f"{shape:<12} {n:7d} {analysis:9.3f}s {inference:9.3f}s {both:9.3f}s   {growth} {target}", flush=True)
            last = both


def without_groups(rng: np.random.Generator) -> None:
    n = 10**5
    model = tt.CountModel(rng.normal(size=n), edges=tt.Forest(pairs_of("random", n, rng), rng.normal(size=(n - 1, 2, 2))))
    seconds, _ = best_of(lambda: marginals(model.replace(logits=model.logits)))
    print(f"no group (ordinary belief propagation), random tree, D = 10^5   {seconds:.3f}s")


def intervals(rng: np.random.Generator) -> None:
    n, size = 10**5, 50
    pairs, tables = pairs_of("path", n, rng), rng.normal(size=(n - 1, 2, 2))
    groups = [tt.Group(range(i, i + size), tt.at_least(1)) for i in range(0, n, size)]
    groups.append(tt.Group(None, tt.gaussian(0.5 * n, 100.0)))
    analysis, model = best_of(
        lambda: tt.CountModel(rng.normal(size=n), groups, edges=tt.Forest(pairs, tables)), repeats=2
    )
    seconds, _ = best_of(lambda: marginals(model.replace(logits=model.logits)))
    print(f"chain of 10^5 with {n // size} intervals under one count   analysis {analysis:.3f}s, inference {seconds:.3f}s")


def labels(rng: np.random.Generator) -> None:
    for k, n in ((3, 10**4), (10, 2000)):
        unary, transitions = rng.normal(size=(n, k)), rng.normal(size=(n - 1, k, k))
        model = tt.ChainModel(unary, transitions, tt.exactly(n // 5))
        seconds, _ = best_of(lambda: model.replace(log_unary=unary).marginals, repeats=2)  # noqa: B023
        print(f"chain of {n} positions, {k} labels, exactly {n // 5} of one   {seconds:.3f}s")
    unary, lengths = rng.normal(size=(200, 100, 5)), rng.integers(20, 101, 200)
    model = tt.ChainModel(unary, rng.normal(size=(5, 5)), tt.at_least(3), lengths=lengths)
    seconds, _ = best_of(lambda: model.replace(log_unary=unary).marginals, repeats=2)
    print(f"200 sequences of 20 to 100 positions, 5 labels, at least 3 of one   {seconds:.3f}s")


def main() -> None:
    tt.show_config()
    rng = np.random.default_rng(0)
    shapes(rng)
    without_groups(rng)
    intervals(rng)
    labels(rng)


if __name__ == "__main__":
    main()
