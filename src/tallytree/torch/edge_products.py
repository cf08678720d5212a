"""Statistics of models with edges, and products with their covariance matrix.

For the indicator 1_e of both ends of an edge being on, and any statistic s,

    Cov(1_e, s) = P(1_e) (E[s | 1_e] - E[s]),

so that whatever concerns edges comes from expectations of models in which both ends are forced on, one per edge. A
table t(a, b) of an edge is ``t00 + (t10 - t00) a + (t01 - t00) b + (t11 - t10 - t01 + t00) a b``: all but the last term
belongs to the log-odds.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..models.count import CountModel
from .edges import EdgedStructure

_ROOM = 1 << 22  # entries of log-odds that go into one batch of conditional models


class Statistics(NamedTuple):
    """Expectations, rows of (R, D), (R, T) and, of both ends on, (R, E)."""

    variables: Any
    counts: Any
    both: Any

    def along(self, direction: Statistics, row: Any) -> Any:
        """Their combination with the direction of every row's model, (R,)."""
        return sum((own * part[row]).sum(-1) for own, part in zip(self, direction))


def all_statistics(model: CountModel, shape: tuple[int, ...]) -> Any:
    """Probabilities of counts and of pairs of states, packed, (*shape, T + 4 E)."""
    found = model.expected_statistics
    edges = np.broadcast_to(model.edge_marginals, (*shape, *model.edge_marginals.shape[-3:]))
    return np.concatenate([np.empty((*shape, 0)), *found.tables, edges.reshape(*shape, -1)], axis=-1)


def hessian_product(
    structure: EdgedStructure, model: CountModel, given: tuple[Any, Any], v: Any, h: Any, counts: bool
) -> tuple[Any, Any]:
    """The Hessian of log Z times v (B, D) and h (B, T + 4 E) or None, at the model of given log-odds and tables."""
    pairs, cells = structure.frame.pairs, structure.n_group_cells
    batch = len(v)
    push = np.zeros((batch, cells)) if h is None else h[:, :cells]
    bend = np.zeros((batch, len(pairs)))
    if h is not None:
        t = h[:, cells:].reshape(batch, -1, 2, 2)
        v = v.copy()
        for end, state in ((0, t[:, :, 1, 0]), (1, t[:, :, 0, 1])):
            np.add.at(v.T, pairs[:, end], (state - t[:, :, 0, 0]).T)
        bend = t[:, :, 1, 1] - t[:, :, 1, 0] - t[:, :, 0, 1] + t[:, :, 0, 0]
    v = np.where(np.isfinite(given[0]), v, 0.0)
    moved = model.hessian_vector_product(v, push if cells else None, counts=counts)
    change = np.array(moved.logits)
    change_counts = np.concatenate([np.empty((batch, 0)), *moved.tables], axis=-1) if counts else None
    if not counts and not bend.any():
        return change, np.empty((batch, 0))
    mean = _expectations(model, batch)
    both = np.zeros_like(mean.both)
    direction = Statistics(v, push, bend)
    for row, edge, found in _conditional(structure, given, mean.both, bend, counts):
        weight = mean.both[row, edge]
        both[row, edge] = weight * (found.along(direction, row) - mean_along(mean, direction)[row])
        share = (weight * bend[row, edge])[:, None]
        np.add.at(change, row, share * (found.variables - mean.variables[row]))
        if change_counts is not None:
            np.add.at(change_counts, row, share * (found.counts - mean.counts[row]))
    if change_counts is None:
        return change, np.empty((batch, 0))
    one, other = change[:, pairs[:, 0]], change[:, pairs[:, 1]]
    edges = np.stack([both - one - other, other - both, one - both, both], axis=-1)
    return change, np.concatenate([change_counts, edges.reshape(batch, -1)], axis=-1)


def mean_along(mean: Statistics, direction: Statistics) -> Any:
    """E[direction . statistics] of every model, (B,)."""
    return mean.along(direction, slice(None))


def _expectations(model: CountModel, batch: int) -> Statistics:
    found = model.expected_statistics
    counts = np.concatenate([np.empty((batch, 0)), *found.tables], axis=-1)
    both = np.broadcast_to(model.edge_marginals[..., 1, 1], (batch, model.edge_marginals.shape[-3]))
    return Statistics(np.asarray(found.logits), counts, both)


def _conditional(
    structure: EdgedStructure, given: tuple[Any, Any], both: Any, bend: Any, counts: bool
) -> Any:
    """Model numbers, edges, and expectations given that both ends are on; in batches that fit into memory."""
    logits, tables = given
    pairs = structure.frame.pairs
    rows, edges = np.nonzero((both > 0.0) & (counts | (bend != 0.0)))
    room = max(1, _ROOM // max(1, logits.shape[-1]))
    for start in range(0, len(rows), room):
        row, edge = rows[start : start + room], edges[start : start + room]
        forced = logits[row]
        place = np.arange(len(row))
        forced[place, pairs[edge, 0]] = forced[place, pairs[edge, 1]] = math.inf
        model = structure.model(forced, tables if tables is None or tables.ndim == 1 else tables[row])
        yield row, edge, _expectations(model, len(row))
