"""A short run of the fuzzer over every kind of model on both engines, and the models on which it once found faults.

``python -m tools.fuzz`` is the long run; a failure here names the command that repeats it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from case import Case
from tallytree import config
from tools.fuzz.batches import BatchCase
from tools.fuzz.binary import Binary
from tools.fuzz.kinds import KINDS
from tools.fuzz.large import LargeCase
from tools.fuzz.long import LongCase
from tools.fuzz.run import checked, drawn
from tools.fuzz.tally import Part, Tally
from tools.fuzz.workers import Queue, one

CASES = {
    "graphs": 8,
    "assignments": 8,
    "sums": 15,
    "quantiles": 15,
    "near": 20,
    "chunked": 60,
    "cancelling": 20,
}  # others: 2, each of many models


def kinds():
    """Those of frameworks need them; JAX compiles for most of a minute."""
    for kind in KINDS:
        marks = [pytest.mark.frameworks] if KINDS[kind].needs else []
        yield pytest.param(kind, marks=[*marks, pytest.mark.thorough] if kind == "jax" else marks)


ENGINES = ["array"] if config._extension is None else ["native", "array"]
FOUND = json.loads(Path(__file__).with_name("fuzz_regressions.json").read_text())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", list(kinds()))
def test_random_models_stay_inside_the_contract(kind, engine):
    if KINDS[kind].needs:
        pytest.importorskip(KINDS[kind].needs)
    total = Tally()
    for case in range(CASES.get(kind, 2)):
        total.add(one(kind, [engine], 20, case * KINDS[kind].lot))
    wrong = "\n".join(f"{v.answer}: {v.seen}\n  {v.command}" for v in total.found)
    assert not total.found, wrong
    assert abs(total.drift) < 6, (
        f"samples are biased: chi-square off by {total.drift:.1f} standard deviations"
    )


def finish(queue, job, prices):
    """As a process would that takes so long for every case."""
    for index in job.cases:
        lot = KINDS[job.kind].lot
        part = Part(models=lot, seconds=prices[job.kind], cases=[(index, index + lot)])
        queue.add(Tally({job.kind: part}))


def test_a_run_that_is_stopped_has_spent_as_long_on_every_kind():
    """However dear its models are; a cheap kind that is done leaves its time to the others."""
    prices = {"sums": 0.01, "cliffs": 5.0, "counts": 1.0, "weighted": 0.001}
    queue = Queue(list(prices), ["array"], 0, 0, 2000)
    hands = []
    while sum(queue.seconds.values()) < 300.0:
        while len(hands) < 16:  # sixteen processes, which end in the order in which they began
            hands.append(queue.take())
        finish(queue, hands.pop(0), prices)
    assert not queue.left["sums"]
    assert not queue.left["weighted"]
    assert queue.done["sums"] == queue.done["weighted"] == 2000
    assert queue.done["counts"] == 25  # of 80 models each, the last of which are beyond the 2000th
    rest = 300.0 - 20.0 - 2.0 - 25.0
    assert abs(queue.seconds["cliffs"] - rest) < 30.0


def test_every_case_is_handed_out_once_also_behind_a_process_that_was_lost():
    queue = Queue(["counts", "sums"], ["array"], 3, 100, 300)
    first = queue.take()
    queue.give_back(first)
    seen = {"counts": [], "sums": []}
    while (job := queue.take()) is not None:
        seen[job.kind] += job.cases
        finish(queue, job, {"counts": 0.1, "sums": 0.1})
    assert sorted(seen["sums"]) == list(range(100, 400))
    assert sorted(seen["counts"]) == list(range(80, 400, 80))
    assert not any(queue.busy.values())


def found_violations():
    """On the engine that was wrong, or on both; lots of many models take seconds."""
    for found in FOUND:
        for engine in ENGINES if "rows" in found else [found["engine"]]:
            marks = [pytest.mark.thorough] if found.get("drawn", ["cliffs"])[0] != "cliffs" else []
            name = f"{found['what'].replace(' ', '-')}-{engine}"
            yield pytest.param(found, engine, marks=marks, id=name)


@pytest.mark.parametrize(("found", "engine"), list(found_violations()))
def test_found_violations_stay_fixed(found, engine):
    if engine not in ENGINES:
        pytest.skip("needs the compiled engine")
    if "drawn" in found:
        kind, seed, index = found["drawn"]
        wrong = checked(drawn(kind, seed, index), engine, seed, index).wrong
        assert not wrong, f"{found['what']}: {wrong}"
        return
    models = [[(tuple(m), np.array(t)) for m, t in row["sets"]] for row in found["rows"]]
    thetas = [np.array(row["theta"]) for row in found["rows"]]
    if found["shape"]:
        rows = tuple(Binary(theta, tuple(sets)) for theta, sets in zip(thetas, models))
        case = BatchCase(rows, rows, tuple(found["shape"]))
    else:
        case = LargeCase(Case(thetas[0], tuple(models[0])))
    wrong = checked(case, engine, 0, 0).wrong
    assert not wrong, f"{found['what']}: {wrong}"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("index", "row"), [(50560, 31), (58176, 26)])
def test_chains_whose_certificate_was_once_too_small(index, row, engine):
    """The rounding of a steep table under a tilt; a rare state that moves a count by half its deviation."""
    lot = drawn("long", 700, index)
    rows = slice(row, row + 1)
    case = LongCase(lot.unary[rows], lot.transitions[rows], lot.table[rows], lot.as_path)
    assert not checked(case, engine, 700, index).wrong
