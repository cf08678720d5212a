"""Second order: covariances, joint probabilities and Hessian-vector products.

``python benchmarks/bench_second_order.py [--repeat N]``
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import tallytree as tt


def median_seconds(run, repeat):
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def rows():
    """Pairs of a description and a function that does the work on a solved model."""
    rng = np.random.default_rng(0)
    for n in (100, 1000):
        model = tt.CountModel(rng.normal(size=n), tt.exactly(n // 10))
        model.marginals  # noqa: B018 - the first-order answer is not part of the work
        yield f"covariance, all rows, exactly k, D = {n}", model.covariance
        yield f"joint probabilities, all pairs, exactly k, D = {n}", model.pairwise
    for n in (1000, 10**5, 10**6):
        model = tt.CountModel(rng.normal(size=n), tt.exactly(n // 10))
        model.marginals  # noqa: B018
        direction = rng.normal(size=n)
        yield (
            f"Hessian-vector product, exactly k, D = {n}",
            lambda model=model, direction=direction: model.hessian_vector_product(direction, counts=False),
        )
    model = tt.CountModel(rng.normal(size=10**5), tt.exactly(10**4))
    model.marginals  # noqa: B018
    yield "covariance, 10 rows, exactly k, D = 100000", lambda: model.covariance(np.arange(10))
    tree = tt.CountTree.balanced(256)
    tables = rng.normal(size=tree.program.table_total)
    nested = tt.CountModel.from_tree(tree, rng.normal(size=256), tables)
    nested.marginals  # noqa: B018
    yield (
        "Hessian-vector product, a table on every node, D = 256",
        lambda: nested.hessian_vector_product(np.ones(256)),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    for name, run in rows():
        print(f"{name:60s} {1e3 * median_seconds(run, repeat):10.2f} ms")


if __name__ == "__main__":
    main()
