"""Random models of every kind against the truth.

For every model, on both engines: all public answers stay inside the accuracy contract, the certificate is at least the
error, nothing is NaN, samples follow the law and are never impossible, impossible models are refused. The truth is an
enumeration of all states in extended precision (small models) or a recursion of unlimited range (large ones).

  python -m tools.fuzz --models 1000                       every kind, both engines, 1000 models of each
  python -m tools.fuzz --kind forests --models 100000 --jobs 2
  python -m tools.fuzz --minutes 30 --jobs 2 --seed 7       as many as fit into half an hour
  python -m tools.fuzz --kind forests --seed 0 --first 17 --models 1 --engine native --show
                                                           one model again, made as small as it still fails

A model is named by its kind, seed and index, whatever the number of processes. Violations are counted by answer; the
first few of each are printed with the command that repeats them. Samples: a model is refused at p < 1e-10 (exact
binomial tails), and the sum of all chi-square statistics must be within 6 standard deviations, so that a whole run of
10^6 models has a false alarm less than once in a thousand runs. The exit status is 1 after any violation.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import tallytree as tt
from tallytree import config

from .kinds import KINDS
from .run import ENGINES, Violation, checked, drawn
from .shrink import shrunk
from .workers import Tally, in_process, jobs_of, side_by_side

DRIFT = 6.0


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kind", action="append", choices=list(KINDS), help="kind of models; default all of them"
    )
    parser.add_argument("--models", type=int, default=None, help="how many of each kind (default 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="index of the first one")
    parser.add_argument("--engine", choices=[*ENGINES, "both"], default="both")
    parser.add_argument("--jobs", type=int, default=1, help="processes; with 0 everything runs in this one")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this long")
    parser.add_argument("--examples", type=int, default=3, help="violations printed per answer")
    parser.add_argument("--show", action="store_true", help="print failing models as Python, made small")
    return parser.parse_args(arguments)


def engines_of(choice: str) -> list[str]:
    wanted = list(ENGINES) if choice == "both" else [choice]
    if config._extension is None and "native" in wanted:
        print("The compiled engine is not installed: only the array engine is checked.", file=sys.stderr)
        wanted = ["array"]
    return wanted


def show(violation: Violation) -> None:
    """The failing model as Python, made as small as it still fails."""
    kind, engine, seed, index, answer, _ = violation
    if answer == "process":  # it would end this process too
        print(f"  {drawn(kind, seed, index).code()}", flush=True)
        return
    case = shrunk(drawn(kind, seed, index), engine, seed, index, answer)
    seen = [text for name, text in checked(case, engine, seed, index).wrong if name == answer]
    print(f"  {case.code()}\n  {answer}: {seen[0] if seen else 'not repeated'}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    kinds, engines = options.kind or list(KINDS), engines_of(options.engine)
    models = options.models or (10**7 if options.minutes else 200)
    start = time.monotonic()
    stop = start + 60 * options.minutes if options.minutes else float("inf")
    jobs = jobs_of(kinds, engines, options.seed, options.first, models)
    parts = in_process(jobs, stop) if options.jobs == 0 else side_by_side(jobs, options.jobs, stop)
    total, printed, minute = Tally(), Counter[tuple[str, str, str]](), 0
    for part in parts:
        total.add(part)
        for violation in part.found:
            key = (violation.kind, violation.engine, violation.answer)
            printed[key] += 1
            if printed[key] <= options.examples:
                print(f"VIOLATION {violation.kind}, {violation.engine}, {violation.answer}: {violation.seen}")
                print(f"  {violation.command}", flush=True)
                if options.show:
                    show(violation)
        if time.monotonic() - start > 60 * (minute + 1):
            minute = int((time.monotonic() - start) / 60)
            print(
                f"{total.models} models, {len(total.found)} violations, {minute} min",
                file=sys.stderr,
                flush=True,
            )
    return conclude(total, options.seed, (time.monotonic() - start) / 60)


def conclude(total: Tally, seed: int, minutes: float) -> int:
    for (kind, engine, answer), number in sorted(total.by_answer().items()):
        print(f"{number:8d}  {kind}, {engine}, {answer}")
    bad = len({v[:4] for v in total.found})
    drifted = abs(total.drift) > DRIFT
    print(
        f"tallytree {tt.__version__}, seed {seed}: {total.models} models, {total.answers} answers, {minutes:.1f} min; "
        f"{len(total.found)} violations in {bad} models; chi-square of all samples {total.drift:+.2f} sd"
        f"{' (VIOLATION)' if drifted else ''}"
    )
    return 1 if bad or drifted else 0


if __name__ == "__main__":
    sys.exit(main())
