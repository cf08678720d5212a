"""Forests without counts: ordinary belief propagation, one vertex after the other."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import config
from ..structure import top_tree
from .forest_arithmetic import UNIT_ROUNDOFF
from .forest_problem import ForestAnswer, ForestProblem

Float64 = NDArray[np.float64]
Ints = NDArray[np.int64]
Rooting = tuple[NDArray[Any], ...]


def rooting(n: int, pairs: Ints) -> Rooting:
    """Order, parent, edge and flip of a rooted forest, as the compiled engine wants them."""
    return top_tree.compiled_rooting(n, pairs)


def means(rooted: Rooting, log_leaf: Float64, log_edge: Float64) -> Float64 | None:
    """Marginals (B, D, K), or None without the compiled engine."""
    engine = config.native()
    if engine is None or not hasattr(engine, "forest_means"):
        return None
    with np.errstate(all="ignore"):
        leaf, _ = _scaled(log_leaf, (2,))
        edges, _ = _scaled(log_edge, (2, 3))
    return np.asarray(engine.forest_means(*rooted, leaf, edges)[0])


def balanced(problem: ForestProblem) -> tuple[ForestProblem, Float64 | float]:
    """The same models with what children say moved into the weights, and what that adds to the weights.

    A vertex with many neighbours may have a state of probability e^-1000; in plain numbers its products would
    underflow.
    """
    engine = config.native()
    if engine is None or not hasattr(engine, "forest_gauge") or problem.log_edge.shape[1] == 0:
        return problem, 0.0
    rooted = problem.program.rooting
    log_leaf = np.ascontiguousarray(problem.log_leaf)
    leaf, edges = engine.forest_gauge(*rooted, log_leaf, np.ascontiguousarray(problem.log_edge))
    with np.errstate(invalid="ignore"):
        shift = np.where(log_leaf == leaf, 0.0, leaf - log_leaf)
    return replace(problem, log_leaf=leaf, log_edge=edges), shift


def propagate(
    rooted: Rooting, log_leaf: Float64, log_edge: Float64, folded: float = 0.0
) -> ForestAnswer | None:
    """All answers of a forest without counts; None where the compiled engine is absent or meets zeros.

    `folded` is as in :class:`ForestProblem`.
    """
    engine = config.native()
    if engine is None or not hasattr(engine, "forest_means"):
        return None
    with np.errstate(all="ignore"):
        leaf, leaf_top = _scaled(log_leaf, (2,))
        edges, edge_top = _scaled(log_edge, (2, 3))
    _, log_z, messages, log_edges, sound = engine.forest_means(*rooted, leaf, edges, True)
    if not np.all(sound):
        return None
    # Rounding: a few operations per vertex, and the logarithms that were exponentiated along any configuration.
    size = np.abs(messages).max(axis=(1, 2), initial=0.0) + np.abs(log_z) + log_leaf.shape[1]
    with np.errstate(invalid="ignore"):
        apart = np.where(leaf > 0, np.abs(log_leaf - leaf_top), 0.0).max(axis=(1, 2), initial=0.0)
    bound = UNIT_ROUNDOFF * (64.0 + 4.0 * (size + apart) + 2.0 * folded)
    log_z = log_z + leaf_top.sum(axis=(1, 2)) + edge_top.sum(axis=(1, 2, 3))
    return ForestAnswer(log_z, messages, log_edges, np.zeros((len(log_z), 0)), bound, np.zeros(len(log_z)))


def _scaled(log_values: Float64, axes: tuple[int, ...]) -> tuple[Float64, Float64]:
    """Plain numbers, the largest of every table 1, and the logarithms taken out."""
    top = log_values.max(axis=axes, keepdims=True, initial=-math.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    return np.ascontiguousarray(np.exp(log_values - top)), top
