"""Progress: a bar where somebody looks, lines elsewhere, or a function of the user."""

import sys

import numpy as np
import pytest

import tallytree as tt
from tallytree import _progress
from tallytree._progress import Progress


def graph():
    return tt.FactorGraph(
        np.zeros(4), [tt.Group([0, 1, 2], tt.gaussian(1, 1)), tt.Group([1, 2, 3], tt.gaussian(2, 1))]
    )


def rows():
    return np.random.default_rng(0).integers(0, 2, (30, 4))


WORK = {
    "loopy_bp": lambda progress: tt.loopy_bp(graph(), progress=progress),
    "mean_field": lambda progress: tt.loopy.mean_field(graph(), progress=progress),
    "holder_bound": lambda progress: tt.loopy.holder_bound(graph(), progress=progress),
    "trw_bound": lambda progress: tt.loopy.trw_bound(graph(), progress=progress),
    "gibbs": lambda progress: tt.assignment(np.zeros((2, 3)), rows=tt.exactly(1)).gibbs_marginals(
        sweeps=4, rng=0, progress=progress
    ),
    "fit": lambda progress: tt.learn.fit(tt.CountModel(np.zeros(4)), rows(), l2=1.0, progress=progress),
    "fit_noisy_or": lambda progress: tt.learn.fit_noisy_or(
        np.zeros((4, 2)), [1, 0, 1, 1], l2=0.1, leak=0.1, progress=progress
    ),
    "sample": lambda progress: tt.assignment(  # too wide for exact draws
        np.zeros((30, 30)), rows=tt.exactly(4), columns=tt.exactly(4)
    ).sample(2, rng=0, progress=progress),
    "marginals": lambda progress: tt.ChunkedCountModel(
        np.zeros(9), tt.exactly(2), progress=progress
    ).marginals(),
}


@pytest.mark.parametrize("name", WORK)
def test_shown_as_lines_in_a_file_and_as_a_bar_on_a_terminal(name, capsys, monkeypatch):
    WORK[name](False)
    assert capsys.readouterr().err == ""
    WORK[name](True)
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith(f"{name}: ") and line.endswith(" s") for line in lines)
    assert not any("\r" in line for line in lines)
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    WORK[name](True)
    shown = capsys.readouterr().err
    assert f"\r{name}: " in shown
    assert "%|" in shown


def test_lines_on_a_terminal_without_tqdm(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(_progress, "_INTERVAL", -1.0)  # every step
    with Progress("work", 3, True) as shown:
        shown.advance(note="first")
        shown.advance(2, earlier=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["work: 1 of 3 steps (first)", "work: 3 of 3 steps"]
    assert lines[2].startswith("work: 3 steps, 2 of them from an earlier run, ")


def test_nothing_is_shown_where_standard_error_is_closed(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with Progress("work", 3, True) as shown:
        shown.advance()


@pytest.mark.parametrize("name", WORK)
def test_a_function_is_told_every_step(name):
    seen = []
    WORK[name](lambda *numbers: seen.append(numbers))
    assert len(seen) > 0
    assert [numbers[0] for numbers in seen] == list(range(1, len(seen) + 1))
    assert {len(numbers) for numbers in seen} == {3 if name in ("fit", "newton", "fit_noisy_or") else 2}
    with pytest.raises(
        tt.ParameterError, match=r"`progress` must be True, False or a function of .*; 3 arrived"
    ):
        WORK[name](3)


def fitted(name, progress):
    sk = pytest.importorskip("tallytree.estimators")
    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(60, 2)), np.repeat(np.arange(12), 5)
    y, bags = np.tile([1, 0, 0, 1, 0], 12), (np.arange(12) % 2)
    binary = rng.integers(0, 2, (60, 4))
    work = {
        "ConditionalLogit": lambda: sk.ConditionalLogit(progress=progress).fit(x, y, groups=groups),
        "BagClassifier": lambda: sk.BagClassifier(l2=1.0, progress=progress).fit(x, bags, groups=groups),
        "LabelProportions": lambda: sk.LabelProportions(target="counts", l2=1.0, progress=progress).fit(
            x, bags + 1, groups=groups
        ),
        "CountDensity": lambda: sk.CountDensity(l2=1.0, progress=progress).fit(binary),
        "mixture": lambda: sk.CountDensity(n_components=2, l2=1.0, em_iter=3, progress=progress).fit(binary),
    }
    return work[name]()


@pytest.mark.parametrize(
    "name", ["ConditionalLogit", "BagClassifier", "LabelProportions", "CountDensity", "mixture"]
)
def test_estimators_tell_their_steps(name, capsys):
    fitted(name, False)
    assert capsys.readouterr().err == ""
    fitted(name, True)
    assert capsys.readouterr().err.startswith("rounds: " if name == "mixture" else "fit: ")
    seen = []
    fitted(name, lambda *numbers: seen.append(numbers))
    assert [numbers[0] for numbers in seen] == list(range(1, len(seen) + 1))
    assert {len(numbers) for numbers in seen} == {2 if name == "mixture" else 3}
    with pytest.raises(tt.ParameterError, match="`progress` must be True, False or a function of"):
        fitted(name, 3)
