"""Derivatives of the expectations of a forest with counts from conditional models, one inference per variable.

Given y_i = 1 inference tells the marginals and the counts, so with P_i = P(y_i = 1) the covariances are

    Cov(y_i, y_j) = P_i (P(y_j | y_i = 1) - P_j),     Cov(y_i, 1[z = k]) = P_i (P(z = k | y_i = 1) - P(z = k)).

Slow, and right wherever inference is.
"""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64, Ints
from ..answer import Answer, Derivatives
from . import ladder
from .problem import ForestProblem
from .tangent import posterior_means

_CELLS = 1 << 18  # variables of conditional models that are solved together


def conditional_derivatives(problem: ForestProblem, answer: Answer, v: Float64, h: Float64) -> Derivatives:
    """Derivatives along v (R, B, D) and h (R, B, T); with several sets h must be zero."""
    means, probs = posterior_means(problem, answer), np.exp(answer.log_beliefs)
    marginals = np.zeros(v.shape)
    tables = np.broadcast_to(problem.tables, (len(means), problem.tables.shape[1]))
    pushed = np.where(tables == -math.inf, 0.0, h)
    counts = probs * (pushed - (probs * pushed).sum(-1, keepdims=True)) if h.any() else np.zeros(h.shape)
    room = max(1, _CELLS // max(1, means.shape[1]))
    for b in range(len(means)):
        moving = np.where(np.isfinite(problem.log_leaf[b]).all(axis=1), v[:, b], 0.0)
        possible = np.flatnonzero(means[b] > 0.0)
        for start in range(0, len(possible), room):
            part = possible[start : start + room]
            given, count = _given_on(problem, b, part)
            own = means[b, part, None]
            with_counts = own * (count - probs[b])
            marginals[:, b, part] = moving @ (own * (given - means[b])).T + pushed[:, b] @ with_counts.T
            counts[:, b] += moving[:, part] @ with_counts
    return Derivatives(marginals, counts)


def _given_on(problem: ForestProblem, b: int, rows: Ints) -> tuple[Float64, Float64]:
    """Marginals (P, D) and counts (P, T) given that one variable is on."""
    conditioned = problem.given(np.full(len(rows), b), rows, 1)
    found = ladder.infer(conditioned)
    return posterior_means(conditioned, found), np.exp(found.log_beliefs)
