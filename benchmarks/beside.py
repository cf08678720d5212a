"""Two installations of the package side by side: the same work in turns, in one run.

python benchmarks/beside.py --other OTHER/bin/python [--rounds 15] [--only NAME ...]

OTHER is the interpreter of an environment with another version of the package. Every piece of work is done in turns by
a process of each; printed are the medians of processor time and wall time here, and the ratios to the other's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def tasks() -> dict[str, Callable[[], Any]]:
    """Work that every version of the public interface can do; each call makes new models."""
    import numpy as np

    import tallytree as tt
    from tallytree import config

    rng = np.random.default_rng(0)
    small, table = rng.normal(size=100), rng.normal(size=101)
    batch, batch_table = rng.normal(size=(1000, 100)), rng.normal(size=101)
    long, long_table = rng.normal(size=1 << 20), rng.normal(size=(1 << 20) + 1)
    middle, middle_table = rng.normal(size=4096), rng.normal(size=4097)
    tree = tt.CountTree.balanced(4096)
    packed = rng.normal(size=sum(len(g) + 1 for g in tree.groups))
    path = tt.Forest([(i, i + 1) for i in range(1999)], coupling=0.3)
    direction, array_direction = rng.normal(size=4096), rng.normal(size=100)
    nested = [tt.Group(range(25 * i, 25 * i + 25), tt.at_least(1)) for i in range(4)] + [
        tt.Group(None, tt.exactly(20))
    ]
    of_groups = tt.CountModel(small, nested)

    def products(n: int) -> list[Any]:
        v = direction[:n]
        return [tt.CountModel(small[:n], table[: n + 1]).hessian_vector_product(v) for _ in range(50)]

    def array_product() -> Any:
        with config.using(engine="array"):
            return tt.CountModel(small, nested).hessian_vector_product(array_direction)

    return {
        "single D = 100, table": lambda: [tt.CountModel(small, table).marginals for _ in range(50)],
        "single D = 100, exactly": lambda: [
            tt.CountModel(small, tt.exactly(10)).marginals for _ in range(50)
        ],
        "batch 1000 x 100": lambda: tt.CountModel(batch, batch_table).marginals,
        "batch 1000 x 100, exactly": lambda: tt.CountModel(batch, tt.exactly(10)).marginals,
        "batch 1000 x (4 x 25)": lambda: tt.CountModel(batch, nested).marginals,
        "flat 4096": lambda: [tt.CountModel(middle, middle_table).marginals for _ in range(10)],
        "flat 2^20": lambda: tt.CountModel(long, long_table).marginals,
        "exactly k of 2^20": lambda: tt.CountModel(long, tt.exactly(100_000)).marginals,
        "tree of 4096": lambda: tt.CountModel.from_tree(tree, middle, packed).marginals,
        "1000 samples of 4096": lambda: tt.CountModel(middle, tt.exactly(400)).sample(1000, rng=0),
        "mode of 2^20": lambda: tt.CountModel(long, long_table).mode(),
        "path of 2000 and a count": lambda: (
            tt.CountModel(middle[:2000], tt.exactly(300), edges=path).marginals
        ),
        "mode of a path of 2000": lambda: tt.CountModel(middle[:2000], tt.exactly(300), edges=path).mode(),
        "product D = 30": lambda: products(30),
        "product D = 100": lambda: products(100),
        "product of 4096": lambda: tt.CountModel(middle, middle_table).hessian_vector_product(direction),
        "product of 4 x 25, array code": array_product,
        "covariance row of 4 x 25": lambda: [
            of_groups.replace(logits=small + 0.0).covariance(rows=[0]) for _ in range(10)
        ],
        "entropy of 4096": lambda: tt.CountModel(middle, middle_table).entropy,
        "sum of 100 events": lambda: [tt.PoissonBinomial(logits=small).pmf(20) for _ in range(50)],
    }


def work() -> None:
    """Answer names on standard input with times, until there are no more."""
    known = tasks()
    print(json.dumps(sorted(known)), flush=True)
    for line in sys.stdin:
        task = known[line.strip()]
        wall, own = time.perf_counter(), time.process_time()
        task()
        print(json.dumps([time.process_time() - own, time.perf_counter() - wall]), flush=True)


class Worker:
    """A process that does the work with one installation."""

    def __init__(self, python: str) -> None:
        command = [python, __file__, "--work"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.names: list[str] = self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def time(self, name: str) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        found: list[float] = self._read()
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--other", help="interpreter with the other version")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work()
    if options.other is None:
        parser.error("--other is needed: the interpreter of an environment with another version")
    here, other = Worker(sys.executable), Worker(options.other)
    print(f"{'work':28} {'processor':>10} {'wall':>10} {'processor ratio':>16} {'wall ratio':>11}")
    for name in options.only or list(tasks()):
        for worker in (here, other):
            worker.time(name)  # the first time is not counted
        rounds = [(here.time(name), other.time(name)) for _ in range(options.rounds)]
        own, theirs = (
            [statistics.median(pair[side][kind] for pair in rounds) for kind in (0, 1)] for side in (0, 1)
        )
        ratios = f"{own[0] / theirs[0]:16.2f} {own[1] / theirs[1]:11.2f}"
        print(f"{name:28} {own[0] * 1e3:8.2f}ms {own[1] * 1e3:8.2f}ms {ratios}", flush=True)
    here.close()
    other.close()


if __name__ == "__main__":
    main()
