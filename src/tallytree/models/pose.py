"""From the parameters of a binary model to the problem that the engine solves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .. import checks
from ..arrays import Float64, Ints
from ..engine import masks, thresholds
from ..engine.forest.certificate import folded_size
from ..engine.problem import ForestProblem, Problem
from ..structure.forest.structure import ForestStructure
from ..structure.nested.count_tree import CountTree
from ..structure.nested.family import NestedFamily
from .base import rows_of
from .edges import Forest
from .parameters import Parameters


def count_problem(params: Parameters, method: str) -> Problem:
    """Without edges."""
    leaves = params.leaves
    n = leaves.nu.shape[1]
    mixtures = {}
    if n > thresholds.DIRECT_LIMIT or method != "auto":
        mixtures = params.mixtures if thresholds.uses_mixtures(method, n) else {}
    family = params.tree.family
    apart = leaves.log_norm is None and len(family.set_parent) == len(family.set_of_group)
    folded = (
        0.0
        if apart
        else folded_sizes(family, family.set_offset, leaf_weights(params), params.packed, _largest)
    )
    return Problem(params.tree, leaves.nu, params.packed, mixtures, leaves.constant, leaves.log_norm, folded)


class UnmaskedEdges(NamedTuple):
    """Edge tables (..., E, 2, 2) with -inf for masks, and what that adds to all log-weights alike, (...)."""

    tables: Float64
    constant: Float64


def unmasked_edges(forest: Forest) -> UnmaskedEdges:
    """See :mod:`~tallytree.engine.masks`."""
    tables, constants = masks.resolve_tables(forest.log_tables, 2)
    return UnmaskedEdges(tables, np.asarray(constants.sum(axis=-1)))


def structure(tree: CountTree, forest: Forest) -> ForestStructure:
    """The groups of a tree on a forest; groups that do not fit are refused."""
    found = ForestStructure(forest.pairs, np.ones(tree.n_variables, np.int64), tree.family)
    if tree.family.n_sets:
        found.program  # noqa: B018 - refuses groups that do not fit
    return found


def forest_problem(params: Parameters, structure: ForestStructure, edges: UnmaskedEdges) -> ForestProblem:
    """With edges."""
    log_leaf = leaf_weights(params)
    log_edge = rows_of(edges.tables, params.batch_shape if edges.tables.ndim > 3 else (), 3)
    score = np.broadcast_to([0, 1], (params.tree.n_variables, 2))
    folded = folded_sizes(params.tree.family, structure.offset, log_leaf, params.packed)
    return ForestProblem(structure, score, log_leaf, log_edge, params.packed, folded)


def leaf_weights(params: Parameters) -> Float64:
    """Log-weights of the two states of every variable, (B, D, 2)."""
    near = params.unmasked
    logits = rows_of(np.asarray(near.logits, np.float64), params.batch_shape)
    forced = logits == math.inf
    log_leaf = np.stack([np.where(forced, -math.inf, 0.0), np.where(forced, 0.0, logits)], axis=-1)
    # Both entries of the table of a single variable: their difference alone would not carry their size.
    for g in params.tree.singleton_groups.tolist():
        log_leaf[:, int(params.tree.family.variable_of_group[g])] += near.rows(g)
    return log_leaf


def _largest(log_values: Float64) -> float:
    return float(np.abs(np.where(np.isfinite(log_values), log_values, 0.0)).max(initial=0.0))


def folded_sizes(
    family: NestedFamily,
    offset: Ints,
    log_leaf: Float64,
    packed: Float64,
    size: Callable[[Float64], float] = folded_size,
) -> float:
    """The magnitudes at which weights of variables (B, D, K) and tables of sets were rounded when tables were added."""
    alone = family.variable_of_group
    total = sum((size(log_leaf[:, v]) for v in np.unique(alone[alone >= 0]).tolist()), 0.0)
    shared = np.bincount(family.set_of_group[family.set_of_group >= 0], minlength=family.n_sets) > 1
    for s in np.flatnonzero(shared).tolist():
        total += size(packed[:, offset[s] : offset[s + 1]])
    return total


def stretched(values: Float64, forest: Forest) -> Float64:
    """Log-odds with the batch axes of the edges' tables too."""
    shape = checks.broadcast(values.shape[:-1], [("`edges`", forest.batch_shape)])
    return np.broadcast_to(values, (*shape, values.shape[-1]))
