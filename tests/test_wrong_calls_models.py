"""Wrong arguments of linear, thinned, ragged and chunked models, of forests, and of what procedures return.

An answer, or a typed error; never an error from somewhere inside.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tallytree as tt
from tallytree import chunked, learn, loopy
from tallytree.potentials import as_potential, parse_potential
from test_wrong_calls import DATA, STATES, THREE, TREE, WRONG, ask, graph, method_of, outcome, sums
from test_wrong_calls_learn import likelihood


def linear() -> tt.LinearModel:
    return tt.LinearModel(THREE, [1.0, -0.5, 2.0], np.cos, step=0.5)


def thinned() -> tt.ThinnedModel:
    return tt.ThinnedModel(THREE, [0.5, 0.2, 0.9], tt.between(1, 2), leak=0.1)


def forest() -> tt.Forest:
    return tt.Forest([(0, 1), (1, 2)], coupling=[0.4, -0.3])


def chunks() -> tt.ChunkedCountModel:
    return tt.ChunkedCountModel(np.array(THREE * 2), tt.exactly(2), chunk_size=4)


def groups_of_chunks() -> tt.ChunkedCountModel:
    return tt.ChunkedCountModel(
        np.array(THREE), groups=np.array([0, 0, 1]), group_potential=tt.at_most(1), chunk_size=2
    )


def conditional() -> learn.ConditionalFit:
    return learn.fit_conditional(tt.CountTree.flat(3), np.ones((4, 2)), DATA, max_iter=2, l2=0.1)


def ask_all(found: Any) -> None:
    """All that such a model answers without arguments."""
    ask(found)
    for name in ("marginals", "posterior_logits", "count_log_probs", "sum_log_probs", "mode", "grid_error"):
        value = getattr(found, name, None)
        if callable(value):
            value()


def asked(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **given: ask_all(make(**given))


# name -> (callable, arguments that are right)
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "LinearModel": (
        asked(tt.LinearModel),
        {"logits": THREE, "weights": [1.0, -0.5, 2.0], "log_f": np.cos, "step": 0.5, "method": "auto"},
    ),
    "LinearModel(table)": (
        asked(tt.LinearModel),
        {"logits": THREE, "weights": [1.0, 1.0, 2.0], "log_f": np.zeros(5), "step": 1.0, "method": "auto"},
    ),
    "ThinnedModel": (
        asked(tt.ThinnedModel),
        {"logits": THREE, "rates": [0.5, 0.2, 0.9], "potential": tt.between(1, 2), "leak": 0.1},
    ),
    "noisy_or_model": (asked(tt.noisy_or_model), {"logits": THREE, "rates": [0.5, 0.2, 0.9], "leak": 0.1, "t": 1}),
    "RaggedBatch": (
        asked(tt.RaggedBatch),
        {"logits": [[0.1], [0.2, 0.3]], "potentials": [tt.exactly(1), tt.at_most(1)], "sizes": None},
    ),
    "RaggedBatch(sizes)": (
        asked(tt.RaggedBatch),
        {"logits": THREE, "potentials": tt.exactly(1), "sizes": [1, 2]},
    ),
    "Forest.compatible_with": (
        tt.Forest.compatible_with,
        {"tree": TREE, "log_tables": None, "coupling": 0.4},
    ),
    "Forest.compatible_sets": (
        lambda **given: list(itertools.islice(forest().compatible_sets(**given), 20)),
        {"n_variables": 3, "width": 1},
    ),
    "Forest.replace": (lambda **given: forest().replace(**given), {"coupling": [0.4, 0.2]}),
    "Forest.replace(log_tables)": (
        lambda **given: forest().replace(**given),
        {"log_tables": np.zeros((2, 2, 2))},
    ),
    "as_potential": (as_potential, {"obj": tt.exactly(1)}),
    "parse_potential": (parse_potential, {"text": "exactly(1)"}),
    "Potential.log_table": (tt.exactly(1).log_table, {"n": 3}),
    "Potential.support": (tt.exactly(1).support, {"n": 3}),
    "Potential.mixture": (tt.gaussian(1.0, 1.0).mixture, {"n": 3}),
    "Strata": (
        learn.Strata,
        {"rows": np.arange(6), "offsets": np.array([0, 3, 6]), "cases": np.array([1, 0, 0, 0, 1, 0], bool)},
    ),
}  # fmt: skip

DISTRIBUTION: dict[str, dict[str, Any]] = {
    **{name: {"x": 1} for name in ("cdf", "logcdf", "sf", "logsf")},
    **{name: {"k": 1} for name in ("pmf", "logpmf")},
    **{name: {"q": 0.5} for name in ("ppf", "isf")},
    "expect": {"func": None, "lb": None, "ub": None, "conditional": False},
    "interval": {"confidence": 0.9},
    "moment": {"order": 2},
    "rvs": {"size": 2, "random_state": 0},
    "sample": {"size": 2, "rng": 0},
    "stats": {"moments": "mv"},
}

METHODS: dict[str, tuple[Callable[[], Any], dict[str, dict[str, Any]]]] = {
    "LinearModel": (
        linear,
        {
            "condition": {"evidence": {0: 1}},
            "log_prob": {"y": STATES},
            "replace": {"logits": THREE, "weights": [1.0, -0.5, 2.0], "log_f": np.cos, "step": 0.5},
            "sample": {"size": 2, "rng": 0},
        },
    ),
    "ThinnedModel": (
        thinned,
        {
            "condition": {"evidence": {0: 1}},
            "log_prob": {"y": STATES},
            "replace": {"logits": THREE, "rates": [0.5, 0.2, 0.9], "potential": tt.exactly(1), "leak": 0.2},
            "sample": {"size": 2, "rng": 0},
        },
    ),
    "Forest": (
        forest,
        {
            "boundary_width": {"members": [0, 1]},
            "descendants": {"n_variables": 3, "roots": [0]},
            "fits": {"groups": [tt.Group([0, 1], tt.exactly(1))], "n_variables": 3},
        },
    ),
    "CountTree": (lambda: TREE, {"with_singletons": {"variables": np.array([0, 1])}}),
    "ConditionalPoissonBinomial": (lambda: sums().given(low=1), DISTRIBUTION),
    "weighted PoissonBinomial": (
        lambda: tt.PoissonBinomial([0.1, 0.5, 0.7], weights=[1, 2, 5]),
        DISTRIBUTION | {"given": {"value": None, "low": 1, "high": 6}, "condition": {"evidence": {0: 1}}},
    ),
    "ChunkedCountModel": (
        chunks,
        {
            "condition": {"evidence": {0: 1}},
            "count_log_probs": {"window": True},
            "log_prob": {"y": np.array([1, 0, 0, 0, 1, 0]), "column": None},
            **{name: {"out": None, "overwrite": False} for name in ("marginals", "mode", "posterior_logits")},
            "sample": {"rng": 0, "out": None, "overwrite": False},
        },
    ),
    "ChunkedCountModel with groups": (
        groups_of_chunks,
        {
            "condition": {"evidence": {0: 1}},
            "count_log_probs": {"window": True},
            "log_prob": {"y": np.array([1, 0, 0]), "column": None},
            "sample": {"rng": 0},
        },
    ),
    "ChunkedPoissonBinomial": (
        lambda: chunked.ChunkedPoissonBinomial(np.array([0.1, 0.5, 0.7]), chunk_size=2),
        {
            **{name: {"k": 1} for name in ("cdf", "logcdf", "sf", "logsf", "pmf", "logpmf")},
            "ppf": {"q": 0.5},
        },
    ),
    "UpperBound": (lambda: loopy.holder_bound(graph(), max_iter=2), {"gap": {"lower_bound": 0.0}}),
    "ConditionalFit": (conditional, {"model": {"X": np.ones((2, 2)), "classes": None}}),
    "ConditionalLikelihood": (
        likelihood,
        {
            name: {"beta": np.zeros(2)}
            for name in ("value", "first_order", "derivatives", "information", "scores")
        },
    ),
    "CountFeatures": (
        lambda: learn.CountFeatures(tt.CountTree.flat(3), pairs=[(0, 1)]),
        {
            "cells": {"rows": DATA},
            "pair_cells": {"rows": DATA},
            "mean": {"rows": DATA, "weights": None},
            "log_weight": {"rows": DATA, "logits": np.zeros(3), "packed": np.zeros(8)},
        },
    ),
    "FixedCounts": (
        lambda: learn.fixed_counts(np.zeros((2, 3)), np.array([1, 2])),
        {"covariances": {"x": np.ones((2, 3, 2))}},
    ),
    "ParametricPotential": (
        lambda: learn.parametric(tt.poisson, mean=learn.Parameter("mean", 1.0)),
        {"at": {"values": {"mean": 2.0}}, "table": {"n": 3, "coordinates": {"mean": 0.0}}},
    ),
}

CASES = [(name, call, given, argument) for name, (call, given) in CALLS.items() for argument in given]
CASES += [
    (f"{kind}.{name}", method_of(make, name), given, argument)
    for kind, (make, methods) in METHODS.items()
    for name, given in methods.items()
    for argument in given
]
USERS_FUNCTIONS = ("log_f", "func")


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


def conditional_of_classes() -> learn.ConditionalFit:
    return learn.fit_conditional(
        tt.CountTree.flat(3), np.ones((4, 2)), DATA, classes=[0, 1, 1, 0], max_iter=2, l2=0.1
    )


MASKED = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])

# Calls that once gave a number or did something that nobody had asked for, or failed inside.
TRAPS: dict[str, tuple[Callable[[], Any], str]] = {
    "a grid whose size overflows": (
        lambda: tt.LinearModel(THREE, [1e300, 1.0, 1.0], np.cos, step=1e-10),
        "`step` must leave a grid of less than",
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
        "`classes` must be classes of the fit, 0 to 1; 2 arrived",
    ),
    "classes from behind": (
        lambda: conditional_of_classes().model(np.ones((2, 2)), [0, -1]),
        "`classes` must be 2 integers of at least 0",
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
        lambda: chunks().marginals(out=None, overwrite="no"),
        "`overwrite` must be True or False",
    ),
    "a column that is no name": (
        lambda: tt.ChunkedCountModel(np.zeros(3), column=3),
        "`column` must be the name",
    ),
    "a function that returns no chunks": (
        lambda: tt.ChunkedCountModel(lambda: 3.0).marginals(),
        "the function returned 3.0, which has no chunks",
    ),
    "a fraction as evidence": (lambda: chunks().condition({0: 1.0}), "must give 0 or 1 to every variable"),
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
