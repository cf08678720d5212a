"""Every argument of every public callable, replaced by what it was not made for: an answer, or a typed error.

What must never arrive is a raw ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError or
MemoryError from somewhere inside.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tallytree as tt
from tallytree import learn, loopy

INF, NAN = np.inf, np.nan

WRONG: dict[str, Any] = {
    "None": None,
    "text": "text",
    "bytes": b"text",
    "NaN": NAN,
    "inf": INF,
    "negative": -1,
    "fraction": 0.5,
    "bool": True,
    "complex": 1j,
    "huge": 10**30,
    "huge negative": -(10**30),
    "empty list": [],
    "empty rows": [[]],
    "ragged": [[1.0], [1.0, 2.0]],
    "texts": ["a", "b"],
    "Nones": [None, None, None],
    "NaNs": [NAN, NAN, NAN],
    "negatives": [-1, -2, -3],
    "fractions": [0.5, 0.25, 1.5],
    "bools": [True, False, True],
    "repeated": [0, 0, 0],
    "huge list": [10**30, 0, 1],
    "objects": np.array([object(), object(), object()]),
    "complexes": np.ones(3, complex),
    "three axes": np.zeros((2, 3, 4)),
    "no axis": np.array(1.0),
    "text array": np.array(["1", "2", "3"]),
    "dates": np.array(["2020-01-01"] * 3, "datetime64[D]"),
    "object": object(),
    "type": int,
    "dictionary": {"a": 1},
    "far": 99,
    "far float": 1e300,
    "far list": [0, 1, 99],
    "no rows": np.zeros((0, 3)),
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
    "generator": range(3),
    "model": tt.CountModel([0.0, 0.0, 0.0], tt.exactly(1)),
    "potential": tt.exactly(1),
}


def model() -> tt.CountModel:
    return tt.CountModel(
        [0.1, -0.2, 0.3], [tt.Group([0, 1], tt.at_most(1)), tt.Group(None, tt.between(1, 2))]
    )


def with_edges() -> tt.CountModel:
    return tt.CountModel([0.1, -0.2, 0.3], tt.between(1, 2), edges=tt.Forest([(0, 1), (1, 2)], coupling=0.4))


def chain() -> tt.ChainModel:
    return tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))


def graph() -> tt.FactorGraph:
    return tt.FactorGraph([0.1, 0.2, 0.3], [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.at_most(1))])


def sums() -> tt.PoissonBinomial:
    return tt.PoissonBinomial([0.1, 0.5, 0.7])


def pairs() -> Any:
    return tt.assignment(np.zeros((3, 3)), tt.exactly(1), tt.exactly(1))


def ask(found: Any) -> None:
    """Answers are found when they are asked for."""
    for name in ("log_partition", "marginals", "entropy"):
        value = getattr(found, name, None)
        if callable(value):
            value()


def limited(threads: Any) -> None:
    with tt.limit_threads(threads):
        pass


TREE = tt.CountTree.balanced(4)
DATA = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0]])
STATES = np.array([0, 1, 0])
THREE = [0.1, 0.2, 0.3]

# name -> (callable, arguments that are right)
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "CountModel": (tt.CountModel, {"logits": THREE, "groups": tt.exactly(1), "edges": None, "method": "auto"}),
    "CountModel.from_tree": (
        tt.CountModel.from_tree,
        {"tree": TREE, "logits": np.zeros(4), "tables": None, "method": "auto"},
    ),
    "Group": (
        lambda members, potential: tt.CountModel(THREE, [tt.Group(members, potential)]),
        {"members": [0, 1], "potential": tt.exactly(1)},
    ),
    "Forest": (
        lambda pairs, log_tables: tt.CountModel(THREE, edges=tt.Forest(pairs, log_tables)),
        {"pairs": [(0, 1), (1, 2)], "log_tables": np.zeros((2, 2, 2))},
    ),
    "Forest(coupling)": (
        lambda coupling: tt.CountModel(THREE, edges=tt.Forest([(0, 1), (1, 2)], coupling=coupling)),
        {"coupling": 0.5},
    ),
    "CountTree.from_groups": (tt.CountTree.from_groups, {"groups": [[0, 1], [0, 1, 2]], "n_variables": 3}),
    "CountTree.from_linkage": (tt.CountTree.from_linkage, {"linkage": [[0.0, 1.0, 0.5, 2.0]]}),
    "CountTree.from_parents": (
        tt.CountTree.from_parents,
        {"parents": [3, 3, 4, 4, -1], "n_variables": 3},
    ),
    "CountTree.balanced": (tt.CountTree.balanced, {"n_variables": 4, "arity": 2, "min_size": 2}),
    "CountTree.flat": (tt.CountTree.flat, {"n_variables": 4}),
    "CountTree.group_size": (lambda group: TREE.group_size(group), {"group": 0}),
    "CountTree.with_groups": (lambda extra: TREE.with_groups(extra), {"extra": [[0]]}),
    "ChainModel": (
        tt.ChainModel,
        {
            "log_unary": np.zeros((3, 2)),
            "log_transitions": np.zeros((2, 2)),
            "counts": tt.exactly(1),
            "counted": None,
            "scores": None,
            "lengths": None,
        },
    ),
    "FactorGraph": (tt.FactorGraph, {"logits": THREE, "groups": [tt.Group([0, 1], tt.exactly(1))], "edges": None}),
    "PoissonBinomial": (tt.PoissonBinomial, {"probs": [0.1, 0.5, 0.7], "weights": None, "method": "auto"}),
    "PoissonBinomial(logits)": (
        lambda logits, weights: tt.PoissonBinomial(logits=logits, weights=weights).pmf(1),
        {"logits": THREE, "weights": [1, 2, 3]},
    ),
    "RaggedBatch": (tt.RaggedBatch, {"logits": [[0.1], [0.2, 0.3]], "potentials": tt.exactly(1), "sizes": None}),
    "RaggedBatch(sizes)": (
        lambda logits, sizes: tt.RaggedBatch(logits, tt.exactly(1), sizes),
        {"logits": THREE, "sizes": [1, 2]},
    ),
    "assignment": (
        lambda **given: tt.assignment(**given).mode(),
        {"affinity": np.zeros((2, 3)), "rows": tt.exactly(1), "columns": tt.at_most(1), "forbidden": None},
    ),
    "k_out_of_n": (tt.k_out_of_n, {"probs": [0.5, 0.5], "k": 1, "system": "G"}),
    "k_to_l_out_of_n": (tt.k_to_l_out_of_n, {"probs": [0.5, 0.5], "k": 1, "l": 2, "system": "G"}),
    "birnbaum_importance": (tt.birnbaum_importance, {"probs": [0.5, 0.5], "k": 1, "system": "G"}),
    # potentials, in a model that uses them
    **{
        f"{name}": (
            (lambda make: lambda **given: tt.CountModel(THREE, make(**given)).marginals)(getattr(tt, name)),
            given,
        )
        for name, given in {
            "exactly": {"k": 1},
            "at_least": {"k": 1},
            "at_most": {"k": 1},
            "between": {"lo": 1, "hi": 2},
            "one_of": {"counts": [0, 2]},
            "parity": {"which": "odd"},
            "modulo": {"m": 2, "r": 1},
            "noisy_or": {"rate": 0.3, "leak": 0.1, "t": 1},
            "noisy_and": {"rate": 0.3, "leak": 0.1, "t": 1},
            "gaussian": {"mean": 1.0, "sd": 0.5, "fraction": False},
            "poisson": {"mean": 1.0},
            "geometric": {"ratio": 0.5},
            "spike_and_slab": {"spike": 1.0, "slab": 1.0},
            "all_or_none": {"strength": 1.0, "truncation": None},
            "quadratic": {"curvature": -1.0, "center": None},
            "exponential_mixture": {"coefficients": [0.5, 0.5], "rates": [1.0, 0.5]},
            "table": {"log_values": [0.0, 1.0, 0.0, 1.0]},
        }.items()
    },
    "limit_threads": (limited, {"threads": 1}),
    # loopy
    "loopy_bp": (
        tt.loopy_bp,
        {
            "graph": graph(), "damping": 0.2, "schedule": "sequential", "tol": 1e-6, "max_iter": 5,
            "progress": False, "semiring": "sum", "accelerate": True, "start": None,
        },
    ),
    "dual_decomposition": (
        loopy.dual_decomposition,
        {"graph": graph(), "temperatures": (1.0, 0.1), "tol": 1e-6, "max_iter": 3, "progress": False},
    ),
    "holder_bound": (
        loopy.holder_bound,
        {"graph": graph(), "weights": None, "tol": 1e-6, "max_iter": 3, "progress": False, "start": None},
    ),
    "trw_bound": (
        loopy.trw_bound,
        {"graph": graph(), "tol": 1e-6, "max_iter": 3, "progress": False, "start": None},
    ),
    "mean_field": (
        loopy.mean_field,
        {"graph": graph(), "keep": (0, 1), "tol": 1e-6, "max_iter": 3, "progress": False},
    ),
    # learn
    "learn.fit": (
        learn.fit,
        {
            "model": tt.CountModel(np.zeros(3), [tt.Group(None, np.zeros(4))]), "data": DATA, "weights": None,
            "start": None,
            "logits": "free", "tables": "free", "edges": "free", "l2": 0.1, "l2_tables": None, "l2_edges": None,
            "smoothness": 0.0, "method": "l-bfgs", "tol": 1e-3, "max_iter": 2, "gauge": "endpoints", "progress": False,
        },
    ),
    "learn.fit_conditional": (
        learn.fit_conditional,
        {
            "tree": tt.CountTree.flat(3), "X": np.ones((4, 2)), "Y": DATA, "classes": None, "intercept": "own",
            "tables": "free", "start_tables": None, "l2": 0.1, "l2_tables": None, "tol": 1e-3, "max_iter": 2,
            "batch_size": None, "learning_rate": 0.05, "rng": 0, "warm_start": None, "progress": False,
        },
    ),
}  # fmt: skip

METHODS: dict[str, tuple[Callable[[], Any], dict[str, dict[str, Any]]]] = {
    "CountModel": (
        model,
        {
            "condition": {"evidence": {0: 1}},
            "condition_count": {"group": 0, "count": 1},
            "count_covariance": {"first": 0, "second": 1},
            "count_log_probs": {"group": 0},
            "covariance": {"rows": [0]},
            "hessian_vector_product": {"logits": THREE, "tables": None, "counts": True},
            "kl_divergence": {"other": model()},
            "log_prob": {"y": STATES},
            "max_count_values": {"group": 0},
            "mode_k": {"k": 2},
            "pairwise": {"i": [0], "j": [1]},
            "replace": {"logits": THREE, "tables": None, "edges": None},
            "sample": {"size": 2, "rng": 0, "sparse": False},
        },
    ),
    "CountModel with edges": (
        with_edges,
        {
            "boundary": {"group": 0},
            "condition": {"evidence": {0: 1}},
            "condition_count": {"group": 0, "count": 1},
            "count_log_probs": {"group": 0},
            "covariance": {"rows": [0]},
            "hessian_vector_product": {"logits": THREE, "tables": None, "counts": True},
            "kl_divergence": {"other": with_edges()},
            "log_prob": {"y": STATES},
            "max_count_values": {"group": 0},
            "pairwise": {"i": [0], "j": [1]},
            "replace": {"logits": THREE, "tables": None, "edges": None},
            "sample": {"size": 2, "rng": 0},
        },
    ),
    "ChainModel": (
        chain,
        {
            "condition": {"evidence": {0: 1}},
            "condition_count": {"group": 0, "count": 1},
            "count_log_probs": {"group": 0},
            "log_prob": {"labels": [0, 1, 0]},
            "replace": {"log_unary": np.zeros((3, 2)), "log_transitions": None, "tables": None},
            "sample": {"size": 2, "rng": 0},
        },
    ),
    "FactorGraph": (
        graph,
        {"log_weight": {"y": STATES}, "members": {"group": 0}, "replace": {"logits": THREE}},
    ),
    "LoopyResult": (
        lambda: tt.loopy_bp(graph(), max_iter=3),
        {"cavity_log_odds": {"factor": 0}, "count_log_probs": {"group": 0}},
    ),
    "PoissonBinomial": (
        sums,
        {
            **{name: {"x": 1} for name in ("cdf", "logcdf", "sf", "logsf")},
            **{name: {"k": 1} for name in ("pmf", "logpmf")},
            **{name: {"q": 0.5} for name in ("ppf", "isf")},
            "condition": {"evidence": {0: 1}},
            "expect": {"func": None, "lb": None, "ub": None, "conditional": False},
            "given": {"value": None, "low": 1, "high": 2},
            "interval": {"confidence": 0.9},
            "moment": {"order": 2},
            "rvs": {"size": 2, "random_state": 0},
            "sample": {"size": 2, "rng": 0},
            "stats": {"moments": "mv"},
        },
    ),
    "Assignment": (
        pairs,
        {
            "block_gibbs": {"sweeps": 2, "rng": 0, "burn_in": 1, "chains": 2, "progress": False},
            "row_gibbs": {
                "sweeps": 2,
                "rng": 0,
                "burn_in": 1,
                "chains": 2,
                "moves": "rows",
                "progress": False,
            },
            "sample": {"size": 2, "rng": 0, "burn_in": 1, "thin": 1, "chains": 2, "progress": False},
            "log_weight": {"y": np.eye(3)},
            "bounds": {"max_iter": 2, "tol": 1e-3},
            "dual_decomposition": {"max_iter": 2, "tol": 1e-3},
            "loopy_bp": {"max_iter": 2, "tol": 1e-3, "damping": 0.1},
        },
    ),
}


def method_of(make: Callable[[], Any], name: str) -> Callable[..., Any]:
    return lambda **given: getattr(make(), name)(**given)


CASES = [(name, call, given, argument) for name, (call, given) in CALLS.items() for argument in given]
CASES += [
    (f"{kind}.{name}", method_of(make, name), given, argument)
    for kind, (make, methods) in METHODS.items()
    for name, given in methods.items()
    for argument in given
]


def outcome(call: Callable[..., Any], given: dict[str, Any]) -> BaseException | None:
    """What is raised that is not an error of this package."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ask(call(**given))
    except tt.TallyTreeError:
        return None
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(
    ("call", "given", "argument"),
    [case[1:] for case in CASES],
    ids=[f"{name}({argument})" for name, _, _, argument in CASES],
)
def test_wrong_arguments_are_refused_by_name_or_answered(call, given, argument):
    assert outcome(call, given) is None, "the right call fails"
    raw = {}
    for name, value in WRONG.items():
        if (argument, name) == ("progress", "type"):
            continue  # a function of the user, which may raise what it likes
        error = outcome(call, {**given, argument: value})
        if error is not None:
            raw[name] = f"{type(error).__name__}: {error}"[:150]
    assert not raw, f"{argument}: " + "; ".join(f"{k} -> {v}" for k, v in raw.items())
