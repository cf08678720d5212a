"""Kullback-Leibler divergence where one of two models has edges, or both have.

``KL(p || q) = log Z_q - E_p[log weight of q] - H(p)``. The expectations need P(y_d) of every variable, P(y_i, y_j) of
every edge of q and P(count) of every group of q under p. Where q excludes an outcome, the support of p decides.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64, Ints
from ..engine.divergence import ENOUGH, NOTHING, forest_divergence
from ..engine.forest import configurations
from ..engine.problem import ForestProblem

_ROUNDING = 2.0**-48  # of the numbers that a divergence is a difference of
_CERTAIN = 1e-9  # a difference of probabilities above this is not rounding


def divergence(law: Any, other: Any) -> Float64:
    """KL(law || other) over the same variables, (...)."""
    log_leaf, log_edge = other._solver.problem.log_leaf, other._solver.problem.log_edge
    beliefs, weights = _log_beliefs(law), shaped(log_leaf, other.batch_shape)
    total = _expected(np.exp(beliefs), weights, beliefs > -math.inf).sum(axis=-1)
    pairs = other._forest.pairs
    if len(pairs):
        total = total + _expected_edges(law, pairs, shaped(log_edge, other.batch_shape))
    total = total + _expected_tables(law, other)
    log_norm = np.reshape(other._solved.log_norm(), other.batch_shape)
    entropy = np.reshape(law._solved.entropy(), law.batch_shape)
    quick = np.asarray(np.maximum(log_norm - total - entropy, 0.0))  # rounding alone could make it negative
    with np.errstate(invalid="ignore"):
        size = np.abs(log_norm) + np.abs(total) + np.abs(entropy)
        lost = _ROUNDING * (1.0 + size) > np.maximum(ENOUGH * quick, NOTHING)
    if not (lost & np.isfinite(quick)).any():
        return quick
    common = _on_one_structure(law, other, quick.shape)
    if common is None:
        return quick
    found = forest_divergence(*common).reshape(quick.shape)
    return np.where(lost & np.isfinite(quick), found, quick)


def _on_one_structure(law: Any, other: Any, shape: tuple[int, ...]) -> list[ForestProblem] | None:
    """The problems of both with the groups of both, one row for each of the batch; None if edges or supports differ."""
    if not np.array_equal(law._forest.pairs, other._forest.pairs):
        return None
    tree = law._tree.with_groups(list(other._tree.groups))
    mine, theirs = [None] * law._tree.family.n_groups, [None] * other._tree.family.n_groups
    joint = [
        law._extended(tree, theirs)._solver.problem,
        other._moved(tree, [*mine, *other._params.potentials])._solver.problem,
    ]
    parts = []
    for problem, model in zip(joint, (law, other)):
        rows = np.broadcast_to(np.arange(len(problem)).reshape(model.batch_shape), shape).reshape(-1)
        parts.append(problem.take(rows))
    p, q = ((x.log_leaf, x.log_edge, x.full_tables) for x in parts)
    same = all(np.array_equal(a == -math.inf, b == -math.inf) for a, b in map(np.broadcast_arrays, p, q))
    return parts if same else None


def shaped(rows: Float64, batch_shape: tuple[int, ...]) -> Float64:
    """(1 or B, ...) with the batch axes in front, or with none if all models share it."""
    return rows[0] if len(rows) == 1 else rows.reshape(*batch_shape, *rows.shape[1:])


def _log_beliefs(law: Any) -> Float64:
    """Log P(y_d), (..., D, 2)."""
    odds = law._odds.reshape(*law.batch_shape, law.n_variables)
    return np.stack([-np.logaddexp(0.0, odds), -np.logaddexp(0.0, -odds)], axis=-1)


def _expected(probs: Float64, log_weights: Float64, support: NDArray[np.bool_]) -> Float64:
    """Sum of p log w over the last axis; -inf where something in the support has weight zero."""
    dead = log_weights == -math.inf
    terms = np.where(probs > 0.0, probs * np.where(dead, 0.0, log_weights), 0.0).sum(axis=-1)
    return np.asarray(np.where((support & dead).any(axis=-1), -math.inf, terms))


def _expected_edges(law: Any, pairs: Ints, tables: Float64) -> Float64:
    joint = _pair_probabilities(law, pairs)
    support = joint > _CERTAIN
    doubtful = (~support & (tables == -math.inf)).reshape(-1, *tables.shape[-3:]).any(axis=0)
    for e, a, b in np.argwhere(doubtful).tolist():
        possible = _allows(law._solver.problem, {int(pairs[e, 0]): a, int(pairs[e, 1]): b})
        support[..., e, a, b] = possible.reshape(law.batch_shape)
    flat = (*joint.shape[:-2], 4)
    weights = tables.reshape(*tables.shape[:-2], 4)
    return np.asarray(_expected(joint.reshape(flat), weights, support.reshape(flat)).sum(axis=-1))


def _expected_tables(law: Any, other: Any) -> Any:
    """E[log f] of the sets of `other`, whose groups are added to the law."""
    family, mine = other._tree.family, law._tree.family.n_groups
    if family.n_sets == 0:
        return 0.0
    joint = law._extended(law._tree.with_groups(list(other._tree.groups)), [None] * family.n_groups)
    offset = family.set_offset
    total: Any = 0.0
    for s in range(family.n_sets):
        group = mine + int(np.flatnonzero(family.set_of_group == s)[0])
        table = shaped(other._params.packed[:, offset[s] : offset[s + 1]], other.batch_shape)
        probs = np.exp(shaped(joint._counts(group), law.batch_shape))
        support = probs > 0.0
        if (~support & (table == -math.inf)).any():
            support = shaped(joint._max_counts(group), law.batch_shape) > -math.inf
        total = total + _expected(probs, table, support)
    return total


def _pair_probabilities(law: Any, pairs: Ints) -> Float64:
    """P(y_i, y_j) of any pairs, (..., E, 2, 2): edges are known, for others one inference per first variable."""
    own = {(i, j): e for e, (i, j) in enumerate(law._forest.pairs.tolist())}
    batch = law._odds.shape[0]
    out = np.zeros((batch, len(pairs), 2, 2))
    marginals = np.exp(_log_beliefs(law)).reshape(batch, law._odds.shape[1], 2)
    log_edges, others = law._solved.edge_log_probs(), []
    for e, (i, j) in enumerate(pairs.tolist()):
        if (i, j) in own:
            out[:, e] = np.exp(log_edges[:, own[i, j]])
        elif (j, i) in own:
            out[:, e] = np.exp(log_edges[:, own[j, i]]).swapaxes(1, 2)
        else:
            others.append(e)
    if others:
        first, second = pairs[others, 0], pairs[others, 1]
        rows, place = np.unique(first, return_inverse=True)
        both = law._solved.joint(rows)[:, place, second]
        out[:, others, 1, 1] = both
        out[:, others, 1, 0] = np.maximum(marginals[:, first, 1] - both, 0.0)
        out[:, others, 0, 1] = np.maximum(marginals[:, second, 1] - both, 0.0)
        out[:, others, 0, 0] = np.maximum(marginals[:, first, 0] - out[:, others, 0, 1], 0.0)
    return out.reshape(*law.batch_shape, len(pairs), 2, 2)


def _allows(problem: ForestProblem, evidence: dict[int, int]) -> NDArray[np.bool_]:
    """Whether some configuration with these values is possible, (B,)."""
    leaf = problem.log_leaf.copy()
    for v, value in evidence.items():
        leaf[:, v, 1 - value] = -math.inf
    return np.asarray(configurations.best(replace(problem, log_leaf=leaf))[1] > -math.inf)
