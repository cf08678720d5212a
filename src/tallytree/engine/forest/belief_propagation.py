"""Forests without counts: ordinary belief propagation, one vertex after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64
from .. import native
from ..answer import Answer
from ..arithmetic import ARITHMETICS, UNIT_ROUNDOFF, Direct
from ..log_sums import anchor
from ..problem import ForestProblem

Rooting = tuple[NDArray[Any], ...]


def means(rooted: Rooting, log_leaf: Float64, log_edge: Float64) -> Float64 | None:
    """Marginals (B, D, K), or None without the compiled engine."""
    if not native.present():
        return None
    with np.errstate(all="ignore"):
        leaf, _ = scaled(log_leaf, (2,))
        edges, _ = scaled(log_edge, (2, 3))
    return np.asarray(native.forest_means(rooted, leaf, edges)[0])


def reparametrised(problem: ForestProblem) -> tuple[ForestProblem, Float64 | float]:
    """The same models with what children say moved into the weights, and what that adds to the weights.

    A vertex with many neighbours may have a state of probability e^-1000; in plain numbers its products would
    underflow.
    """
    if not native.present() or problem.log_edge.shape[1] == 0:
        return problem, 0.0
    log_leaf, log_edge = np.ascontiguousarray(problem.log_leaf), np.ascontiguousarray(problem.log_edge)
    leaf, edges, moved = native.forest_gauge(problem.structure.rooting, log_leaf, log_edge)
    return replace(problem, log_leaf=leaf, log_edge=edges), moved


def propagate(problem: ForestProblem) -> Answer | None:
    """All answers of a forest without counts; None where the compiled engine is absent or meets zeros."""
    if not native.present():
        return None
    log_leaf, log_edge = problem.log_leaf, problem.log_edge
    with np.errstate(all="ignore"):
        leaf, leaf_top = scaled(log_leaf, (2,))
        edges, edge_top = scaled(log_edge, (2, 3))
    _, log_z, messages, log_edges, sound = native.forest_means(problem.structure.rooting, leaf, edges, True)
    if not np.all(sound):
        return None
    # Rounding: a few operations per vertex, and the logarithms that were exponentiated along any configuration.
    size = np.abs(messages).max(axis=(1, 2), initial=0.0) + np.abs(log_z) + log_leaf.shape[1]
    with np.errstate(invalid="ignore"):
        apart = np.where(leaf > 0, np.abs(log_leaf - leaf_top), 0.0).max(axis=(1, 2), initial=0.0)
    bound = UNIT_ROUNDOFF * (64.0 + 4.0 * (size + apart) + 2.0 * problem.folded)
    log_z = log_z + leaf_top.sum(axis=(1, 2)) + edge_top.sum(axis=(1, 2, 3))
    nothing = np.zeros((len(log_z), 0))
    return Answer(
        log_z, messages, nothing, bound, log_edges=log_edges, vanished=np.zeros(len(log_z)), tilts=nothing,
        arithmetic=np.full(len(log_z), ARITHMETICS.index(Direct)),
    )  # fmt: skip


def scaled(log_values: Float64, axes: tuple[int, ...]) -> tuple[Float64, Float64]:
    """Plain numbers, the largest of every table 1, and the logarithms taken out."""
    top = anchor(log_values, axes)
    return np.ascontiguousarray(np.exp(log_values - top)), top
