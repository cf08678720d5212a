"""Random models through both engines and an oracle.

``python tools/fuzz.py --models 100000 --seed 0 --jobs 2`` checks, for every model, that the compiled engine and
the array engine stay inside the accuracy contract, that the certificate dominates the error, that nothing is
NaN and that all agree on which models are impossible. Every violation is printed with the command that repeats
it, and makes the exit status 1. Oracles: enumeration up to 12 variables, a tree pass in numbers of unlimited
range beyond, for a sample of the large models and wherever the two engines differ.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from fuzz_models import KINDS, Drawn, draw

import tallytree as tt
from case import Case
from contract import assert_contract, assert_count_log_probs, assert_log_partition
from helpers import model_of
from oracle import enumerate_model, log_space_tree
from strategies import BatchedCase
from tallytree import config

CHUNK = 100
ENUMERATED = 12
GROUPS = 3  # count distributions compared per model


@dataclass
class Tally:
    """What happened to a range of models."""

    seen: Counter = field(default_factory=Counter)
    violations: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.seen.update(other.seen)
        self.violations += other.violations


@dataclass(frozen=True)
class Found:
    """What one engine says of a batch of models, every array with one leading axis."""

    log_partition: np.ndarray
    posterior_logits: np.ndarray
    marginals: np.ndarray
    cavity_logits: np.ndarray
    error_bound: np.ndarray
    counts: dict[int | None, np.ndarray]


# ------------------------------------------------------------------------------------------------ one model


def rows_of(case: Case | BatchedCase) -> list[Case]:
    return [case] if isinstance(case, Case) else [row for _, row in case.items()]


def asked_groups(case: Case | BatchedCase) -> list[int | None]:
    step = max(1, len(case.sets) // GROUPS)
    return [None, *range(0, len(case.sets), step)][: GROUPS + 1]


def run(case: Case | BatchedCase, **settings: Any) -> Found | None:
    """Answers of one engine, None for an impossible model; warnings are errors."""
    with config.using(**settings), warnings.catch_warnings():
        warnings.simplefilter("error")
        model = model_of(case)
        try:
            log_partition = model.log_partition
        except tt.InfeasibleError:
            return None
        stack = len(rows_of(case))

        def flat(values: Any, ndim: int) -> np.ndarray:
            values = np.asarray(values)
            return values.reshape(stack, *values.shape[values.ndim - ndim :])

        return Found(
            flat(log_partition, 0),
            flat(model.posterior_logits, 1),
            flat(model.marginals, 1),
            flat(model.cavity_logits, 1),
            flat(model.error_bound, 0),
            {g: flat(model.count_log_probs(g), 1) for g in asked_groups(case)},
        )


def truth_of(case: Case) -> Any:
    if case.size <= ENUMERATED:
        return enumerate_model(case.theta, case.sets)
    return log_space_tree(case.theta, case.sets)


def failures(checks: Iterable[tuple[str, Callable[[], None]]]) -> Iterator[str]:
    for name, check in checks:
        try:
            check()
        except AssertionError as error:
            yield f"{name}: {error}"


def against_truth(found: Found, row: int, case: Case, truth: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """The contract and the certificate for one model."""
    odds = np.asarray(truth.posterior_logits, float)
    yield "log Z", lambda: assert_log_partition(found.log_partition[row], truth.log_partition)
    yield "log-odds", lambda: assert_contract(found.posterior_logits[row], odds)
    yield "marginals", lambda: assert_marginals(found.marginals[row], odds)
    yield "certificate", lambda: assert_dominated(found, row, case, truth)
    for group in found.counts:
        yield (
            f"counts of group {group}",
            lambda g=group: assert_count_log_probs(found.counts[g][row], truth.count_log_probs(g)),
        )


def assert_marginals(got: np.ndarray, log_odds: np.ndarray) -> None:
    """Probabilities as good as the log-odds contract makes them, where they exceed 1e-200."""
    on, off = np.exp(-np.logaddexp(0, -log_odds)), np.exp(-np.logaddexp(0, log_odds))
    finite = np.where(np.isfinite(log_odds), log_odds, 0.0)
    allowed = 1.1 * on * off * np.maximum(1e-9, 1e-10 * np.abs(finite)) + 4e-16 * on + 1e-200
    assert not np.isnan(got).any(), "NaN"
    worst = int(np.argmax(np.abs(got - on) / allowed))
    assert abs(got[worst] - on[worst]) <= allowed[worst], f"{got[worst]!r}, want {on[worst]!r} at {worst}"


def assert_dominated(found: Found, row: int, case: Case, truth: Any) -> None:
    """The certificate covers the error, up to the rounding of what was given and is returned."""
    want, bound = np.asarray(truth.posterior_logits, float), float(found.error_bound[row])
    finite = np.isfinite(want)
    got = found.posterior_logits[row]
    assert np.isfinite(got[finite]).all(), "infinite log-odds where finite ones are right"
    error = np.abs(got[finite] - want[finite]).max(initial=0.0)
    given = [case.theta, want, *(table for _, table in case.sets)]
    largest = max(np.abs(values[np.isfinite(values)]).max(initial=0.0) for values in given)
    assert error <= bound + 4e-16 * largest, f"log-odds off by {error:.3g}, certified {bound:.3g}"
    terms = np.logaddexp(0, case.theta[np.isfinite(case.theta)]).sum()
    terms += sum(abs(np.max(table)) for _, table in case.sets)
    error = abs(float(found.log_partition[row]) - truth.log_partition)
    allowed = bound + 1e-14 * (1 + abs(truth.log_partition) + terms)
    assert error <= allowed, f"log Z off by {error:.3g}, certified {bound:.3g}"


def against_each_other(one: Found, two: Found) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "log Z", lambda: assert_log_partition(one.log_partition, two.log_partition)
    yield "log-odds", lambda: assert_contract(one.posterior_logits, two.posterior_logits)
    for g in one.counts:
        yield f"counts of group {g}", lambda g=g: assert_count_log_probs(one.counts[g], two.counts[g])


def not_a_number(found: Found) -> Iterator[str]:
    for name in ("log_partition", "posterior_logits", "marginals", "cavity_logits", "error_bound"):
        if np.isnan(getattr(found, name)).any():
            yield f"{name} has NaN"


def check(drawn: Drawn, seen: Counter) -> list[str]:
    """Everything wrong with one model or batch."""
    case, rows = drawn.case, rows_of(drawn.case)
    size, levels = rows[0].size, config._extension.levels()
    seen["models"] += len(rows)
    seen["batches"] += len(rows) > 1
    native = run(case, engine="native", level=levels[drawn.level % len(levels)], threads=drawn.threads)
    slow = max(
        len(rows) * size / 100, (size / 150) ** 2
    )  # the share of models that is checked falls with their cost
    array = run(case, engine="array") if drawn.luck < 1 / slow or size <= 60 else None
    has_array = array is not None or drawn.luck < 1 / slow or size <= 60
    seen["array"] += len(rows) * has_array
    differ = has_array and (
        (native is None) != (array is None)
        or (native is not None and any(failures(against_each_other(native, array))))
    )
    wrong = []
    picked = rows if size <= ENUMERATED and len(rows) == 1 else rows[: max(1, int(4 / slow))]
    if differ or size <= ENUMERATED or drawn.luck < 1 / slow:
        seen["oracle"] += len(rows if differ else picked)
        for row, one in enumerate(rows if differ else picked):
            truth = truth_of(one)
            possible = truth.log_partition > -np.inf
            seen["impossible"] += not possible
            for engine, found in [("native", native)] + [("array", array)] * has_array:
                where = f"{engine}, row {row} of {len(rows)}, {one.name}, D={size}"
                if found is None and (possible and len(rows) == 1):
                    wrong.append(f"{where}: InfeasibleError for a possible model")
                elif found is not None and not possible:
                    wrong.append(f"{where}: no InfeasibleError for an impossible model")
                elif found is not None:
                    wrong += [f"{where}: {text}" for text in failures(against_truth(found, row, one, truth))]
    for engine, found in (("native", native), ("array", array)):
        if found is not None:
            wrong += [f"{engine}, {rows[0].name}, D={size}: {text}" for text in not_a_number(found)]
        elif len(rows) > 1 and (engine == "native" or has_array):
            wrong.append(
                f"{engine}, {rows[0].name}, D={size}: InfeasibleError for a batch of possible models"
            )
    return wrong


# ------------------------------------------------------------------------------------------------ many of them


def work(seed: int, kind: str, first: int, last: int) -> Tally:
    faulthandler.enable()
    tally = Tally()
    for index in range(first, last):
        try:
            wrong = check(draw(seed, index, kind), tally.seen)
        except Exception as error:  # anything raised is a violation too
            wrong = [f"{type(error).__name__}: {error}"]
        tally.seen["drawn"] += 1
        tally.violations += [(index, text) for text in wrong]
    return tally


def all_of_them(options: argparse.Namespace) -> Iterator[Tally]:
    """Chunks in the order they finish; a crash of a worker is reported with the range it was in."""
    end = options.first + options.models
    chunks = [(a, min(a + CHUNK, end)) for a in range(options.first, end, CHUNK)]
    stop = time.monotonic() + 60 * options.minutes if options.minutes else np.inf
    if options.jobs == 1:
        for first, last in chunks:
            if time.monotonic() > stop:
                return
            yield work(options.seed, options.kind, first, last)
        return
    waiting = iter(chunks)
    while True:
        with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
            running: dict[Future, tuple[int, int]] = {}
            try:
                while True:
                    while len(running) < 2 * options.jobs and time.monotonic() < stop:
                        chunk = next(waiting, None)
                        if chunk is None:
                            break
                        running[pool.submit(work, options.seed, options.kind, *chunk)] = chunk
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield future.result()
                        del running[future]
            except BrokenProcessPool:
                lost = ", ".join(f"{a}..{b - 1}" for a, b in running.values())
                yield Tally(violations=[(next(iter(running.values()))[0], f"a worker crashed within {lost}")])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=1000, help="how many to draw (a batch counts once)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--first", type=int, default=0, help="index of the first; with --models 1 repeats one"
    )
    parser.add_argument("--kind", choices=KINDS, default="", help="draw models of one kind only")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0, help="stop after this long")
    options = parser.parse_args()
    if config._extension is None:
        print("The compiled engine is not installed: nothing to compare.", file=sys.stderr)
        return 2
    start, total, shown = time.monotonic(), Tally(), 0
    for done, part in enumerate(all_of_them(options), 1):
        total.add(part)
        for index, text in part.violations:
            kind = f" --kind {options.kind}" if options.kind else ""
            repeat = f"python tools/fuzz.py --seed {options.seed} --first {index} --models 1{kind}"
            print(f"VIOLATION {text}\n  {repeat}", flush=True)
        if time.monotonic() - start > 60 * (shown + 1):
            shown += 1
            print(
                f"{done * CHUNK} drawn, {len(total.violations)} violations, {shown} min",
                file=sys.stderr,
                flush=True,
            )
    seen, minutes = total.seen, (time.monotonic() - start) / 60
    bad = len({index for index, _ in total.violations})
    print(
        f"seed {options.seed}: {seen['drawn']} drawn ({seen['models']} models, {seen['batches']} batches, "
        f"{seen['impossible']} impossible), {seen['array']} against array code, {seen['oracle']} against an oracle, "
        f"{minutes:.1f} min: {len(total.violations)} violations in {bad} of them"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
