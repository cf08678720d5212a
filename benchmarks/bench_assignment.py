"""Assignment problems: real conferences, and growth to 1000 x 1000.

Run ``python benchmarks/bench_assignment.py [growth] [reviewers] [bounds] [engine]``; without names, all of them. The
figure of the paper's section 6.2 is made by ``tallytree reproduce matching``. Real
data is looked for in TALLYTREE_DATA or in ``../shared/data`` beside the checkout.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
from scipy.special import expit

import tallytree as tt
from tallytree.loopy import messages


def timed(call):
    start = time.perf_counter()
    answer = call()
    return answer, time.perf_counter() - start


def growth(sizes=(100, 300, 1000)):
    """Seconds per sweep and per cell, sweeps to 1e-9, memory; rows and columns 3-4."""
    print("growth, rows and columns 3-4, logits N(0, 1)")
    for n in sizes:
        theta = np.random.default_rng(n).normal(size=(n, n))
        problem, setup = timed(
            lambda t=theta: tt.assignment(t, rows=tt.between(3, 4), columns=tt.between(3, 4))
        )
        _, build = timed(lambda p=problem: tt.loopy_bp(p.graph, max_iter=0).log_odds)
        clock, processor = [time.perf_counter()], [time.process_time()]

        def note(*_, clock=clock, processor=processor):
            clock.append(time.perf_counter())
            processor.append(time.process_time())

        found, total = timed(lambda p=problem, f=note: p.loopy_bp(progress=f))
        wall, cpu = np.diff(clock), np.diff(processor)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"  {n:4d} x {n:<4d} setup {setup + build:6.2f} s, sweep {np.median(wall) * 1e3:8.2f} ms "
            f"({np.median(wall) / n / n * 1e9:.0f} ns/cell, best {wall.min() / n / n * 1e9:.0f}, "
            f"processor best {cpu.min() / n / n * 1e9:.0f}), {found.iterations} sweeps, {total:.2f} s in all, "
            f"converged {found.converged}, peak memory {memory:.0f} MB"
        )


def reviewers():
    """Real conferences: propagation, best assignment, expected counts."""
    named = os.environ.get("TALLYTREE_DATA")
    folder = (Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data") / "reviewers"
    if not folder.exists():
        print(f"reviewers: no data in {folder}; set TALLYTREE_DATA")
        return
    problems = [("midl", tt.at_most(4), None), ("midl", tt.between(2, 4), None)]
    problems += [
        (f"csconf{i}_bids", tt.at_most(load), (0.0, 1.0, 0.5, 0.25)) for i, load in ((1, 6), (2, 7), (3, 4))
    ]
    problems += [("aamas2015_bids", tt.at_most(10), (0.0, 1.0, 0.5, 0.25, 0.0))]
    for name, rows, values in problems:
        archive = np.load(folder / f"{name}.npz")
        raw = archive["scores"] if values is None else archive["bids"]
        affinity = raw if values is None else np.choose(raw, values)
        forbidden = None if values is None else raw == 0
        problem, setup = timed(lambda a=affinity, r=rows, f=forbidden: tt.assignment(a, r, tt.exactly(3), f))
        beliefs, seconds = timed(problem.loopy_bp)
        mode, program = timed(problem.mode)
        off = np.abs(beliefs.column_counts - 3.0).max()
        node = np.abs(expit(affinity) - beliefs.marginals).mean()
        print(
            f"  {name:15s} {problem.shape} {rows!r}: setup {setup:.2f} s; loopy BP {beliefs.iterations} sweeps "
            f"{seconds:.2f} s, "
            f"converged {beliefs.converged}, column counts off by {off:.1e}, reviewers "
            f"{beliefs.row_counts.min():.3f}-{beliefs.row_counts.max():.3f}; LP {mode.affinity:.6f} in "
            f"{program:.2f} s; "
            f"node marginals differ by {node:.3f}"
        )


def bounds():
    """MIDL: bounds of log Z, and dual decomposition against the linear program."""
    named = os.environ.get("TALLYTREE_DATA")
    folder = (Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data") / "reviewers"
    if not folder.exists():
        print(f"bounds: no data in {folder}; set TALLYTREE_DATA")
        return
    scores = np.load(folder / "midl.npz")["scores"]
    for rows in (tt.at_most(4), tt.between(2, 4)):
        problem = tt.assignment(scores, rows=rows, columns=tt.exactly(3))
        found, seconds = timed(problem.bounds)
        print(
            f"  midl {rows!r}: log Z in [{found.lower:.3f}, {found.upper:.3f}], {seconds:.1f} s; {found.why_lower}"
        )
        dual, seconds = timed(problem.dual_decomposition)
        print(
            f"    dual decomposition {dual.log_weight:.6f} <= best <= {dual.upper_bound:.6f}, {seconds:.1f} s; "
            f"LP {problem.mode().log_weight:.6f}"
        )


def engine():
    """Nanoseconds per cell of one batched call: chain of capped counts against the engine."""
    print("one batched call, n factors of n variables, at most K")
    for n in (40, 100, 300, 512, 600, 1000):
        nu = np.random.default_rng(0).normal(size=(n, n))
        for k in (4, 16):
            table = tt.at_most(k).log_table(n)[None]
            chain = min(timed(lambda x=nu, t=table: messages.capped.solve(x, t))[1] for _ in range(5))
            whole = min(timed(lambda x=nu, t=table: messages._engine(x, t))[1] for _ in range(5))
            print(
                f"  n = {n:4d}, K = {k:2d}: chain {chain / n / n * 1e9:6.0f}, engine {whole / n / n * 1e9:6.0f} ns/cell"
            )


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["engine", "growth", "reviewers", "bounds"]
    for part in wanted:
        {"growth": growth, "reviewers": reviewers, "engine": engine, "bounds": bounds}[part]()
