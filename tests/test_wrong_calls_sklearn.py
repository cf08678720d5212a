"""Wrong arguments of estimators, samplers and plots: an answer, a typed error, or scikit-learn's own refusal."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tallytree as tt
from test_wrong_calls import WRONG, graph, model, pairs

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from tallytree import plot  # noqa: E402
from tallytree.estimators import (  # noqa: E402
    BagClassifier,
    ConditionalLogit,
    CountDensity,
    LabelProportions,
    MaxEntropySampler,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
GROUPS = np.repeat(np.arange(4), 3)
CASES_OF = np.tile([1, 0, 0], 4)
BAGS = np.repeat([0, 1, 0, 1], 3)
ROWS = (RNG.random((12, 4)) < 0.4).astype(int)


def fitted(estimator: Any, **given: Any) -> Any:
    return estimator.fit(**given)


def params(make: Callable[..., Any], **fit: Any) -> Callable[..., Any]:
    """The estimator with some parameters, fitted: parameters are looked at in `fit`."""
    return lambda **given: make(**given).fit(**fit)


DENSITY = CountDensity().fit(ROWS)
SAMPLER = MaxEntropySampler().fit(np.array([0.5, 0.7, 0.8]))
BAG = BagClassifier().fit(X, BAGS, groups=GROUPS)
LOGIT = ConditionalLogit().fit(X, CASES_OF, groups=GROUPS)

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "BagClassifier.fit": (BagClassifier(max_iter=5).fit, {"X": X, "y": BAGS, "groups": GROUPS}),
    "BagClassifier.predict": (BAG.predict, {"X": X}),
    "BagClassifier": (
        params(BagClassifier, X=X, y=BAGS, groups=GROUPS),
        {"potential": "at-least-one", "rate": 0.9, "leak": 0.01, "l1": 0.0, "l2": 0.1, "table_l2": 0.01,
         "fit_intercept": True, "n_init": 1, "tol": 1e-3, "max_iter": 3, "random_state": 0},
    ),
    "LabelProportions.fit": (
        LabelProportions(target="proportions", max_iter=5).fit,
        {"X": X, "y": np.repeat([0.0, 1 / 3, 2 / 3, 1 / 3], 3), "groups": GROUPS},
    ),
    "LabelProportions": (
        params(LabelProportions, X=X, y=CASES_OF, groups=GROUPS),
        {"target": "labels", "l1": 0.0, "l2": 0.1, "fit_intercept": True, "tol": 1e-3, "max_iter": 3},
    ),
    "ConditionalLogit.fit": (ConditionalLogit().fit, {"X": X, "y": CASES_OF, "groups": GROUPS}),
    "ConditionalLogit.predict": (LOGIT.predict, {"X": X}),
    "ConditionalLogit": (
        params(ConditionalLogit, X=X, y=CASES_OF, groups=GROUPS),
        {"l2": 0.1, "tol": 1e-6, "max_iter": 5, "level": 0.95, "case": None},
    ),
    "CountDensity.fit": (CountDensity(max_iter=3).fit, {"X": ROWS}),
    "CountDensity.score": (DENSITY.score, {"X": ROWS}),
    "CountDensity.sample": (DENSITY.sample, {"n_samples": 2}),
    "CountDensity": (
        params(CountDensity, X=ROWS),
        {"kind": "counts", "structure": "adaptive", "linkage": "average", "n_components": 1, "pseudo_count": 1.0,
         "l2": 1.0, "smoothness": 0.0, "method": "l-bfgs", "tol": 1e-3, "max_iter": 3, "em_tol": 1e-3, "em_iter": 2,
         "em_steps": 2, "binarize": 0.0, "random_state": 0},
    ),
    "MaxEntropySampler.fit": (MaxEntropySampler().fit, {"pik": [0.5, 0.7, 0.8]}),
    "MaxEntropySampler.sample": (SAMPLER.sample, {"size": 2, "rng": 0}),
    "MaxEntropySampler.horvitz_thompson": (SAMPLER.horvitz_thompson, {"sample": [0, 1], "values": [1.0, 2.0]}),
    "MaxEntropySampler": (
        params(MaxEntropySampler, pik=[0.5, 0.7, 0.8]),
        {"method": "newton", "tol": 1e-10, "max_iter": 50, "random_state": 0},
    ),
    "plot.marginals": (plot.marginals, {"model": model(), "ax": None, "names": None}),
    "plot.count_distribution": (plot.count_distribution, {"model": model(), "group": 0, "ax": None}),
    "plot.group_tree": (plot.group_tree, {"tree": tt.CountTree.balanced(3), "ax": None, "names": None}),
    "plot.loopy_trace": (plot.loopy_trace, {"result": tt.loopy_bp(graph(), max_iter=3), "ax": None, "label": None}),
    "plot.assignment_heatmap": (
        plot.assignment_heatmap,
        {"values": pairs().loopy_bp(max_iter=3).marginals, "ax": None, "title": None, "bar": True},
    ),
    "plot.density_comparison": (
        plot.density_comparison,
        {"data": ROWS, "samples": {"model": ROWS}, "tree": tt.CountTree.balanced(4), "ax": None},
    ),
}  # fmt: skip
CASES = [(name, call, given, argument) for name, (call, given) in CALLS.items() for argument in given]


def outcome(call: Callable[..., Any], given: dict[str, Any]) -> BaseException | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(**given)
    except tt.TallyTreeError:
        return None
    except (ValueError, TypeError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        return (
            None if any("sklearn/utils" in frame.filename.replace("\\", "/") for frame in frames) else error
        )
    except Exception as error:
        return error
    finally:
        pyplot.close("all")
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
        error = outcome(call, {**given, argument: value})
        if error is not None:
            raw[name] = f"{type(error).__name__}: {error}"[:150]
    assert not raw, f"{argument}: " + "; ".join(f"{k} -> {v}" for k, v in raw.items())
