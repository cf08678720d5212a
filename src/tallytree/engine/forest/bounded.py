"""Maxima of models with large counts: bounds first, then only what can reach the optimum.

Multipliers (:mod:`.dual`) give an upper bound U, and for every cluster one of all that it leaves out. Counts of a
cluster from which nothing can reach U less some slack are dropped; what is found at or above that is the optimum. That
takes near-linear time where U is close to it, as for concave tables, and a tie or a gap costs time, never the answer:

- A vertex with very many neighbours makes two models of one, each with multipliers of its own: all states are tried.
- Ties leave everything possible. Log-odds that differ by chance in their sixth digit have a best configuration that is
  easily found; if it reaches U it is a best one of the model itself.
- What is left takes the quadratic pass.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...arrays import Float64, Ints
from .. import native
from ..problem import ForestProblem
from .dual import Dual, dual, vertex_multipliers
from .maxima import log_weights, solve

LARGE = 2048  # counts up to this size are as quick without bounds
_MOST_ENTRIES = (
    32  # of all tables per vertex: with more, the search for multipliers takes longer than it can save
)
_HUB = 1.0 / 16.0  # of all vertices are neighbours of one
_JITTER = 1e-5  # of the usual size of log-odds
_ROUNDOFF = 2.0**-53


@np.errstate(all="ignore")
def best(problem: ForestProblem) -> tuple[Ints, Float64]:
    """A best configuration of every model (B, D), and its log-weight (B,)."""
    if _quick_enough(problem):
        found = solve(problem, states=True)
        states = found.states
        values = np.where(np.isneginf(found.values), -math.inf, log_weights(problem, states))
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
    return states[0], value if value == -math.inf else float(log_weights(problem, states)[0])


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
    reached = float(log_weights(problem, found.states)[0])
    rounding = 16.0 * _ROUNDOFF * (problem.program.depth + 8) * _size(problem, bounds)
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
