"""Forests with counts: log Z and all marginals on every shape, the figures that they are held to.

Run it as ``python benchmarks/bench_forest.py``; ``--write`` measures best configurations alone, for the table of
``docs/theory/maximization.md``. Times are the best of a few runs; "analysis" is done once per
structure, "inference" is one model on it: log Z, all marginals and all edge marginals. "cpu" is the processor time of
both, over all threads, for machines that are busy with other work.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import machine
import pages
import tallytree as tt
from tallytree.engine.forest import maxima

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


def best_of(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, float, Any]:
    """Shortest wall time, shortest processor time, and what `work` returned."""
    wall, cpu, found = [], [], None
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        found = work()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    return min(wall), min(cpu), found


def marginals(model: tt.CountModel) -> Any:
    return model.log_partition, model.marginals


def shapes(rng: np.random.Generator) -> None:
    print("one count over all variables, a soft Gaussian potential away from the mean")
    print(f"{'shape':<12} {'D':>7} {'analysis':>10} {'inference':>10} {'both':>10} {'cpu':>10}")
    for shape in SHAPES:
        last = (0.0, 0.0)
        for n in (10**4, 10**5):
            pairs, tables = pairs_of(shape, n, rng), rng.normal(size=(n - 1, 2, 2))
            logits, potential = rng.normal(size=n) - 1.0, tt.gaussian(0.4 * n, 2.0 * np.sqrt(n))

            def build(
                logits: Any = logits, potential: Any = potential, pairs: Any = pairs, tables: Any = tables
            ) -> Any:
                return tt.CountModel(logits, potential, edges=tt.Forest(pairs, tables))

            analysis, cpu, model = best_of(build)
            inference, more, _ = best_of(
                lambda model=model, logits=logits: marginals(model.replace(logits=logits))
            )
            both, cpu = analysis + inference, cpu + more
            line = f"{shape:<12} {n:7d} {analysis:9.3f}s {inference:9.3f}s {both:9.3f}s {cpu:9.3f}s"
            if last[0]:
                line += f"   growth {both / last[0]:.1f} x, cpu {cpu / last[1]:.1f} x (target: 13 x, 1 s)"
            print(line, flush=True)
            last = (both, cpu)


def report(name: str, work: Callable[[], Any]) -> Any:
    wall, cpu, found = best_of(work, repeats=3)
    print(f"{name:<78} {wall:7.3f}s, cpu {cpu:7.3f}s", flush=True)
    return found


def without_groups(rng: np.random.Generator) -> None:
    n = 10**5
    forest = tt.Forest(pairs_of("random", n, rng), rng.normal(size=(n - 1, 2, 2)))
    model = tt.CountModel(rng.normal(size=n), edges=forest)
    report(
        "no group: ordinary belief propagation, random tree, D = 10^5",
        lambda: marginals(model.replace(logits=model.logits)),
    )


def intervals(rng: np.random.Generator) -> None:
    n, size = 10**5, 50
    logits, forest = rng.normal(size=n), tt.Forest(pairs_of("path", n, rng), rng.normal(size=(n - 1, 2, 2)))
    groups = [tt.Group(range(i, i + size), tt.at_least(1)) for i in range(0, n, size)]
    groups.append(tt.Group(None, tt.gaussian(0.5 * n, 100.0)))
    name = f"chain of 10^5, {n // size} intervals under one count"
    model = report(f"{name}: analysis", lambda: tt.CountModel(logits, groups, edges=forest))
    report(f"{name}: inference", lambda: marginals(model.replace(logits=logits)))


def labels(rng: np.random.Generator) -> None:
    for k, n in ((3, 10**4), (10, 2000)):
        unary, transitions = rng.normal(size=(n, k)), rng.normal(size=(n - 1, k, k))
        model = tt.ChainModel(unary, transitions, tt.exactly(n // 5))
        name = f"chain of {n} positions, {k} labels, exactly {n // 5} of one"
        report(name, lambda model=model, unary=unary: model.replace(log_unary=unary).marginals)
    unary, lengths = rng.normal(size=(200, 100, 5)), rng.integers(20, 101, 200)
    model = tt.ChainModel(unary, rng.normal(size=(5, 5)), tt.at_least(3), lengths=lengths)
    name = "200 sequences of 20 to 100 positions, 5 labels, at least 3 of one"
    report(name, lambda: model.replace(log_unary=unary).marginals)


def best(rng: np.random.Generator) -> dict[tuple[str, int], list[float]]:
    """Best configurations and max-marginals under bounds, and beside them the quadratic pass up to 2^16."""
    print(
        "exactly a third on, random edge tables: processor time of mode and of max-marginals; quadratic: without bounds"
    )
    print(f"{'shape':<12} {'D':>8} {'mode':>9} {'max-marg.':>9} {'quadratic':>9} {'quadratic':>9}")
    found = {}
    for shape in BEST_SHAPES:
        for n in BEST_SIZES:
            forest = tt.Forest(pairs_of(shape, n, rng), rng.normal(size=(n - 1, 2, 2)))
            model = tt.CountModel(rng.normal(size=n), tt.exactly(n // 3), edges=forest)
            problem = model._solver.problem
            problem.program.compiled  # noqa: B018 - the analysis of the structure, done once
            works = [
                lambda p=problem: maxima.best(p),
                lambda p=problem: maxima.max_beliefs(p),
            ]
            if n <= 2**16:
                works += [lambda p=problem: maxima.solve(p, states=True), lambda p=problem: maxima.solve(p)]
            times = [best_of(work, repeats=1 if n > 2**14 else 3)[1] for work in works]
            print(f"{shape:<12} {n:8d} " + " ".join(f"{t:8.3f}s" for t in times), flush=True)
            found[shape, n] = times
    return found


BEST_SHAPES, BEST_SIZES = ("path", "random", "star"), (2**12, 2**14, 2**16, 10**6)


def write(about: dict[str, Any], found: dict[tuple[str, int], list[float]]) -> None:
    """The table of the site: mode / max-marginals, and the same without bounds."""
    head = ["variables"]
    for shape in BEST_SHAPES:
        head += ["random tree" if shape == "random" else shape, "quadratic"]
    rows = []
    for n in BEST_SIZES:
        cells = [f"{n:,}"]
        for shape in BEST_SHAPES:
            mode, *more = (pages.seconds(t) for t in found[shape, n])
            cells += [f"{mode} / {more[0]}", " / ".join(more[1:]) or "—"]
        rows.append(cells)
    how = "Processor times, exactly a third on, random tables: mode / max-marginals."
    print(
        pages.write(
            "theory/maximization_table.md", [f"{pages.measured(about)} {how}", pages.table(head, rows)]
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the table of best configurations")
    about, rng = machine.describe(), np.random.default_rng(0)
    if parser.parse_args().write:
        return write(about, best(rng))
    tt.show_config()
    shapes(rng)
    without_groups(rng)
    best(rng)
    intervals(rng)
    labels(rng)
    return None


if __name__ == "__main__":
    main()
