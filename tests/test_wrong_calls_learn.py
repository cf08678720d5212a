"""Wrong arguments of the procedures of `learn` and of chunked models: an answer, or a typed error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tallytree as tt
from tallytree import chunked, learn
from test_wrong_calls import WRONG, ask, outcome

X = np.array([[0.5, 1.0], [-0.2, 0.3], [0.1, -0.4], [0.9, 0.2], [-1.0, 0.6], [0.3, 0.3]])
CODES = np.array([0, 0, 0, 1, 1, 1])
CASES_OF = np.array([True, False, False, False, True, False])
TIMES = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 6.0])


def likelihood(**changed: Any) -> learn.ConditionalLikelihood:
    given = {"x": X, "strata": learn.strata_of_groups(CODES, CASES_OF), "offset": None, "weights": None}
    return learn.ConditionalLikelihood(**{**given, **changed})


def model_of_chunks(**given: Any) -> tt.chunked.ChunkedCountModel:
    found = chunked.ChunkedCountModel(**given)
    ask(found)
    return found


# name -> (callable, arguments that are right)
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "strata_of_groups": (learn.strata_of_groups, {"codes": CODES, "cases": CASES_OF}),
    "risk_sets": (
        learn.risk_sets,
        {"time": TIMES, "event": CASES_OF, "entry": np.zeros(6), "codes": CODES},
    ),
    "ConditionalLikelihood": (
        lambda **given: likelihood(**given).value(np.zeros(2)),
        {"x": X, "strata": learn.strata_of_groups(CODES, CASES_OF), "offset": None, "weights": None},
    ),
    "newton": (
        learn.newton,
        {
            "likelihood": likelihood(), "beta": np.zeros(2), "l2": 0.1, "tolerance": 1e-8, "max_iterations": 3,
            "spread": None, "progress": None,
        },
    ),
    "fixed_counts": (learn.fixed_counts, {"theta": np.zeros((2, 3)), "k": np.array([1, 2])}),
    "logits_from_inclusion": (
        learn.logits_from_inclusion,
        {"pi": np.array([0.2, 0.5, 0.3]), "n": 1, "method": "newton", "tolerance": 1e-10, "max_iterations": 20},
    ),
    "parametric": (learn.parametric, {"factory": tt.poisson, "mean": learn.Parameter("mean", 1.0)}),
    "Parameter": (
        lambda **given: learn.parametric(tt.poisson, mean=learn.Parameter(**given)),
        {"name": "mean", "start": 1.0},
    ),
    "CountFeatures": (learn.CountFeatures, {"tree": tt.CountTree.flat(3), "pairs": None}),
    "ChunkedCountModel": (
        model_of_chunks,
        {
            "source": np.zeros(6), "potential": tt.exactly(2), "groups": None, "group_potential": None,
            "evidence": None, "column": None, "scale": "logit", "chunk_size": 3,
            "scheduler": None, "workers": None, "progress": False,
            "scratch": None,
        },
    ),
    "ChunkedPoissonBinomial": (
        lambda **given: chunked.ChunkedPoissonBinomial(**given).mean(),
        {
            "probs": np.full(6, 0.5), "logits": None, "column": None, "chunk_size": 3, "scheduler": None,
            "workers": None, "progress": False,
        },
    ),
    "fit_conditional_logit": (
        chunked.fit_conditional_logit,
        {
            "X": X, "y": CASES_OF, "groups": CODES, "columns": None, "y_column": None, "groups_column": None,
            "l2": 0.1, "max_iterations": 3, "step": 4, "scheduler": None, "workers": None,
        },
    ),
}  # fmt: skip
USERS_FUNCTIONS = ("progress", "source", "potential", "groups", "probs", "logits", "y", "factory")
CASES = [(name, call, given, argument) for name, (call, given) in CALLS.items() for argument in given]


@pytest.mark.parametrize(
    ("call", "given", "argument"),
    [case[1:] for case in CASES],
    ids=[f"{name}({argument})" for name, _, _, argument in CASES],
)
def test_wrong_arguments_are_refused_by_name_or_answered(call, given, argument):
    assert outcome(call, given) is None, "the right call fails"
    raw = {}
    for name, value in WRONG.items():
        if name == "type" and argument in USERS_FUNCTIONS:
            continue  # a function of the user, which may raise what it likes
        error = outcome(call, {**given, argument: value})
        if error is not None:
            raw[name] = f"{type(error).__name__}: {error}"[:150]
    assert not raw, f"{argument}: " + "; ".join(f"{k} -> {v}" for k, v in raw.items())


def test_a_conditional_fit_is_asked_about_rows_like_its_own():
    rng = np.random.default_rng(0)
    classes, y = np.arange(40) % 2, rng.integers(0, 2, (40, 3))
    tree = tt.CountTree.flat(3)
    own = learn.fit_conditional(tree, rng.normal(size=(40, 2)), y, classes=classes)
    shared = learn.fit_conditional(tree, rng.normal(size=(40, 3, 2)), y)
    new = rng.normal(size=(4, 2))
    with pytest.raises(tt.ParameterError, match="because the fit has tables of 2 classes"):
        own.model(new)
    with pytest.raises(tt.ParameterError, match="0 to 1; 2 arrived"):
        own.model(new, [0, 1, 2, 0])
    with pytest.raises(tt.ParameterError, match="`classes`"):
        own.model(new, [0, 1, -1, 0])
    with pytest.raises(tt.ParameterError, match=r"shape \(N, 2\), as in the fit; shape \(4, 1\) arrived"):
        own.model(new[:, :1], [0, 1, 1, 0])
    with pytest.raises(tt.ParameterError, match=r"shape \(N, 3, 2\)"):
        shared.model(new)
    assert (
        own.model(new, [0, 1, 1, 0]).batch_shape
        == shared.model(rng.normal(size=(4, 3, 2))).batch_shape
        == (4,)
    )


def test_a_structure_that_is_no_model_says_how_to_make_one():
    with pytest.raises(tt.ParameterError, match=r"CountModel\.from_tree"):
        learn.fit(tt.CountTree.flat(2), np.eye(2))
