"""A batch of forests with counts, what a pass finds, and how far it can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..structure.clusters import ClusterProgram
from .forest_arithmetic import UNIT_ROUNDOFF

Float64 = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ForestProblem:
    """A batch of models on one program.

    Attributes
    ----------
    score : (D, K)
        What each state of a vertex adds to the counts.
    log_leaf : (B, D, K)
    log_edge : (1 or B, E, K, K)
    tables : (1 or B, T)
        Packed log-tables; set s has counts 0..n at ``offset[s] : offset[s + 1]``.
    top_set : (D,)
        The largest set that holds a vertex, or -1.
    folded
        Sum of the magnitudes at which tables were added to others when the problem was made: there they were rounded.
    """

    program: ClusterProgram
    score: Ints
    log_leaf: Float64
    log_edge: Float64
    tables: Float64
    offset: Ints
    top_set: Ints
    folded: float = 0.0

    @property
    def n_states(self) -> int:
        return int(self.log_leaf.shape[2])


@dataclass(frozen=True, eq=False)
class ForestAnswer:
    """What a pass found, all in logarithms.

    Attributes
    ----------
    log_z : (B,)
    messages : (B, D, K)
        What the rest of the model says about a vertex, up to a constant.
    log_edges : (B, E, K, K)
        Edge marginals.
    log_counts : (B, T)
        Distributions of the counts of the sets.
    bound : (B,)
        Error of any log-odds.
    vanished : (B,)
        What may be missing from Z, or from any part of it, by underflow; relative to Z.
    """

    log_z: Float64
    messages: Float64
    log_edges: Float64
    log_counts: Float64
    bound: Float64
    vanished: Float64


def certificate(
    problem: ForestProblem, keep: float, log_z: Float64, messages: Float64, error: Float64, vanished: Float64
) -> Float64:
    """Bound on the error of any log-odds.

    From the error of the mass of any state relative to it, and from what may have vanished from Z: that much may be
    missing from the mass of any state, so it is compared with the smallest one.
    """
    rounding = rounding_error(problem, log_z, messages)
    if keep == 0.0:
        return np.where(np.isneginf(log_z), 0.0, rounding)
    # What a state would have that is excluded: its message counts too.
    weight = np.where(problem.log_leaf > -math.inf, problem.log_leaf, _tops(problem.log_leaf, (2,)))
    belief = weight + messages
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        own = np.where(problem.log_leaf > -math.inf, belief, -math.inf)
        rarest = (belief - _log_sum(own)).min(axis=(1, 2), initial=0.0)
        bound = 2.0 * error + rounding + 4.0 * vanished * np.exp(-rarest)
    # A zero may be an impossible state or an underflow; only logarithms can tell.
    sound = np.isfinite(bound) & np.isfinite(log_z) & np.isfinite(messages).all(axis=(1, 2))
    return np.where(sound, bound, math.inf)


def rounding_error(problem: ForestProblem, log_z: Float64, messages: Float64) -> Float64:
    """What rounding may do to log-odds, (B,).

    With the largest entry of every table taken out, no logarithm on the way to the sum over some configurations is
    beyond the logarithm of that sum, and each is rounded a few times per level.
    """
    taken_out = (
        _tops(problem.log_leaf, (2,)).sum(axis=(1, 2))
        + _tops(problem.log_edge, (2, 3)).sum(axis=(1, 2, 3))
        + _table_tops(problem).sum(axis=1)
    )
    odds = problem.log_leaf + messages
    with np.errstate(invalid="ignore"):
        odds = odds - odds.max(axis=2, keepdims=True, initial=-math.inf)
    largest = np.abs(np.where(np.isfinite(odds), odds, 0.0)).max(axis=(1, 2), initial=0.0)
    size = (
        problem.program.n_variables + np.abs(np.where(np.isfinite(log_z), log_z - taken_out, 0.0)) + largest
    )
    return np.asarray(UNIT_ROUNDOFF * (32.0 * problem.program.depth + 4.0 * size + 2.0 * problem.folded))


def folded_size(log_values: Float64) -> float:
    """The magnitude at which a table (..., n) was rounded when others were added to it; the largest of a batch."""
    top = log_values.max(axis=-1, initial=-math.inf)
    return float(np.abs(np.where(top == -math.inf, 0.0, top)).max(initial=0.0))


def _tops(log_values: Float64, axes: tuple[int, ...]) -> Float64:
    """The largest entry of every table, 0 where there is none; axes are kept."""
    top = log_values.max(axis=axes, keepdims=True, initial=-math.inf)
    return np.where(top == -math.inf, 0.0, top)


def _table_tops(problem: ForestProblem) -> Float64:
    if not problem.tables.shape[1]:
        return np.zeros((len(problem.tables), 1))
    top = np.maximum.reduceat(problem.tables, problem.offset[:-1], axis=1)
    return np.where(top == -math.inf, 0.0, top)


def _log_sum(values: Float64) -> Float64:
    """Over the states, (B, D, 1)."""
    top = _tops(values, (2,))
    return np.asarray(top + np.log(np.exp(values - top).sum(axis=2, keepdims=True)))
