"""What derived answers cost, in units of one inference on the same model.

``python benchmarks/bench_derived.py [--repeat N] [--only NAME ...]``

The last lines set a large structure beside a flat model of the same size, `PoissonBinomial.cdf` of one value beside an
inference, and the peak memory of a product beside that of an inference. The aims: products and gradients at most 4,
with counts 8, entropy 4, counts 8, one sample 8 (4 from 10^5 variables on), the large structure 3 flat models, `cdf` 5
inferences, memory 3 times. All are met on two quiet cores with AVX-512; the nearest is the sample of one random table
of 1000 variables, 6.4 to 7. The structure of the four groups and a total is found before, which takes 0.5 s.

Processor time, all columns of a row interleaved in one run. A unit is a new model and its marginals; every answer is
that of a new model too, so the inference that it needs is part of its price.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tallytree as tt

COLUMNS = ("product", "with counts", "gradient", "entropy", "counts", "one sample")
SHORTEST = 2e-3  # quicker calls are timed in loops that take as long

Make = Callable[[], Any]


def ward(n: int, rng: np.random.Generator) -> Any:
    from scipy.cluster.hierarchy import linkage

    return tt.CountTree.from_linkage(linkage(rng.normal(size=(n, 3)), "ward"))


def models() -> Iterator[tuple[str, Callable[[], tuple[Make, tuple[int, ...]]]]]:
    """Names, and functions that give a maker of new models and the shape of their logits."""
    rng = np.random.default_rng(0)

    def flat(shape: tuple[int, ...], table: Any) -> tuple[Make, tuple[int, ...]]:
        logits = rng.normal(size=shape)
        return lambda: tt.CountModel(logits, table), shape

    def random(*shape: int) -> tuple[Make, tuple[int, ...]]:
        return flat(shape, rng.normal(size=(*shape[:-1], shape[-1] + 1)))

    def on_tree(tree: Any, n: int) -> tuple[Make, tuple[int, ...]]:
        logits, tables = rng.normal(size=n), rng.normal(size=tree.program.table_total)
        return lambda: tt.CountModel.from_tree(tree, logits, tables), (n,)

    def nested() -> tuple[Make, tuple[int, ...]]:
        logits = rng.normal(size=(1000, 100))
        groups = [tt.Group(range(25 * i, 25 * i + 25), rng.normal(size=26)) for i in range(4)]
        first = tt.CountModel(logits, [*groups, tt.Group(None, rng.normal(size=101))])
        return lambda: first.replace(logits=logits + 0.0), (1000, 100)

    def path() -> tuple[Make, tuple[int, ...]]:
        n = 4096
        pairs = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
        edges = tt.Forest(pairs, rng.normal(size=(n - 1, 2, 2)))
        logits, table = rng.normal(size=n), tt.exactly(n // 3)
        return lambda: tt.CountModel(logits, table, edges=edges), (n,)

    yield "exactly k, 1000 x 100", lambda: flat((1000, 100), tt.exactly(10))
    yield "random table, 1000 x 100", lambda: random(1000, 100)
    yield "random table, 200 x 512", lambda: random(200, 512)
    yield "random table, D = 1000", lambda: random(1000)
    yield "exactly k, D = 10^5", lambda: flat((10**5,), tt.exactly(10**4))
    yield "exactly k, D = 10^6", lambda: flat((10**6,), tt.exactly(10**5))
    yield "nested, 1000 x (4 x 25)", nested
    yield "balanced tree, D = 4096", lambda: on_tree(tt.CountTree.balanced(4096), 4096)
    yield "Ward tree, D = 4096", lambda: on_tree(ward(4096, rng), 4096)
    yield "path plus count, D = 4096", path


def answers(make: Make, shape: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    rng = np.random.default_rng(1)
    direction = rng.normal(size=shape)
    return {
        "inference": lambda: make().marginals,
        "product": lambda: make().hessian_vector_product(direction, counts=False),
        "with counts": lambda: make().hessian_vector_product(direction),
        "gradient": lambda: make().expected_statistics,
        "entropy": lambda: make().entropy,
        "counts": lambda: make().count_log_probs(),
        "one sample": lambda: make().sample(rng=rng),
    }


def seconds(run: Callable[[], Any], number: int) -> float:
    start = time.process_time()
    for _ in range(number):
        run()
    return (time.process_time() - start) / number


def measure(runs: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """Least processor time per call of every contender, in rounds; NaN for what a model does not offer."""
    best: dict[str, float] = {}
    numbers: dict[str, int] = {}
    for name, run in runs.items():
        try:
            run()
        except tt.TallyTreeError:
            best[name] = float("nan")
            continue
        numbers[name] = max(1, int(SHORTEST / max(seconds(run, 1), 1e-9)))
    for _ in range(repeat):
        for name, number in numbers.items():
            best[name] = min(best.get(name, float("inf")), seconds(runs[name], number))
    return best


def large_structures(repeat: int) -> None:
    """Four groups of 250,000 with random tables and a total that is far from the prior, in flat models."""
    rng, n = np.random.default_rng(2), 10**6
    logits, shifts = rng.normal(size=n), iter(range(1, 10**6))
    groups = [tt.Group(range(n // 4 * i, n // 4 * (i + 1)), rng.normal(size=n // 4 + 1)) for i in range(4)]
    known = tt.CountModel(logits, [*groups, tt.Group(None, tt.exactly(n // 10))])
    direction = rng.normal(size=n)

    def make() -> Any:
        return known.replace(logits=logits + 1e-9 * next(shifts))

    found = measure(
        {
            "flat": lambda: tt.CountModel(logits, tt.exactly(n // 10)).marginals,
            "inference": lambda: make().marginals,
            "product": lambda: make().hessian_vector_product(direction, counts=False),
            "with counts": lambda: make().hessian_vector_product(direction),
            "gradient": lambda: make().expected_statistics,
            "entropy": lambda: make().entropy,
        },
        repeat,
    )
    flat, unit = found["flat"], found["inference"]
    print(
        f"four groups of 250,000 and a total, exactly n/10: inference {unit / flat:.1f} flat models; in inferences: ",
        end="",
    )
    print(
        ", ".join(
            f"{name} {found[name] / unit:.1f}" for name in ("product", "with counts", "gradient", "entropy")
        )
    )


def single_values(repeat: int) -> None:
    """One value of a distribution function of 10^6 trials, in inferences."""
    n = 10**6
    logits = np.random.default_rng(3).normal(size=n)
    probs = 1.0 / (1.0 + np.exp(-logits))
    found = measure(
        {
            "inference": lambda: tt.CountModel(logits, tt.exactly(n // 2)).marginals,
            "cdf": lambda: tt.PoissonBinomial(probs).cdf(n // 2 - 300),
        },
        repeat,
    )
    print(f"PoissonBinomial(10^6).cdf(k): {found['cdf'] / found['inference']:.1f} inferences")


PEAK = """
import sys
import numpy as np
import tallytree as tt
from machine import forget_peak, resident

n = int(sys.argv[2])
rng = np.random.default_rng(4)
logits, direction = rng.normal(size=n), rng.normal(size=n)
tt.CountModel(logits[:1000], tt.exactly(100)).hessian_vector_product(direction[:1000])
forget_peak()
before = resident("VmRSS")
model = tt.CountModel(logits, tt.exactly(n // 10))
if sys.argv[1] == "inference":
    model.marginals
else:
    model.hessian_vector_product(direction, counts=sys.argv[1] == "with counts")
print(resident("VmHWM") - before)
"""


def peak_memory(n: int = 4_000_000) -> None:
    """Growth of the largest memory of a fresh process by one answer, in units of an inference."""
    grown = {}
    for name in ("inference", "product", "with counts"):
        done = subprocess.run(
            [sys.executable, "-c", PEAK, name, str(n)],
            check=True,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parent,  # where `memory` is
        )
        grown[name] = int(done.stdout)
    unit = grown["inference"]
    print(
        f"peak memory at 4 * 10^6 variables: inference {unit / 2**20:.0f} MB, product {grown['product'] / unit:.1f}, "
        f"with counts {grown['with counts'] / unit:.1f} inferences"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows whose names begin with one of these")
    options = parser.parse_args()
    print(f"{'model':26s} {'inference':>12s}" + "".join(f"{c:>13s}" for c in COLUMNS))
    for name, prepare in models():
        if options.only and not any(name.startswith(start) for start in options.only):
            continue
        found = measure(answers(*prepare()), options.repeat)
        unit = found["inference"]
        print(
            f"{name:26s} {1e3 * unit:9.3f} ms" + "".join(f"{found[c] / unit:13.1f}" for c in COLUMNS),
            flush=True,
        )
    if not options.only or "groups" in options.only:
        large_structures(options.repeat)
    if not options.only:
        single_values(options.repeat)
        peak_memory()


if __name__ == "__main__":
    main()
