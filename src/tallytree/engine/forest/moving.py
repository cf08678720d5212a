"""Derivatives of the expectations of any forest with counts: both passes in numbers that carry their derivatives.

A number is ``log w + i d``, d the derivative of ``log w`` along a direction. Products add both parts; a sum over
alternatives of weights w_j has ``d = sum_j p_j d_j``, ``p_j = w_j / sum w``: a mean, in which nothing is amplified. The
direction is centred at the posterior, so that d is of the size of its fluctuations. Scales are constants. Cost: one
inference in logarithms for each direction, whatever the number of sets, states and edges.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Float64, Ints
from ..answer import Answer
from ..problem import ForestProblem
from .arithmetic import Carried
from .sum_product import ForestPass
from .values import Chunk


class Direction(NamedTuple):
    """A direction, or derivatives along one: of weights (B, D, K), of edges (B, E, K, K), of counts (B, T)."""

    leaf: Float64
    edge: Float64
    tables: Float64


class _MovingPass(ForestPass):
    """Both passes along one direction; reads the derivatives where the pass reads the values."""

    def __init__(self, problem: ForestProblem, direction: Direction) -> None:
        super().__init__(problem, Carried())
        self.direction = direction
        batch = len(problem)
        self.edges = np.array(np.broadcast_to(self.edges, (batch, *self.edges.shape[1:])))
        self.edges[:, :-1] += 1j * direction.edge
        self.edge_top = np.broadcast_to(self.edge_top, (batch, self.edge_top.shape[1]))
        self.moved = Direction(*(np.zeros(part.shape) for part in direction))

    def _leaf_values(self, log_weight: Float64, chunk: Chunk, vertex: Ints) -> Any:
        return log_weight + 1j * self.direction.leaf[chunk.batch, vertex]

    def _table_values(self, log_values: Float64, chunk: Chunk, place: Ints, inside: Any) -> Any:
        pushed = self.direction.tables[chunk.batch, np.where(inside, place, 0)]
        return log_values + 1j * np.where(inside, pushed, 0.0)

    def _take_messages(self, chunk: Chunk, vertex: Ints, g: Any) -> None:
        super()._take_messages(chunk, vertex, g)
        self.moved.leaf[chunk.batch, vertex] = g.imag

    def _take_counts(self, batch: Ints, place: Ints, inside: Any, belief: Any) -> None:
        super()._take_counts(batch, place, inside, belief)
        self.moved.tables[batch[inside], place[inside]] = belief.imag[inside]

    def _take_pairs(self, batch: Ints, edge: Ints, pair: Any) -> None:
        super()._take_pairs(batch, edge, pair)
        self.moved.edge[batch, edge] = pair.imag


def moving_derivatives(problem: ForestProblem, answer: Answer, direction: Direction) -> Direction:
    """Derivatives of P(state), P(pair of states) and P(count) along a direction; `answer` is what inference found.

    Entries of the direction at weights of -inf have no effect; all others must be finite.
    """
    means = _expectations(problem, answer)
    centred = Direction(
        _centred(direction.leaf, means.leaf, problem.log_leaf, (2,)),
        _centred(direction.edge, means.edge, problem.log_edge, (2, 3)),
        _centred_tables(direction.tables, means.tables, problem.tables, problem.offset),
    )
    with np.errstate(all="ignore"):
        found = _MovingPass(problem, centred)
        found.upward()
        found.downward()
    return Direction(
        _weighed(means.leaf, found.moved.leaf + centred.leaf, (2,)),
        _weighed(means.edge, found.moved.edge, (2, 3)),
        _weighed_tables(means.tables, found.moved.tables, problem.offset),
    )


def _expectations(problem: ForestProblem, answer: Answer) -> Direction:
    """P(state), P(pair of states) and P(count), normalised."""

    def normalised(log_weights: Float64, axes: tuple[int, ...]) -> Float64:
        top = log_weights.max(axis=axes, keepdims=True, initial=-math.inf)
        weight = np.exp(log_weights - np.where(np.isfinite(top), top, 0.0))
        total = weight.sum(axis=axes, keepdims=True)
        return np.asarray(weight / np.where(total > 0.0, total, 1.0))

    counts = np.zeros((len(problem), 0)) if answer.log_beliefs is None else np.exp(answer.log_beliefs)
    return Direction(
        normalised(problem.log_leaf + answer.messages, (2,)), normalised(answer.log_edges, (2, 3)), counts
    )


def _centred(move: Float64, probs: Float64, log_values: Float64, axes: tuple[int, ...]) -> Float64:
    alive = np.where(log_values == -math.inf, 0.0, move)
    return np.where(log_values == -math.inf, 0.0, alive - (probs * alive).sum(axis=axes, keepdims=True))


def _centred_tables(move: Float64, probs: Float64, tables: Float64, offset: Ints) -> Float64:
    alive = np.where(tables == -math.inf, 0.0, move)
    return np.where(tables == -math.inf, 0.0, alive - _set_means(probs * alive, offset))


def _weighed(probs: Float64, change: Float64, axes: tuple[int, ...]) -> Float64:
    """D p from d log p up to a constant."""
    seen = np.where(probs > 0.0, change, 0.0)
    return np.asarray(probs * (seen - (probs * seen).sum(axis=axes, keepdims=True)))


def _weighed_tables(probs: Float64, change: Float64, offset: Ints) -> Float64:
    seen = np.where(probs > 0.0, change, 0.0)
    return np.asarray(probs * (seen - _set_means(probs * seen, offset)))


def _set_means(terms: Float64, offset: Ints) -> Float64:
    """Sums over every set, spread over its counts."""
    if len(offset) < 2:
        return np.zeros_like(terms)
    return np.repeat(np.add.reduceat(terms, offset[:-1], axis=1), np.diff(offset), axis=1)
