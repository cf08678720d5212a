"""Independent answers for count models, to test the package against. Nothing here is imported from it.

A model is plain data: ``theta`` of length D and ``sets``, a list of ``(members, log_table)`` with
``len(log_table) == len(members) + 1``. The weight of a binary vector y is::

    exp(sum_d theta_d y_d) * prod_k exp(log_table_k[sum_{d in members_k} y_d])

``theta_d = -inf`` excludes a variable (weights 1, 0) and ``theta_d = +inf`` forces it (weights 0, 1), so
that log Z stays finite.

Four kinds of answer, each checking the others in ``test_oracle.py``: enumeration, a tree pass in numbers that
cannot underflow, closed forms, and exact rationals. Where ``np.longdouble`` is wider than a double the first
three are right to about the last bit of the doubles they return; elsewhere to about 1e-12.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from oracle_closed_forms import (
    ExactCounts,
    binomial_model,
    exact_integer_counts,
    log_poisson_binomial,
    mixture_model,
    noisy_or_log_table,
    noisy_or_model,
    two_value_model,
)
from oracle_enumeration import (
    Enumerated,
    ExactModel,
    enumerate_exactly,
    enumerate_model,
    log_fraction,
    log_sum_exp,
)
from oracle_nested import Answer, log_space_tree

__all__ = [
    "Answer",
    "Enumerated",
    "ExactCounts",
    "ExactModel",
    "binomial_model",
    "enumerate_exactly",
    "enumerate_model",
    "exact_integer_counts",
    "finite_difference",
    "log_fraction",
    "log_poisson_binomial",
    "log_space_tree",
    "log_sum_exp",
    "mixture_model",
    "noisy_or_log_table",
    "noisy_or_model",
    "two_value_model",
]


def finite_difference(
    fun: Callable[[np.ndarray], np.ndarray], x: np.ndarray, step: float = 1e-4
) -> np.ndarray:
    """Central differences of ``fun``, shape ``fun(x).shape + x.shape``; infinite entries of x stay put."""
    x = np.asarray(x, float)
    columns = []
    for index in np.ndindex(x.shape):
        move = np.zeros_like(x)
        move[index] = step
        if math.isinf(x[index]):
            columns.append(np.zeros(np.shape(fun(x))))
        else:
            columns.append((np.asarray(fun(x + move)) - np.asarray(fun(x - move))) / (2 * step))
    return np.stack(columns, axis=-1).reshape(np.shape(columns[0]) + x.shape)
