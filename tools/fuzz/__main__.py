"""Random models of every kind against the truth.

For every model, on both engines: the public answers stay inside the accuracy contract, the certificate is at least the
error, nothing is NaN, samples follow the law and are never impossible, impossible models are refused. The truth is an
enumeration of all states in extended precision (small models) or a recursion of unlimited range (large ones).

  python -m tools.fuzz --models 1000                       every kind, both engines, 1000 models of each
  python -m tools.fuzz --models 100000 --jobs 16 --seconds 590
                                                           as many of them as fit; the last line says where to go on:
  python -m tools.fuzz --models 60000 --first 40000 --jobs 16
  python -m tools.fuzz --kind forests --seed 0 --first 17 --models 1 --engine native --show
                                                           one model again, made as small as it still fails

Work goes to the kind that has taken the least processor time so far: a run that is stopped has spent as long on every
kind that it could not finish, and says of each how many models that were and where to go on.

A model is named by its kind, seed and index, whatever the number of processes. Models of one structure form a case:
they are asked together, as a batch, and one of them again on its own (counts, forests and chains 1 in 80, long ones 1
in 32, large ones 1 in 16). That is several times quicker than one by one, because most of the time goes into the
overhead of calls. Whole cases are run, so that the numbers of models are rounded up. Of a factor graph and of an
assignment the procedures that take longest are asked in turn, as often as `TURNS` of their modules says, and of every
fourth cliff the array engine; everything else of all. All samples are tested.

Violations are counted by answer; the first few of each are printed with the command that repeats them. Samples: a model
is refused at p < 1e-10 (exact binomial tails), and the sum of all chi-square statistics must be within 6 standard
deviations, so that a whole run of 10^6 models has a false alarm less than once in a thousand runs. The last line is a
summary in JSON. The exit status is 1 after any violation. Needs nothing but the package, NumPy and SciPy, except for
the kinds that are named for a framework, which are skipped without it, and the files and Dask arrays of chunked models.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec

import tallytree as tt
from tallytree import config

from .kinds import KINDS
from .run import ENGINES, Violation, checked, drawn
from .shrink import shrunk
from .tally import Tally
from .workers import Queue, in_process, side_by_side

DRIFT = 6.0


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kind", action="append", choices=[*KINDS, "all"], help="kind of models; default all of them"
    )
    parser.add_argument("--models", type=int, default=None, help="how many of each kind (default 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="index of the first one")
    parser.add_argument("--engine", choices=[*ENGINES, "both"], default="both")
    parser.add_argument("--jobs", type=int, default=1, help="processes; with 0 everything runs in this one")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after this long")
    parser.add_argument("--examples", type=int, default=3, help="violations printed per answer")
    parser.add_argument("--show", action="store_true", help="print failing models as Python, made small")
    return parser.parse_args(arguments)


def kinds_of(choice: list[str] | None) -> list[str]:
    """The kinds that were asked for, without those whose framework is not installed."""
    found = []
    for kind in choice if choice and "all" not in choice else KINDS:
        if KINDS[kind].needs and find_spec(KINDS[kind].needs) is None:
            print(
                f"{KINDS[kind].needs} is not installed: models of kind {kind} are skipped.", file=sys.stderr
            )
        else:
            found.append(kind)
    return found


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


@dataclass
class Printer:
    """Violations as they arrive, the first few of each answer; every minute how far the run is."""

    examples: int
    shows: bool
    start: float = field(default_factory=time.monotonic)
    minute: int = 0
    printed: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def found(self, violation: Violation) -> None:
        key = (violation.kind, violation.engine, violation.answer)
        self.printed[key] += 1
        if self.printed[key] > self.examples:
            return
        print(f"VIOLATION {violation.kind}, {violation.engine}, {violation.answer}: {violation.seen}")
        print(f"  {violation.command}", flush=True)
        if self.shows:
            show(violation)

    def progress(self, total: Tally) -> None:
        minute = int((time.monotonic() - self.start) / 60)
        if minute > self.minute:
            self.minute = minute
            text = f"{total.models} models, {len(total.found)} violations, {minute} min"
            print(text, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    kinds = kinds_of(options.kind)
    engines = engines_of(options.engine)
    models = options.models or (10**7 if options.seconds else 200)
    stop = time.monotonic() + options.seconds if options.seconds else float("inf")
    queue = Queue(kinds, engines, options.seed, options.first, models)
    parts = in_process(queue, stop) if options.jobs == 0 else side_by_side(queue, options.jobs, stop)
    total, printer = Tally(), Printer(options.examples, options.show)
    for part in parts:
        total.add(part)
        for violation in part.found:
            printer.found(violation)
        printer.progress(total)
    return conclude(total, options, engines, time.monotonic() - printer.start)


def conclude(total: Tally, options: argparse.Namespace, engines: list[str], seconds: float) -> int:
    for (kind, engine, answer), number in sorted(total.by_answer().items()):
        print(f"{number:8d}  {kind}, {engine}, {answer}")
    drifted = abs(total.drift) > DRIFT
    bad = {v[:4] for v in total.found}
    print(
        f"tallytree {tt.__version__}, seed {options.seed}: {total.models} models, {seconds:.0f} s; "
        f"{len(total.found)} violations in {len(bad)} cases; chi-square of all samples {total.drift:+.2f} sd"
        f"{' (VIOLATION)' if drifted else ''}"
    )
    heading = {"version": tt.__version__, "seed": options.seed, "engines": engines, "seconds": round(seconds)}
    print(json.dumps(heading | total.summary(options.first)))
    return 1 if bad or drifted else 0


if __name__ == "__main__":
    sys.exit(main())
