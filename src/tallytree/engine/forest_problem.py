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
    """

    program: ClusterProgram
    score: Ints
    log_leaf: Float64
    log_edge: Float64
    tables: Float64
    offset: Ints

    top_set: Ints  # the largest set that holds a vertex, or -1

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
    """

    log_z: Float64
    messages: Float64
    log_edges: Float64
    log_counts: Float64
    bound: Float64


def certificate(
    problem: ForestProblem, keep: float, log_z: Float64, messages: Float64, error: Float64
) -> Float64:
    """Bound on the error of any log-odds, from the error of the mass of any state relative to it.

    Errors are relative to the mass of each state, so an improbable state is as accurate as a probable one.
    """
    depth, largest = problem.program.depth, np.abs(log_z)
    rounding = UNIT_ROUNDOFF * (32.0 * depth + 4.0 * largest)
    if keep == 0.0:
        return np.where(np.isneginf(log_z), 0.0, rounding * (1.0 + largest / (1.0 + depth)))
    bound = 2.0 * error + rounding
    # A zero may be an impossible state or an underflow; only logarithms can tell.
    possible = problem.log_leaf > -math.inf
    sound = np.isfinite(bound) & np.isfinite(log_z)
    sound &= np.isfinite(np.where(possible, messages, 0.0)).all(axis=(1, 2))
    return np.where(sound, bound, math.inf)
