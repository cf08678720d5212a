"""Exact joint samples: what they cost, beside NumPy's cost of making as many random bytes.

    python benchmarks/bench_sampling.py [--repeat 5] [--threads N]

Every row is the best of several runs, wall clock and processor time; "prepare" is the upward pass, paid once per model.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np

import tallytree as tt


def best(work: Callable[[], object], repeat: int) -> tuple[float, float]:
    wall, processor = [], []
    for _ in range(repeat):
        t, c = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - t)
        processor.append(time.process_time() - c)
    return min(wall), min(processor)


def nested(n: int, sd: float, rng: np.random.Generator) -> tt.CountModel:
    """Random tables on every node of a balanced tree."""
    tree = tt.CountTree.balanced(n)
    return tt.CountModel.from_tree(
        tree, rng.normal(size=n), [sd * rng.normal(size=len(g) + 1) for g in tree.groups]
    )


def two_level(n: int, rng: np.random.Generator) -> tt.CountModel:
    groups = [tt.Group(range(i, i + 100), tt.at_least(3)) for i in range(0, n, 100)]
    return tt.CountModel(rng.normal(-1, 1, n), [*groups, tt.Group(None, tt.gaussian(n / 3, 30.0))])


def row(name: str, model: tt.CountModel, samples: int, repeat: int) -> tuple[float, float]:
    prepare = best(lambda: model.replace().sample(0, rng=0), repeat)
    model.sample(0, rng=0)
    draw = best(lambda: model.sample(samples, rng=1), repeat)
    each = draw[0] / samples / max(1, model.n_variables)
    print(
        f"{name:34s} {samples:5d} {1e3 * prepare[0]:9.2f} {1e3 * draw[0]:9.2f} {1e3 * draw[1]:9.2f} {1e9 * each:9.2f}",
        flush=True,
    )
    return draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        os.environ["TALLYTREE_NUM_THREADS"] = str(arguments.threads)
    tt.show_config()
    rng, repeat = np.random.default_rng(0), arguments.repeat
    print(
        f"\n{'model':34s} {'draws':>5s} {'prepare':>9s} {'draw':>9s} {'processor':>9s} {'ns/var':>9s}   (ms)"
    )
    for n in (100, 1000, 10_000):
        row(f"exactly D/10, D = {n}", tt.CountModel(rng.normal(-1, 1, n), tt.exactly(n // 10)), 1000, repeat)
    large = tt.CountModel(rng.normal(-1, 1, 100_000), tt.exactly(10_000))
    integers, bytes_ = (
        best(work, repeat)
        for work in (lambda: rng.integers(0, 256, 10**8, dtype=np.uint8), lambda: rng.bytes(10**8))
    )
    drawn = row("exactly D/10, D = 100000", large, 1000, repeat)
    row("the same, one draw", large, 1, repeat)
    row("tables on all nodes, sd 1, D = 4096", nested(4096, 1.0, rng), 1000, repeat)
    row("tables on all nodes, sd 50, D = 4096", nested(4096, 50.0, rng), 1000, repeat)
    row("200 groups of 100 and a total", two_level(20_000, rng), 1000, repeat)
    row("no groups, D = 100000", tt.CountModel(rng.normal(-1, 1, 100_000)), 1000, repeat)
    print("\n10^8 random bytes by NumPy beside 1000 draws of D = 100000 (ratio below 3 wanted)")
    for name, cost in (("rng.integers(0, 256, 10**8, uint8)", integers), ("rng.bytes(10**8)", bytes_)):
        print(
            f"{name:34s} {1e3 * cost[0]:7.1f} ms wall {1e3 * cost[1]:7.1f} ms processor; "
            f"ratio {drawn[0] / cost[0]:.2f} wall {drawn[1] / cost[1]:.2f} processor"
        )


if __name__ == "__main__":
    main()
