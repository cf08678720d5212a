"""Conditional logistic regression beside statsmodels.

python benchmarks/bench_learning.py [--quick]
"""

from __future__ import annotations

import multiprocessing
import sys
import time
import warnings

import numpy as np

from tallytree.estimators import ConditionalLogit


def say(*cells: object) -> None:
    sys.stdout.write(" | ".join(str(c) for c in cells) + "\n")
    sys.stdout.flush()


def matched(n_strata: int, size: int, cases: int, p: int, seed: int = 0):
    """Strata with exactly `cases` cases each, drawn with log-odds x . beta."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_strata * size, p))
    groups = np.repeat(np.arange(n_strata), size)
    score = x @ np.linspace(-0.5, 0.5, p) + rng.gumbel(size=n_strata * size)
    rank = np.argsort(np.argsort(-score.reshape(n_strata, size), axis=1), axis=1)
    return x, (rank < cases).astype(int).reshape(-1), groups


def statsmodels_fit(x, y, groups, queue) -> None:
    warnings.simplefilter("ignore")
    from statsmodels.discrete.conditional_models import ConditionalLogit as Peer

    start = time.perf_counter()
    try:
        found = Peer(y, x, groups=groups).fit(disp=0)
        queue.put((time.perf_counter() - start, np.asarray(found.params), np.asarray(found.bse)))
    except BaseException as error:
        queue.put((time.perf_counter() - start, type(error).__name__, None))


def clogit(quick: bool) -> None:
    say(
        "strata",
        "rows each",
        "cases each",
        "p",
        "tallytree s",
        "Newton steps",
        "statsmodels s",
        "largest differences",
    )
    limit = 20 if quick else 120
    shapes = [
        (200, 5, 1, 5),
        (100, 30, 6, 5),
        (20, 100, 20, 5),
        (1, 1500, 300, 5),
        (100, 1000, 200, 5),
        (1, 100_000, 20_000, 5),
    ]
    for shape in shapes:
        x, y, groups = matched(*shape)
        start = time.perf_counter()
        fit = ConditionalLogit().fit(x, y, groups)
        ours = time.perf_counter() - start
        queue = multiprocessing.Queue()
        worker = multiprocessing.Process(target=statsmodels_fit, args=(x, y, groups, queue))
        worker.start()
        try:
            took, params, errors = queue.get(timeout=limit)
            peer = f"{took:.2f}" if errors is not None else f"raises {params} after {took:.2f} s"
            gap = (
                f"coef {np.abs(params - fit.coef_).max():.1e}, se {np.abs(errors - fit.standard_errors_).max():.1e}"
                if errors is not None
                else "-"
            )
        except Exception:
            peer, gap = f"stopped after {limit} s", "-"
        worker.terminate()
        worker.join()
        say(*shape, f"{ours:.3f}", fit.n_iter_, peer, gap)


if __name__ == "__main__":
    clogit("--quick" in sys.argv[1:])
