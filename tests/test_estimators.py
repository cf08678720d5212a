"""scikit-learn's own checks on every estimator."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("sklearn")

from sklearn.base import BaseEstimator
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from tallytree import estimators

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::sklearn.exceptions.ConvergenceWarning"
    ),  # the checks separate the classes
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning"),
    pytest.mark.filterwarnings("ignore:tallytree runs without its C"),
    pytest.mark.filterwarnings(
        "ignore::tallytree.estimators.MissingGroupsWarning"
    ),  # the checks know no groups
    pytest.mark.filterwarnings("ignore::tallytree.estimators.CollinearityWarning"),  # more columns than rows
]

EVERY = [
    value
    for value in (getattr(estimators, name) for name in estimators.__all__)
    if isinstance(value, type) and issubclass(value, BaseEstimator)
]


with warnings.catch_warnings():
    # A sampler takes a vector of probabilities; most checks need a matrix and are skipped with this warning.
    warnings.simplefilter("ignore", SkipTestWarning)
    every_check = parametrize_with_checks([cls() for cls in EVERY])


@every_check
def test_scikit_learn_checks(estimator, check):
    check(estimator)
