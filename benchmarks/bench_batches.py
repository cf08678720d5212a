"""Processor time per variable of batches of flat models, 2**20 variables in all, for every size of a model.

python benchmarks/bench_batches.py [D ...]

Potentials beside the mean and far from it, low windows and high ones: no size should be much slower than its
neighbours. Measured on two shared cores with AVX-512: at most 35 ns but for the parabola, whose mean is far from
where the table is large (57 ns at D = 800); exactly 3 from 9 (D = 700, where plain numbers end) to 21 (D = 800) and
35 (D = 8192).
"""

from __future__ import annotations

import sys
import time

import numpy as np

import tallytree as tt

TOTAL = 2**20
SIZES = [64, 100, 200, 300, 350, 400, 512, 600, 700, 800, 1000, 1200, 1400, 2048, 4096, 8192, 16384]


def nanoseconds(logits, log_f, repeats=3):
    """Least processor time of one inference with marginals, per variable."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        model = tt.CountModel(logits, log_f)
        _ = model.log_partition, model.marginals
        best = min(best, time.process_time() - start)
    return 1e9 * best / logits.size


def potentials(n, rng):
    """What is measured, by name."""
    counts = np.arange(n + 1)
    return {
        "= 3": tt.exactly(3),
        "= D/10": tt.exactly(n // 10),
        "= D/2": tt.exactly(n // 2),
        "= 9D/10": tt.exactly(n - n // 10),
        "= D-3": tt.exactly(n - 3),
        "<= D/10": tt.at_most(n // 10),
        ">= 9D/10": tt.at_least(n - n // 10),
        "D/10..D/5": tt.between(n // 10, n // 5),
        "parabola": -((counts - n / 3) ** 2) / n,
        "random": rng.normal(size=n + 1),
    }


def main(sizes):
    rng = np.random.default_rng(0)
    print("ns per variable\n     D  models " + " ".join(f"{name:>9}" for name in potentials(8, rng)))
    for n in sizes:
        logits = rng.normal(size=(TOTAL // n, n))
        times = [nanoseconds(logits, potential) for potential in potentials(n, rng).values()]
        print(f"{n:>6} {len(logits):>7} " + " ".join(f"{t:>9.1f}" for t in times), flush=True)


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or SIZES)
