"""Multipliers for the counts of a forest: the tightest linear upper bounds of its potentials.

For any multipliers, one per set, the best weight is at most::

    U(m) = max_y [ score(y) + sum_s m_s |y_s| ]  +  sum_s max_k [ log f_s(k) - m_s k ]

a convex function: max-product on the forest without counts, and one maximum per table. Its slope along m_s is the count
of the best y less the best k. How close the least U comes to the optimum decides how little has to be computed to find
that; the optimum itself never depends on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...arrays import Float64, Ints
from .. import native
from ..problem import ForestProblem

_STEPS = 64  # evaluations of the bound for one set
_STEPS_OF_MANY = 96
_FARTHEST = 2.0**40  # multipliers beyond this would only lose digits
_ROUNDOFF = 2.0**-53


@dataclass(frozen=True)
class Dual:
    """Multipliers (n_sets,), their bound, and by how much the optimum is expected to fall short of it."""

    multipliers: Float64
    bound: float
    slack: float


class _Bound:
    """U of one model (a batch of one) and its slopes; remembers the best of each bound."""

    def __init__(self, problem: ForestProblem) -> None:
        family = problem.structure.family
        self._problem, self._start, self._stop, self._order = problem, family.start, family.stop, family.order
        self._leaf, self._edge = problem.log_leaf[0], np.ascontiguousarray(problem.log_edge[0])
        self._tables, self._offset = problem.tables[0], problem.offset
        self._length = np.diff(self._offset)
        self._count = np.arange(len(self._tables)) - np.repeat(self._offset[:-1], self._length)
        self.lower, self.upper = -math.inf, math.inf
        self.at = np.zeros(len(self._length))

    def __call__(self, m: Float64) -> tuple[float, Float64]:
        leaf = self._leaf + vertex_multipliers(self._problem, m)[:, None] * self._problem.score
        value, states = native.forest_best(
            self._problem.structure.rooting, np.ascontiguousarray(leaf), self._edge
        )
        counts = set_counts(self._problem, states)
        tilted = self._tables - np.repeat(m, self._length) * self._count
        tops = np.maximum.reduceat(tilted, self._offset[:-1])
        reached = np.flatnonzero(tilted == np.repeat(tops, self._length))
        owner = np.searchsorted(self._offset, reached, side="right") - 1
        best = np.zeros(len(counts), np.int64)
        best[owner[::-1]] = self._count[reached[::-1]]  # the first of each
        upper = float(value + tops.sum())
        lower = float(value - m @ counts + self._tables[self._offset[:-1] + counts].sum())
        self.lower = max(self.lower, lower)
        if upper < self.upper:
            self.upper, self.at = upper, m
        return upper, (counts - best).astype(np.float64)


def dual(problem: ForestProblem) -> Dual:
    """Multipliers with a small bound for one model; zeros where the model is impossible without counts."""
    bound = _Bound(problem)
    start = np.zeros(len(problem.offset) - 1)
    upper, slope = bound(start)
    if math.isfinite(upper) and slope.any():
        if len(start) == 1:
            if not _one_set(bound, upper, float(slope[0])):
                return Dual(start, upper, math.inf)
        else:
            _many_sets(bound, start, upper, slope)
    odds = problem.log_leaf[0].max(axis=1) - problem.log_leaf[0].min(axis=1)
    finite = odds[np.isfinite(odds)]
    # Moving a count by one costs about the smallest of D log-odds that lie within their usual size.
    spacing = 4.0 * float(finite.mean()) / len(finite) if len(finite) else 0.0
    short = bound.upper - bound.lower
    return Dual(bound.at, bound.upper, min(spacing, short) if math.isfinite(short) else spacing)


def _one_set(bound: _Bound, upper: float, slope: float) -> bool:
    """Least U along a line: tangents at both sides of the least, the next point where they meet, or half way.

    False if it falls for ever: then no configuration has a count that the table allows.
    """

    def at(x: float) -> tuple[float, float, float]:
        value, g = bound(np.array([x]))
        return x, value, float(g[0])

    left = right = (0.0, upper, slope)
    step = -math.copysign(1.0, slope)
    while abs(step) < _FARTHEST:
        point = at(step)
        if point[2] == 0.0:
            return True
        if point[2] * slope < 0.0:
            left, right = (point, right) if slope > 0.0 else (left, point)
            break
        left = right = point
        step *= 2.0
    else:
        return False
    for number in range(_STEPS):
        (x, u, g), (y, v, h) = left, right
        if not y - x > 4.0 * _ROUNDOFF * (abs(x) + abs(y)):
            return True
        meet = (u - g * x - v + h * y) / (h - g)
        predicted = u + g * (meet - x)
        if number % 3 == 2 or not x < meet < y:
            meet = 0.5 * (x + y)
            predicted = -math.inf
        point = at(meet)
        if point[2] == 0.0 or point[1] - predicted <= 8.0 * _ROUNDOFF * abs(point[1]):
            return True
        left, right = (point, right) if point[2] < 0.0 else (left, point)
    return True


def _many_sets(bound: _Bound, m: Float64, upper: float, slope: Float64) -> None:
    """Subgradient steps towards a value below the best so far, less far below when that does not succeed."""
    aim, failures = 0.1 * (1.0 + abs(upper)), 0
    for _ in range(_STEPS_OF_MANY):
        if not slope.any() or not math.isfinite(upper):
            return
        before = bound.upper
        target = max(bound.lower, before - aim)
        m = m - (upper - target) / float(slope @ slope) * slope
        upper, slope = bound(m)
        if bound.upper > before - 0.1 * aim:
            failures += 1
        if failures > 4:
            failures, aim, m = 0, 0.5 * aim, bound.at
            upper, slope = bound(m)


def vertex_multipliers(problem: ForestProblem, m: Float64) -> Float64:
    """The sum of the multipliers of the sets that hold each vertex, (D,)."""
    family = problem.structure.family
    change = np.zeros(family.n_variables + 1)
    np.add.at(change, family.start, m)
    np.subtract.at(change, family.stop, m)
    out = np.zeros(family.n_variables)
    # Every set on its own where there is one: a running sum would leave rounding errors outside of it.
    if len(m) == 1:
        out[family.order[family.start[0] : family.stop[0]]] = m[0]
    else:
        out[family.order] = np.cumsum(change[:-1])
    return out


def set_counts(problem: ForestProblem, states: Ints) -> Ints:
    """The count of every set in a configuration (D,)."""
    family = problem.structure.family
    scores = problem.score[family.order, states[family.order]]
    before = np.concatenate([[0], np.cumsum(scores)])
    return np.asarray(before[family.stop] - before[family.start])
