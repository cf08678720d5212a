"""Processor time per variable of batches of flat models, 2**20 variables in all, for every size of a model.

python benchmarks/bench_batches.py [D ...]

The aim is at most 30 ns at every D. Measured on two shared cores with AVX-512: exactly D/10 from 10 (D = 64) to 22
(D = 1400); random tables from 8 (D = 16384) to 29 (D = 350), where direct trees and series meet.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import tallytree as tt

TOTAL = 2**20
SIZES = [64, 100, 200, 300, 350, 400, 512, 600, 700, 1000, 1400, 2048, 4096, 8192, 16384]


def nanoseconds(logits, log_f, repeats=3):
    """Least processor time of one inference with marginals, per variable."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        model = tt.CountModel(logits, log_f)
        _ = model.log_partition, model.marginals
        best = min(best, time.process_time() - start)
    return 1e9 * best / logits.size


def main(sizes):
    rng = np.random.default_rng(0)
    print(f"{'D':>6} {'models':>7} {'exactly D/10':>13} {'random table':>13}   ns per variable")
    for n in sizes:
        logits = rng.normal(size=(TOTAL // n, n))
        exactly = nanoseconds(logits, tt.exactly(n // 10))
        random = nanoseconds(logits, rng.normal(size=n + 1))
        print(f"{n:>6} {len(logits):>7} {exactly:>13.1f} {random:>13.1f}", flush=True)


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or SIZES)
