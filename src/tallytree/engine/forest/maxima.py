"""Best configurations and max-marginals with edges: (max, +) over the clusters, by either engine.

That takes time quadratic in the counts, so models with large counts are tried with bounds first (:mod:`.bounded`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64, Ints
from .. import native
from ..log_sums import anchor
from ..problem import ForestProblem
from .arithmetic import MaxPlus
from .certificate import table_tops
from .dual import set_counts
from .sum_product import ForestPass
from .walk import Walk


@dataclass(frozen=True, eq=False)
class Maxima:
    """What one call of the engine gives; arrays that were not asked for are empty.

    Attributes
    ----------
    values : (B,)
        Best log-weights.
    known : (B,)
        Whether the engine got there.
    states : (B, D)
    beliefs : (B, D, K)
        Best log-weight with every vertex in every state.
    counts : (B, T)
        Best log-weight for every count of every set.
    """

    values: Float64
    known: NDArray[np.bool_]
    states: Ints
    beliefs: Float64
    counts: Float64


def solve(
    problem: ForestProblem, *, states: bool = False, counts: bool = False, slack: Float64 | None = None
) -> Maxima:
    """A best configuration if `states`, otherwise the beliefs, and those of counts if asked for.

    `slack` (B,): by how much the optimum is expected to fall short of the bound without counts. With it the engine
    leaves out what cannot reach the optimum, and gives up if that does not help.
    """
    if not native.present():
        return _by_arrays(problem, states=states)
    even, constant = normalised(problem)
    expected = np.full(len(problem), math.inf) if slack is None else slack
    values, known, found, messages, by_count = native.cluster_maxima(
        even, expected, slack is not None, states, counts
    )
    if states:
        found, messages = found.reshape(problem.log_leaf.shape[:2]), np.zeros((0, 0, 0))
    else:
        messages = below_top(even.log_leaf + messages) + (values + constant)[:, None, None]
    return Maxima(values + constant, known, found, messages, by_count + constant[: len(by_count), None])


def _by_arrays(problem: ForestProblem, *, states: bool) -> Maxima:
    passes = ForestPass(problem, MaxPlus())
    values = passes.upward()
    nothing, known = np.zeros((0, 0)), np.ones(len(values), bool)
    if states:
        return Maxima(values, known, Walk(passes, 1, None).run()[0], nothing[None], nothing)
    found = passes.downward()
    beliefs = below_top(problem.log_leaf + found.messages) + values[:, None, None]
    counts = found.log_beliefs + values[:, None]
    return Maxima(values, known, np.zeros((0, 0), np.int64), beliefs, counts)


def below_top(log_weights: Float64) -> Float64:
    """Differences to the largest along the last axis; -inf where all are."""
    top = log_weights.max(axis=-1, keepdims=True)
    return np.asarray(log_weights - np.where(top == -math.inf, 0.0, top))


def log_weights(problem: ForestProblem, states: Ints) -> Float64:
    """Of configurations (B, D)."""
    rows = np.arange(len(states))[:, None]
    total = problem.log_leaf[rows, np.arange(states.shape[1]), states].sum(-1)
    pairs = problem.structure.pairs
    if len(pairs):
        which = rows if len(problem.log_edge) > 1 else 0
        ends = states[:, pairs[:, 0]], states[:, pairs[:, 1]]
        total = total + problem.log_edge[which, np.arange(len(pairs)), *ends].sum(-1)
    if len(problem.offset) > 1 and len(states):
        counts = np.stack([set_counts(problem, y) for y in states])
        which = rows if len(problem.tables) > 1 else 0
        total = total + problem.tables[which, problem.offset[:-1] + counts].sum(-1)
    return np.asarray(total)


def normalised(problem: ForestProblem) -> tuple[ForestProblem, Float64]:
    """Largest entries 0, for the engine's bound on rounding errors, and what was taken out, (B,)."""
    leaf_top, edge_top, table_top = (
        anchor(problem.log_leaf, 2),
        anchor(problem.log_edge, (2, 3)),
        table_tops(problem),
    )
    even = replace(
        problem,
        log_leaf=problem.log_leaf - leaf_top,
        log_edge=problem.log_edge - edge_top,
        tables=problem.tables - np.repeat(table_top, np.diff(problem.offset), axis=1),
    )
    return even, leaf_top.sum(axis=(1, 2)) + edge_top.sum(axis=(1, 2, 3)) + table_top.sum(axis=1)
