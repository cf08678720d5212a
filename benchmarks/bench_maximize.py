"""Best configurations: the figures that maximisation is held to.

Run it as ``python benchmarks/bench_maximize.py``. Every line gives the best of a few runs on fresh models over a
structure that is analysed once, and the target where there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tallytree as tt


def best_of(make: Callable[[], Any], work: Callable[[Any], Any], repeats: int = 3) -> float:
    """Shortest time of ``work`` on what ``make`` returns; a warm-up analyses the structure."""
    work(make())
    times = []
    for _ in range(repeats):
        subject = make()
        start = time.perf_counter()
        work(subject)
        times.append(time.perf_counter() - start)
    return min(times)


def report(name: str, seconds: float, target: str = "") -> None:
    print(f"{name:<66} {1e3 * seconds:10.1f} ms   {target}", flush=True)


def one_potential(rng: np.random.Generator) -> None:
    logits, table = rng.normal(size=10**6), 5 * rng.normal(size=10**6 + 1)
    sort = best_of(lambda: logits, np.argsort, 5)
    mode = best_of(lambda: tt.CountModel(logits, table), lambda m: m.mode(), 5)
    report("np.argsort, 10^6 numbers", sort)
    report("mode, one potential, D = 10^6", mode, f"{mode / sort:.2f} x argsort (target: at most 3)")
    marginals = best_of(lambda: tt.CountModel(logits, table), lambda m: m.max_marginals)
    report("max_marginals, one potential, D = 10^6", marginals, f"{marginals / sort:.2f} x argsort")


def concave(rng: np.random.Generator, n: int) -> np.ndarray:
    return -rng.uniform(0.1, 2.0) / n * (np.arange(n + 1) - rng.uniform(0, n)) ** 2


def nested(rng: np.random.Generator) -> None:
    size = 10**5
    logits = rng.normal(size=size)
    trees = {
        "binary tree": tt.CountTree.balanced(size),
        "1000 groups under one": tt.CountTree.balanced(size, arity=1000, min_size=100),
    }
    for name, tree in trees.items():
        packed = np.concatenate([concave(rng, len(g)) for g in tree.groups])

        def make(tree: tt.CountTree = tree, packed: np.ndarray = packed) -> tt.CountModel:
            model = tt.CountModel.from_tree(tree, logits, packed)
            model.max_log_weight  # noqa: B018 - parameters are packed and folded once
            model._cache.clear()
            return model

        report(
            f"mode, concave tables, {name}, D = 10^5",
            best_of(make, lambda m: m.mode()),
            "target: under 1000 ms",
        )
        report(f"max_marginals, concave tables, {name}, D = 10^5", best_of(make, lambda m: m.max_marginals))


def arbitrary(rng: np.random.Generator) -> None:
    for size in (2048, 8192):
        tree = tt.CountTree.balanced(size)
        packed = 5 * rng.normal(size=sum(len(g) + 1 for g in tree.groups))
        logits = rng.normal(size=size)

        def make(
            tree: tt.CountTree = tree, packed: np.ndarray = packed, logits: np.ndarray = logits
        ) -> tt.CountModel:
            return tt.CountModel.from_tree(tree, logits, packed)

        report(
            f"mode, arbitrary tables, binary tree, D = {size}", best_of(make, lambda m: m.mode()), "quadratic"
        )


def k_best(rng: np.random.Generator) -> None:
    size = 1000
    logits = rng.normal(size=size)
    trees = {
        "one potential": tt.CountTree.flat(size),
        "binary tree": tt.CountTree.balanced(size),
        "500 pairs": tt.CountTree.from_groups([range(i, i + 2) for i in range(0, size, 2)], size),
        "caterpillar": tt.CountTree.from_groups([range(n) for n in range(2, size + 1)], size),
    }
    for name, tree in trees.items():
        packed = rng.normal(size=sum(len(g) + 1 for g in tree.groups))

        def make(tree: tt.CountTree = tree, packed: np.ndarray = packed) -> tt.CountModel:
            return tt.CountModel.from_tree(tree, logits, packed)

        report(
            f"mode_k(1000), {name}, D = 1000",
            best_of(make, lambda m: m.mode_k(1000)),
            "target: under 1000 ms",
        )


def batch(rng: np.random.Generator) -> None:
    tree = tt.CountTree.balanced(100)
    packed = rng.normal(size=sum(len(g) + 1 for g in tree.groups))
    logits = rng.normal(size=(1000, 100))

    def make() -> tt.CountModel:
        return tt.CountModel.from_tree(tree, logits, packed)

    report("mode, batch of 1000, binary tree, D = 100", best_of(make, lambda m: m.mode()))


def main() -> None:
    rng = np.random.default_rng(0)
    for part in (one_potential, nested, arbitrary, k_best, batch):
        part(rng)


if __name__ == "__main__":
    main()
