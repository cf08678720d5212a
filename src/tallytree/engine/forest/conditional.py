"""Derivatives of the expectations of a forest with counts from conditional models, one inference per variable.

Given y_i = 1 inference tells the marginals and the counts, so with P_i = P(y_i = 1) the covariances are

    Cov(y_i, y_j) = P_i (P(y_j | y_i = 1) - P_j),     Cov(y_i, 1[z = k]) = P_i (P(z = k | y_i = 1) - P(z = k)).

Where the tables of several sets move, one inference given each count whose entry does tells the same of two counts.
Slow, and right wherever inference is.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...arrays import Float64, Ints
from ..answer import Answer, Derivatives
from . import ladder
from .problem import ForestProblem
from .tangent import posterior_means

_CELLS = 1 << 18  # variables of conditional models that are solved together


def conditional_derivatives(problem: ForestProblem, answer: Answer, v: Float64, h: Float64) -> Derivatives:
    """Derivatives along v (R, B, D) and h (R, B, T)."""
    means, probs = posterior_means(problem, answer), np.exp(answer.log_beliefs)
    marginals = np.zeros(v.shape)
    tables = np.broadcast_to(problem.tables, (len(means), problem.tables.shape[1]))
    pushed = np.where(tables == -math.inf, 0.0, h)
    counts = np.zeros(h.shape)
    if len(problem.offset) == 2:
        counts = probs * (pushed - (probs * pushed).sum(-1, keepdims=True))
    elif h.any():
        for b in range(len(means)):
            counts[:, b] = _moved_by_tables(problem, b, probs[b], pushed[:, b])
    room = max(1, _CELLS // max(1, means.shape[1]))
    moving = np.where(np.isfinite(problem.log_leaf).all(axis=2), v, 0.0)
    model, place = np.nonzero(means > 0.0)
    for start in range(0, len(model), room):
        rows, variables = model[start : start + room], place[start : start + room]
        given, count = _given_on(problem, rows, variables)
        own = means[rows, variables, None]
        with_means, with_counts = own * (given - means[rows]), own * (count - probs[rows])
        for b in np.unique(rows).tolist():
            here = rows == b
            part, own_counts = variables[here], with_counts[here]
            marginals[:, b, part] = moving[:, b] @ with_means[here].T + pushed[:, b] @ own_counts.T
            counts[:, b] += moving[:, b, part] @ own_counts
    return Derivatives(marginals, counts)


def _given_on(problem: ForestProblem, b: Ints, rows: Ints) -> tuple[Float64, Float64]:
    """Marginals (P, D) and counts (P, T), each given that one variable of one model is on."""
    conditioned = problem.given(b, rows, 1)
    found = ladder.infer(conditioned)
    return posterior_means(conditioned, found), np.exp(found.log_beliefs)


def _moved_by_tables(problem: ForestProblem, b: int, probs: Float64, pushed: Float64) -> Float64:
    """Sum over the entries c of h_c Cov(1[c], 1[c']), (R, T): every count given each count whose table entry moves."""
    out = np.zeros(pushed.shape)
    moving = np.flatnonzero((probs > 0.0) & (pushed != 0.0).any(axis=0))
    room = max(1, _CELLS // max(1, problem.program.n_variables))
    owner = np.repeat(np.arange(len(problem.offset) - 1), np.diff(problem.offset))
    for start in range(0, len(moving), room):
        part = moving[start : start + room]
        one = problem.take(np.full(len(part), b))
        tables = np.broadcast_to(one.tables, (len(part), len(probs))).copy()
        tables[(owner == owner[part][:, None]) & (np.arange(len(probs)) != part[:, None])] = -math.inf
        given = np.exp(np.asarray(ladder.infer(replace(one, tables=tables)).log_beliefs))
        out += (pushed[:, part] * probs[part]) @ (given - probs)
    return out
