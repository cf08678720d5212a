"""Best configurations and max-marginals with edges: (max, +) over the clusters, by either engine.

That takes time quadratic in the counts, so models with large counts are tried with bounds first (:mod:`.bounded`).

Maxima of models with large counts: bounds first, then only what can reach the optimum.

Multipliers (:func:`dual`) give an upper bound U, and for every cluster one of all that it leaves out. Counts of a
cluster from which nothing can reach U less some slack are dropped; what is found at or above that is the optimum. That
takes near-linear time where U is close to it, as for concave tables, and a tie or a gap costs time, never the answer:

- A vertex with very many neighbours makes two models of one, each with multipliers of its own: all states are tried.
- Ties leave everything possible. Log-odds that differ by chance in their sixth digit have a best configuration that is
  easily found; if it reaches U it is a best one of the model itself.
- What is left takes the quadratic pass.

Multipliers for the counts of a forest: the tightest linear upper bounds of its potentials.

For any multipliers, one per set, the best weight is at most::

    U(m) = max_y [ score(y) + sum_s m_s |y_s| ]  +  sum_s max_k [ log f_s(k) - m_s k ]

a convex function: max-product on the forest without counts, and one maximum per table. Its slope along m_s is the count
of the best y less the best k. How close the least U comes to the optimum decides how little has to be computed to find
that; the optimum itself never depends on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64, Ints
from .. import native
from ..arithmetic import UNIT_ROUNDOFF, MaxPlus
from ..log_sums import accurate_sum
from ..problem import ForestProblem
from .certificate import largest_entries
from .sum_product import ForestPass
from .walk import Walk

_STEPS = 64  # evaluations of the bound for one set
_STEPS_OF_MANY = 96
_FARTHEST = 2.0**40  # multipliers beyond this would only lose digits


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
        self._problem, self._start, self._stop = problem, family.start, family.stop
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
        if not y - x > 4.0 * UNIT_ROUNDOFF * (abs(x) + abs(y)):
            return True
        meet = (u - g * x - v + h * y) / (h - g)
        predicted = u + g * (meet - x)
        if number % 3 == 2 or not x < meet < y:
            meet = 0.5 * (x + y)
            predicted = -math.inf
        point = at(meet)
        if point[2] == 0.0 or point[1] - predicted <= 8.0 * UNIT_ROUNDOFF * abs(point[1]):
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
    """The count of every set in configurations (..., D)."""
    family = problem.structure.family
    before = np.zeros((*states.shape[:-1], states.shape[-1] + 1), np.int64)
    np.cumsum(problem.score[family.order, states[..., family.order]], axis=-1, out=before[..., 1:])
    return np.asarray(before[..., family.stop] - before[..., family.start])


LARGE = 2048  # counts up to this size are as quick without bounds
# Of all tables per vertex: with more, the search for multipliers takes longer than it can save
_MOST_ENTRIES = 32
_HUB = 1.0 / 16.0  # of all vertices are neighbours of one
_JITTER = 1e-5  # of the usual size of log-odds


@np.errstate(all="ignore")
def best(problem: ForestProblem) -> tuple[Ints, Float64]:
    """A best configuration of every model (B, D), and its log-weight (B,)."""
    if _quick_enough(problem):
        found = solve(problem, states=True)
        states = found.states
        values = np.where(np.isneginf(found.values), -math.inf, log_weights(problem, states).total)
        return states, values
    parts = [_best_of_branches(problem.take(np.array([b]))) for b in range(len(problem))]
    return np.stack([y for y, _ in parts]), np.array([value for _, value in parts])


@np.errstate(all="ignore")
def max_beliefs(problem: ForestProblem) -> Float64:
    """Best log-weight with every vertex in every state, (B, D, K)."""
    if _quick_enough(problem):
        return solve(problem).beliefs
    parts = []
    for b in range(len(problem)):
        branches = [_beliefs_of_one(part) for part in _branches(problem.take(np.array([b])))]
        parts.append(np.maximum.reduce(branches))
    return np.concatenate(parts)


@np.errstate(all="ignore")
def max_counts(problem: ForestProblem) -> Float64:
    """Best log-weight for every count of every set, (B, T); all counts are asked for, so none can be left out."""
    return solve(problem, counts=True).counts


def _quick_enough(problem: ForestProblem) -> bool:
    """Whether the quadratic pass is not worth avoiding, or cannot be."""
    if not native.present() or len(problem) == 0 or problem.longest <= LARGE:
        return True
    return int(problem.offset[-1]) > _MOST_ENTRIES * problem.program.n_variables


def _branches(problem: ForestProblem) -> list[ForestProblem]:
    """The model given each state of a vertex with very many neighbours, or the model itself."""
    pairs = problem.structure.pairs
    degree = np.bincount(pairs.reshape(-1), minlength=1)
    hub = int(degree.argmax())
    if degree[hub] <= _HUB * problem.program.n_variables:
        return [problem]
    possible = np.flatnonzero(problem.log_leaf[0, hub] > -math.inf)
    one = np.array([0])
    return [problem.given(one, np.array([hub]), int(state)) for state in possible] or [problem]


def _best_of_branches(problem: ForestProblem) -> tuple[Ints, float]:
    found = [_best_of_one(part) for part in _branches(problem)]
    return max(found, key=lambda pair: pair[1])


def _best_of_one(problem: ForestProblem) -> tuple[Ints, float]:
    bounds = dual(problem)
    if math.isfinite(bounds.slack):
        found = solve(under(problem, bounds), states=True, slack=np.array([bounds.slack]))
        if found.known[0]:
            return _weighed(problem, found.states, float(found.values[0]))
        states = _by_jitter(problem, bounds)
        if states is not None:
            return _weighed(problem, states, bounds.bound)
    found = solve(problem, states=True)
    return _weighed(problem, found.states, float(found.values[0]))


def _weighed(problem: ForestProblem, states: Ints, value: float) -> tuple[Ints, float]:
    """A configuration with its weight, summed anew from the tables as they were given."""
    return states[0], value if value == -math.inf else float(log_weights(problem, states).total[0])


def _by_jitter(problem: ForestProblem, bounds: Dual) -> Ints | None:
    """A configuration (1, D) that reaches the bound although many others do, or None."""
    leaf = problem.log_leaf
    odds = leaf.max(axis=2) - leaf.min(axis=2)
    size = float(odds[np.isfinite(odds)].mean()) if np.isfinite(odds).any() else 0.0
    moved = _JITTER * (size + abs(float(bounds.multipliers.max(initial=0.0))) or 1.0)
    noise = np.random.default_rng(0).uniform(-moved, moved, leaf.shape)
    other = replace(problem, log_leaf=leaf + noise)
    there = dual(other)
    if not math.isfinite(there.slack):
        return None
    found = solve(under(other, there), states=True, slack=np.array([there.slack]))
    if not found.known[0] or np.isneginf(found.values[0]):
        return None
    reached = float(log_weights(problem, found.states).total[0])
    rounding = 16.0 * UNIT_ROUNDOFF * (problem.program.depth + 8) * _size(problem, bounds)
    return found.states if reached >= bounds.bound - rounding else None


def _beliefs_of_one(problem: ForestProblem) -> Float64:
    bounds = dual(problem)
    if math.isfinite(bounds.slack):
        found = solve(under(problem, bounds), slack=np.array([bounds.slack]))
        if found.known[0]:
            return found.beliefs
    return solve(problem).beliefs


def under(problem: ForestProblem, bounds: Dual) -> ForestProblem:
    """The same model with the multipliers moved from the tables to the weights."""
    m = bounds.multipliers
    gained = vertex_multipliers(problem, m)[:, None] * problem.score
    length = np.diff(problem.offset)
    count = np.arange(problem.offset[-1]) - np.repeat(problem.offset[:-1], length)
    tables = problem.tables - np.repeat(m, length) * count
    return replace(problem, log_leaf=problem.log_leaf + gained, tables=tables)


def _size(problem: ForestProblem, bounds: Dual) -> float:
    """The largest number that a partial sum on the way to the bound can be."""

    def total(values: Float64, axes: tuple[int, ...]) -> float:
        top = values.max(axis=axes, initial=-math.inf)
        return float(np.abs(np.where(np.isneginf(top), 0.0, top)).sum())

    reach = float(np.abs(vertex_multipliers(problem, bounds.multipliers)) @ problem.score.max(axis=1))
    tables = float(np.abs(problem.tables.max(initial=0.0)))
    return (
        total(problem.log_leaf, (2,)) + total(problem.log_edge, (2, 3)) + tables + reach + abs(bounds.bound)
    )


@dataclass(frozen=True, eq=False)
class Maxima:
    """What one call of the engine gives; arrays that were not asked for are empty.

    Attributes
    ----------
    values : (B,)
        Best log-weights.
    known : (B,)
        Whether the engine got there.
    states : (B, D)
    beliefs : (B, D, K)
        Best log-weight with every vertex in every state.
    counts : (B, T)
        Best log-weight for every count of every set.
    """

    values: Float64
    known: NDArray[np.bool_]
    states: Ints
    beliefs: Float64
    counts: Float64


def solve(
    problem: ForestProblem, *, states: bool = False, counts: bool = False, slack: Float64 | None = None
) -> Maxima:
    """A best configuration if `states`, otherwise the beliefs, and those of counts if asked for.

    `slack` (B,): by how much the optimum is expected to fall short of the bound without counts. With it the engine
    leaves out what cannot reach the optimum, and gives up if that does not help.
    """
    if not native.present():
        return _by_arrays(problem, states=states)
    even, constant = normalised(problem)
    expected = np.full(len(problem), math.inf) if slack is None else slack
    values, known, found, messages, by_count = native.cluster_maxima(
        even, expected, slack is not None, states, counts
    )
    if states:
        found, messages = found.reshape(problem.log_leaf.shape[:2]), np.zeros((0, 0, 0))
    else:
        messages = below_top(even.log_leaf + messages) + (values + constant)[:, None, None]
    return Maxima(values + constant, known, found, messages, by_count + constant[: len(by_count), None])


def _by_arrays(problem: ForestProblem, *, states: bool) -> Maxima:
    passes = ForestPass(problem, MaxPlus())
    values = passes.upward()
    nothing, known = np.zeros((0, 0)), np.ones(len(values), bool)
    if states:
        return Maxima(values, known, Walk(passes, 1, None).run()[0], nothing[None], nothing)
    found = passes.downward()
    beliefs = below_top(problem.log_leaf + found.messages) + values[:, None, None]
    counts = found.log_beliefs + values[:, None]
    return Maxima(values, known, np.zeros((0, 0), np.int64), beliefs, counts)


def below_top(log_weights: Float64) -> Float64:
    """Differences to the largest along the last axis; -inf where all are."""
    top = log_weights.max(axis=-1, keepdims=True)
    return np.asarray(log_weights - np.where(top == -math.inf, 0.0, top))


class Weights(NamedTuple):
    """What single variables, edges and sets contribute to the log-weights of configurations."""

    leaf: Float64  # (..., D)
    edge: Float64  # (..., E)
    table: Float64  # (..., n_sets)

    @property
    def total(self) -> Float64:
        return accurate_sum(*self)


def log_weights(problem: ForestProblem, states: Ints, rows: Ints | None = None) -> Weights:
    """Of configurations (..., B, D), or (..., D) of the models that `rows` (...) says."""
    rows = (np.arange(len(problem)) if rows is None else rows)[..., None]
    leaf = problem.log_leaf[rows, np.arange(states.shape[-1]), states]
    pairs = problem.structure.pairs
    which = 0 if len(problem.log_edge) == 1 else rows
    edge = problem.log_edge[which, np.arange(len(pairs)), states[..., pairs[:, 0]], states[..., pairs[:, 1]]]
    places = problem.offset[:-1] + set_counts(problem, states)
    return Weights(leaf, edge, problem.tables[0 if len(problem.tables) == 1 else rows, places])


def relative(problem: ForestProblem, at: Weights) -> ForestProblem:
    """The same models with log-weights relative to those of possible configurations."""
    edge = problem.log_edge - at.edge[:, :, None, None]
    tables = problem.tables - np.repeat(at.table, np.diff(problem.offset), axis=1)
    return replace(problem, log_leaf=problem.log_leaf - at.leaf[..., None], log_edge=edge, tables=tables)


def normalised(problem: ForestProblem) -> tuple[ForestProblem, Float64]:
    """Largest entries 0, for the engine's bound on rounding errors, and what was taken out, (B,)."""
    at = Weights(*largest_entries(problem))
    return relative(problem, at), np.asarray(sum(top.sum(axis=1) for top in at))
