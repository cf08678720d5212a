"""Every argument of every public callable, replaced by what it was not made for: an answer, or a typed error.

What must never arrive is a raw ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError or
MemoryError from somewhere inside. Estimators and functions of scikit-learn's checks may refuse in its words.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot

import tallytree as tt
from public_calls import DATA, THREE, Call, ask, forest, public_calls
from tallytree import config, learn

pyplot.switch_backend("Agg")

INF, NAN = np.inf, np.nan
WRONG: dict[str, Any] = {
    "None": None,
    "text": "text",
    "empty text": "",
    "bytes": b"text",
    "NaN": NAN,
    "inf": INF,
    "negative": -1,
    "negative fraction": -0.5,
    "zero": 0,
    "fraction": 0.5,
    "improper fraction": 2.5,
    "bool": True,
    "complex": 1j,
    "huge": 10**30,
    "huge negative": -(10**30),
    "empty list": [],
    "empty rows": [[]],
    "ragged": [[1.0], [1.0, 2.0]],
    "pair": (1, 2),
    "texts": ["a", "b"],
    "Nones": [None, None, None],
    "NaNs": [NAN, NAN, NAN],
    "infinities": [INF, INF, INF],
    "negatives": [-1, -2, -3],
    "fractions": [0.5, 0.25, 1.5],
    "bools": [True, False, True],
    "repeated": [0, 0, 0],
    "huge list": [10**30, 0, 1],
    "objects": np.array([object(), object(), object()]),
    "complexes": np.ones(3, complex),
    "two axes": np.zeros((2, 3)),
    "five rows": np.zeros((5, 3)),
    "three axes": np.zeros((2, 3, 4)),
    "no axis": np.array(1.0),
    "text without axes": np.array("a"),
    "text array": np.array(["1", "2", "3"]),
    "dates": np.array(["2020-01-01"] * 3, "datetime64[D]"),
    "object": object(),
    "type": int,
    "function of text": lambda c: "x",
    "function of None": lambda c: None,
    "dictionary": {"a": 1},
    "empty dictionary": {},
    "far": 99,
    "far float": 1e300,
    "far list": [0, 1, 99],
    "no rows": np.zeros((0, 3)),
    "no columns": np.zeros((2, 0)),
    "object array without axes": np.array(None),
    "masked": np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]),
    "half precision": np.array([0.5, 0.25, 0.125], np.float16),
    "evidence beyond": {99: 1},
    "evidence at no index": {None: 1, 0.5: 0},
    "evidence of no value": {0: None, 1: 1},
    "evidence of two values": {0: np.array([0, 1])},
    "evidence of 2": {0: 2},
    "evidence of NaN": {0: NAN},
    "set": {1, 2},
    "range": range(3),
    "slice": slice(0, 2),
    "model": tt.CountModel([0.0, 0.0, 0.0], tt.exactly(1)),
    "potential": tt.exactly(1),
    "potential of more": tt.exactly(100),
    "list of potentials": [tt.exactly(1)],
    "group": tt.Group([0, 1]),
    "crossing groups": [tt.Group([0, 1]), tt.Group([1, 2])],
}
NAMES = list(WRONG)
FUNCTIONS = ("type", "function of text", "function of None")
# Arguments that may be functions of the user, which may raise what they like.
USERS = {"progress", "factory", "log_f", "func", "source", "potential", "groups", "probs", "logits", "y"}


def outcome(call: Callable[..., Any], given: dict[str, Any]) -> BaseException | None:
    """What is raised that is neither an error of this package nor a refusal of scikit-learn."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ask(call(**given))
    except tt.TallyTreeError as error:
        return None if str(error).rstrip("`\"')]").endswith((".", "?")) else error
    except (ValueError, TypeError) as error:
        frames = [frame.filename.replace("\\", "/") for frame in traceback.extract_tb(error.__traceback__)]
        return None if any("sklearn/utils" in name for name in frames) else error
    except Exception as error:
        return error
    finally:
        pyplot.close("all")
    return None


def settings(engine: Any = None, level: Any = None, threads: Any = None) -> None:
    with config.using(engine=engine, level=level, threads=threads):
        _ = tt.CountModel(THREE, tt.exactly(1)).marginals


CALLS = [(home, row) for home, rows in public_calls().items() for row in rows]
CALLS.append(("settings", Call("config.using", settings, {"engine": None, "level": None, "threads": None})))
ROWS = [
    pytest.param(
        number, row, id=f"{home}-{row.name}", marks=[pytest.mark.frameworks] if home == "torch" else []
    )
    for number, (home, row) in enumerate(CALLS)
]


def raw_errors(row: Call, argument: str, values: list[str]) -> list[str]:
    takes_functions = argument in USERS
    errors = {
        name: outcome(row.call, {**row.given, argument: WRONG[name]})
        for name in values
        if not (takes_functions and name in FUNCTIONS)
    }
    return [
        f"{argument}={name}: {type(error).__name__}: {error}"[:200] for name, error in errors.items() if error
    ]


@pytest.mark.parametrize(("number", "row"), ROWS)
def test_wrong_arguments_are_refused_or_answered(number, row):
    """A few values for every argument, others for the next one; the whole cross is the test below."""
    assert outcome(row.call, row.given) is None, "the right call fails"
    for place, argument in enumerate(row.given):
        few = [NAMES[(13 * (number + place) + 17 * step) % len(NAMES)] for step in range(5)]
        assert not raw_errors(row, argument, few)


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "row"), ROWS)
def test_all_wrong_arguments_are_refused_or_answered(number, row):
    for argument in row.given:
        assert not raw_errors(row, argument, NAMES)


def conditional_of_classes() -> learn.ConditionalFit:
    return learn.fit_conditional(
        tt.CountTree.flat(3), np.ones((4, 2)), DATA, classes=[0, 1, 1, 0], max_iter=2, l2=0.1
    )


MASKED = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])

# Calls that once gave a number or did something that nobody had asked for, or failed inside.
TRAPS: dict[str, tuple[Callable[[], Any], str]] = {
    "a grid whose size overflows": (
        lambda: tt.LinearModel(THREE, [1e149, 1.0, 1.0], np.cos, step=1e-200),
        "`step` must leave a grid of less than",
    ),
    "weights whose squares overflow": (
        lambda: tt.LinearModel(THREE, [1e300, 1.0, 1.0], np.cos, step=1e-10),
        "`weights` must have sizes between 1e-150 and 1e150; the largest is 1e+300",
    ),
    "tables of another batch": (
        lambda: tt.LinearModel(np.zeros((2, 3)), np.ones(3), np.zeros((4, 4)), step=1.0),
        "`log_f` has batch shape",
    ),
    "rates of another batch": (
        lambda: tt.ThinnedModel(np.zeros((2, 3)), np.full((4, 3), 0.5), tt.exactly(1)),
        "`rates` has batch shape",
    ),
    "leaks of another batch": (
        lambda: tt.ThinnedModel(np.zeros((2, 3)), [0.5, 0.5, 0.5], tt.exactly(1), leak=np.zeros(4)),
        "`leak` has batch shape",
    ),
    "a group beyond the variables": (
        lambda: forest().fits([[0, 7]], n_variables=3),
        "names variable 7, but variables are numbered 0 to 2",
    ),
    "classes that the fit has not": (
        lambda: conditional_of_classes().model(np.ones((2, 2)), [0, 2]),
        "classes of the fit from 0 to 1, shape (2,); entry 1 is 2",
    ),
    "classes from behind": (
        lambda: conditional_of_classes().model(np.ones((2, 2)), [0, -1]),
        "classes of the fit from 0 to 1, shape (2,); entry 1 is -1",
    ),
    "classes left out": (
        lambda: conditional_of_classes().model(np.ones((2, 2))),
        "`classes` must say the class of every row",
    ),
    "strata that do not end": (
        lambda: learn.Strata(np.arange(3), np.array([0, 2]), np.array([1, 0, 0], bool)),
        "`offsets` must rise from 0 to the number of rows, 3",
    ),
    "text for a flag that overwrites": (
        lambda: tt.ChunkedCountModel(np.array(THREE)).marginals(out=None, overwrite="no"),
        "`overwrite` must be True or False",
    ),
    "a column that is no name": (
        lambda: tt.ChunkedCountModel(np.zeros(3), column=3),
        "`column` must be a str, the name of a column",
    ),
    "a function that returns no chunks": (
        lambda: tt.ChunkedCountModel(lambda: 3.0).marginals(),
        "the function returned 3.0, which has no chunks",
    ),
    "a fraction as evidence": (
        lambda: tt.ChunkedCountModel(np.array(THREE)).condition({0: 1.0}),
        "must give 0 or 1 to every variable",
    ),
    "masked logits": (lambda: tt.CountModel(MASKED), "`logits` must not be masked, but 1 of 3 entries are"),
    "a masked table": (lambda: tt.table(MASKED), "must not be masked"),
    "masked parameters": (lambda: tt.poisson(MASKED), "must not be masked"),
    "masked members": (
        lambda: tt.CountModel(THREE, [tt.Group(np.ma.masked_array([0, 1], [0, 1]), tt.exactly(1))]),
        "must not be masked",
    ),
    "masked probabilities": (lambda: tt.PoissonBinomial(MASKED / 10.0), "`probs` must not be masked"),
    "no mixtures of other lengths": (
        lambda: tt.exponential_mixture(np.zeros((0, 3)), [1.0, 0.5]),
        "must have the same length",
    ),
}


@pytest.mark.parametrize(("call", "message"), TRAPS.values(), ids=TRAPS)
def test_traps_say_what_was_required(call, message):
    with pytest.raises(tt.TallyTreeError) as refused:
        call()
    assert message in str(refused.value)


def test_a_conditional_fit_is_asked_about_rows_like_its_own():
    rng = np.random.default_rng(0)
    classes, y = np.arange(40) % 2, rng.integers(0, 2, (40, 3))
    tree = tt.CountTree.flat(3)
    own = learn.fit_conditional(tree, rng.normal(size=(40, 2)), y, classes=classes)
    shared = learn.fit_conditional(tree, rng.normal(size=(40, 3, 2)), y)
    new = rng.normal(size=(4, 2))
    with pytest.raises(tt.ParameterError, match="class of every row, as in the fit"):
        own.model(new)
    with pytest.raises(tt.ParameterError, match="from 0 to 1"):
        own.model(new, [0, 1, 2, 0])
    with pytest.raises(tt.ParameterError, match="`classes`"):
        own.model(new, [0, 1, -1, 0])
    with pytest.raises(
        tt.ParameterError, match=r"shape \(N, 2\); an array of shape \(4, 1\) .* those of the fit"
    ):
        own.model(new[:, :1], [0, 1, 1, 0])
    with pytest.raises(tt.ParameterError, match=r"shape \(N, 3, 2\)"):
        shared.model(new)
    assert (
        own.model(new, [0, 1, 1, 0]).batch_shape
        == shared.model(rng.normal(size=(4, 3, 2))).batch_shape
        == (4,)
    )


def test_a_structure_that_is_no_model_says_how_to_make_one():
    with pytest.raises(tt.ParameterError, match=r"CountModel\(np.zeros\(D\), groups\)"):
        learn.fit(tt.CountTree.flat(2), np.eye(2))
