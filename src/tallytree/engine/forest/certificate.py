"""How far the answers of a pass over a forest with counts can be trusted."""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64
from ..arithmetic import UNIT_ROUNDOFF
from ..log_sums import anchor, log_sum
from ..problem import ForestProblem


def certificate(
    problem: ForestProblem, keep: float, log_z: Float64, messages: Float64, error: Float64, vanished: Float64
) -> Float64:
    """Bound on the error of any log-odds but for the noise of transforms; none where `error` is not a number.

    From what may have vanished from Z: that much may be missing from the mass of any state, so it is compared with the
    smallest one.
    """
    rounding = rounding_error(problem, log_z, messages)
    if keep == 0.0:
        certain = np.where(np.isneginf(log_z), 0.0, rounding)
        return np.where(error <= 1.0, certain + 2.0 * error, math.inf)
    # What a state would have that is excluded: its message counts too.
    weight = np.where(problem.log_leaf > -math.inf, problem.log_leaf, anchor(problem.log_leaf, 2))
    belief = weight + messages
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        own = np.where(problem.log_leaf > -math.inf, belief, -math.inf)
        rarest = (belief - log_sum(own, keepdims=True)).min(axis=(1, 2), initial=0.0)
        bound = rounding + 4.0 * vanished * np.exp(-rarest)
    # A zero may be an impossible state or an underflow; only logarithms can tell.
    sound = (
        np.isfinite(bound) & np.isfinite(error) & np.isfinite(log_z) & np.isfinite(messages).all(axis=(1, 2))
    )
    return np.where(sound, bound, math.inf)


def rounding_error(problem: ForestProblem, log_z: Float64, messages: Float64) -> Float64:
    """What rounding may do to log-odds, (B,).

    With the largest entry of every table taken out, no logarithm on the way to the sum over some configurations is
    beyond the logarithm of that sum, and each is rounded a few times per level.
    """
    taken_out = sum(top.sum(axis=1) for top in largest_entries(problem))
    odds = problem.log_leaf + messages
    with np.errstate(invalid="ignore"):
        odds = odds - odds.max(axis=2, keepdims=True, initial=-math.inf)
    largest = np.abs(np.where(np.isfinite(odds), odds, 0.0)).max(axis=(1, 2), initial=0.0)
    size = (
        problem.program.n_variables + np.abs(np.where(np.isfinite(log_z), log_z - taken_out, 0.0)) + largest
    )
    return np.asarray(UNIT_ROUNDOFF * (32.0 * problem.program.depth + 4.0 * size + 2.0 * problem.folded))


def largest_entries(problem: ForestProblem) -> tuple[Float64, Float64, Float64]:
    """Of the weights of every vertex (B, D), of every edge (1 or B, E) and of the table of every set (1 or B, S)."""
    leaf, edge = anchor(problem.log_leaf, 2), anchor(problem.log_edge, (2, 3))
    return leaf[:, :, 0], edge[:, :, 0, 0], table_tops(problem)


def folded_size(log_values: Float64) -> float:
    """The magnitude at which a table (..., n) was rounded when others were added to it; the largest of a batch."""
    return float(np.abs(anchor(log_values)).max(initial=0.0))


def table_tops(problem: ForestProblem) -> Float64:
    """The largest entry of the table of every set, (1 or B, n_sets); 0 where there is none."""
    if not problem.tables.shape[1]:
        return np.zeros((len(problem.tables), 0))
    top = np.maximum.reduceat(problem.tables, problem.offset[:-1], axis=1)
    return np.where(top == -math.inf, 0.0, top)


def log_odds(log_weights: Float64) -> Float64:
    """Of the second state against the first, (..., 2) to (...); 0 where both are impossible."""
    on, off = log_weights[..., 1], log_weights[..., 0]
    same = on == off  # also where both are -inf
    return np.asarray(np.where(same, 0.0, on - np.where(same, 0.0, off)))
