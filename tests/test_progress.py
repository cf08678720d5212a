"""Progress, the same argument for all long work: a bar where somebody looks, lines elsewhere, or a function."""

import inspect
import signal
import sys

import numpy as np
import pytest

import tallytree as tt
from public_names import methods
from tallytree import _progress, estimators, learn, loopy
from tallytree._progress import Progress, Stage

RNG = np.random.default_rng(0)
X, GROUPS, BITS = RNG.normal(size=(60, 2)), np.repeat(np.arange(12), 5), RNG.integers(0, 2, (60, 4))
CHOSEN, BAGS = np.tile([1, 0, 0, 1, 0], 12), np.arange(12) % 2
WIDE = np.random.default_rng(1).normal(size=(30, 30))  # too wide for exact draws


def graph():
    return tt.FactorGraph(
        np.zeros(4), [tt.Group([0, 1, 2], tt.gaussian(1, 1)), tt.Group([1, 2, 3], tt.gaussian(2, 1))]
    )


def assigned():
    return tt.assignment(WIDE, rows=tt.exactly(4), columns=tt.exactly(4))


def likelihood():
    return learn.ConditionalLikelihood(X, learn.strata_of_groups(GROUPS, CHOSEN == 1))


def chunked(progress, **options):
    return tt.ChunkedCountModel(np.zeros(9), chunk_size=2, progress=progress, **options)


def grouped(progress):
    groups = [0, 1, 2] * 3
    return chunked(progress, groups=groups, group_potential=tt.exactly(1))


# What every work is called, and how it is done. Where the name is not that of a call, the call comes behind a slash.
WORK = {
    "loopy_bp": lambda progress: tt.loopy_bp(graph(), progress=progress),
    "mean_field": lambda progress: loopy.mean_field(graph(), progress=progress),
    "holder_bound": lambda progress: loopy.holder_bound(graph(), progress=progress),
    "trw_bound": lambda progress: loopy.trw_bound(graph(), progress=progress),
    "dual_decomposition": lambda progress: loopy.dual_decomposition(graph(), progress=progress),
    "gibbs_marginals": lambda progress: assigned().gibbs_marginals(
        4, rng=0, burn_in=0, chains=2, progress=progress
    ),
    "sample/Assignment": lambda progress: assigned().sample(2, rng=0, burn_in=3, thin=1, progress=progress),
    "sample/FactorGraph": lambda progress: graph().sample(9, rng=0, limit=1, warm_up=2, progress=progress),
    "fit": lambda progress: learn.fit(tt.CountModel(np.zeros(4)), BITS, l2=1.0, progress=progress),
    "fit/fit_conditional": lambda progress: learn.fit_conditional(
        tt.CountTree.flat(4), X, BITS, l2=1.0, progress=progress
    ),
    "fit/fit_conditional, adam": lambda progress: learn.fit_conditional(
        tt.CountTree.flat(4), X, BITS, l2=1.0, batch_size=20, max_iter=3, progress=progress
    ),
    "fit/newton": lambda progress: learn.newton(likelihood(), np.zeros(2), progress=progress),
    "fit/fit_sums": lambda progress: learn.fit_sums([1, 2, 3], [3, 4, 1, 2, 3, 0], progress=progress),
    "fit_noisy_or": lambda progress: learn.fit_noisy_or(
        np.zeros((4, 2)), [1, 0, 1, 1], l2=0.1, leak=0.1, progress=progress
    ),
    "fit/ConditionalLogit": lambda progress: estimators.ConditionalLogit(progress=progress).fit(
        X, CHOSEN, groups=GROUPS
    ),
    "fit/BagClassifier": lambda progress: estimators.BagClassifier(l2=1.0, progress=progress).fit(
        X, BAGS, groups=GROUPS
    ),
    "fit/LabelProportions": lambda progress: estimators.LabelProportions(
        target="counts", l2=1.0, progress=progress
    ).fit(X, BAGS + 1, groups=GROUPS),
    "fit/CountDensity": lambda progress: estimators.CountDensity(l2=1.0, progress=progress).fit(BITS),
    "fit/CountDensity, mixture": lambda progress: estimators.CountDensity(
        n_components=2, l2=1.0, em_iter=3, random_state=0, progress=progress
    ).fit(BITS),
    "marginals/ChunkedCountModel": lambda progress: chunked(progress, potential=tt.exactly(2)).marginals(),
    "mode/ChunkedCountModel": lambda progress: chunked(progress, potential=tt.exactly(2)).mode(),
    "sample/ChunkedCountModel": lambda progress: chunked(progress, potential=tt.exactly(2)).sample(rng=0),
    "groups/ChunkedCountModel": lambda progress: grouped(progress).log_partition,
    "sorting/ChunkedCountModel": lambda progress: grouped(progress).marginals(),
    "moments/ChunkedPoissonBinomial": lambda progress: tt.ChunkedPoissonBinomial(
        probs=np.full(9, 0.5), chunk_size=2, progress=progress
    ).std(),
}
STOPPABLE = ("loopy_bp", "mean_field", "holder_bound", "trw_bound", "dual_decomposition", "gibbs_marginals")
# Iterations of which a few milliseconds' worth are enough for a million units.
SHORT = {"logits_from_inclusion", "MaxEntropySampler"}
ITERATIONS = {"max_iter", "max_iterations", "sweeps", "burn_in", "warm_up", "em_iter", "scratch"}


def public_calls():
    for module in (tt, learn, loopy, estimators):
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, BaseException)):
                yield name, name, thing
                if inspect.isclass(thing):
                    yield from ((name, method, found) for method, found, _ in methods(thing))
    problem = type(assigned())
    yield from (("Assignment", method, found) for method, found, _ in methods(problem))


def test_everything_that_iterates_takes_progress_and_is_tested_here():
    tested = {part for name in WORK for part in name.partition(",")[0].split("/")}
    for owner, name, call in public_calls():
        try:
            named = set(inspect.signature(call).parameters)
        except (TypeError, ValueError):
            continue
        if named & ITERATIONS and name not in SHORT and not owner.endswith(("Fit", "Samples", "Result")):
            assert "progress" in named, f"{owner}.{name}"
        if "progress" in named:
            assert {owner, name} & tested, f"{owner}.{name}"


@pytest.mark.parametrize("name", WORK)
def test_shown_as_lines_in_a_file_and_as_a_bar_on_a_terminal(name, capsys, monkeypatch):
    WORK[name](False)
    assert capsys.readouterr().err == ""
    WORK[name](True)
    lines, label = capsys.readouterr().err.splitlines(), name.partition("/")[0]
    assert any(line.startswith(f"{label}: ") and line.endswith(" s") for line in lines)
    assert not any("\r" in line for line in lines)
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    WORK[name](True)
    shown = capsys.readouterr().err
    assert f"\r{label}: " in shown
    assert "%|" in shown


def test_lines_on_a_terminal_without_tqdm(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(_progress, "_INTERVAL", -1.0)  # every step
    with Progress("work", 3, True) as shown:
        shown.advance(note="first")
        shown.advance(2, earlier=True, change=0.5)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["work: 1 of 3 steps (first)", "work: 3 of 3 steps (change 0.5)"]
    assert lines[2].startswith("work: 3 steps (change 0.5), 2 of them from an earlier run, ")


def test_nothing_is_shown_where_standard_error_is_closed(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with Progress("work", 3, True) as shown:
        shown.advance()


@pytest.mark.parametrize("name", WORK)
def test_a_function_is_told_every_step_in_the_same_way(name):
    seen: list[Stage] = []
    WORK[name](seen.append)
    assert name.partition("/")[0] in {stage.work for stage in seen}
    before: dict[str, int] = {}
    for work, done, total, unit, numbers in seen:
        assert done > (before.get(work, 0) % total)  # a pass that is made again begins anew
        assert done <= total
        before[work] = done
        assert unit in ("iterations", "temperatures", "sweeps", "steps", "epochs", "rounds", "variables")
        assert all(np.isfinite(x) for x in numbers.values())
        assert bool(numbers) == (unit not in ("sweeps", "variables"))
    with pytest.raises(
        tt.ParameterError, match=r"`progress` must be True, False or a function of .*; 3 arrived"
    ):
        WORK[name](3)


class Mine(Exception):
    """An error of the user's own."""


@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("step", [1, 2])
def test_an_error_of_the_function_is_what_arrives(name, step):
    seen: list[Stage] = []

    def fail(stage):
        seen.append(stage)
        if len(seen) == step:
            raise Mine(str(stage.done))

    def ask():
        WORK[name](fail)
        if len(seen) < step:
            raise Mine("")

    with pytest.raises(Mine):
        ask()
    with pytest.raises(RuntimeError, match="`progress` raised StopIteration"):
        WORK[name](lambda stage: next(iter(())))


@pytest.mark.parametrize("name", WORK)
def test_an_interrupt_ends_what_has_an_answer_already_and_is_heard_elsewhere(name):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored

    def interrupt(_):
        signal.raise_signal(signal.SIGINT)

    try:
        if name in STOPPABLE:
            found = WORK[name](interrupt)
            assert found.interrupted
        else:
            with pytest.raises(KeyboardInterrupt):
                WORK[name](interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    WORK[name](False)
