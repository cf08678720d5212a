"""Kullback-Leibler divergences as integrals of covariance products, where the plain difference cancels.

With the parameters theta of p and theta + v of q,

    KL(p || q) = A(theta + v) - A(theta) - v . grad A(theta) = integral_0^1 (1 - t) v' Cov_(theta + t v) v dt

by Gauss and Legendre. No term is negative, so small divergences keep their digits; v may have parts in log-odds, edges
and tables. Where q allows more than p, it is first restricted to what p allows, which adds ``-log q(that)``.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.special import expit

from ..arrays import Float64, Ints
from . import thresholds
from .count import chain_rule
from .count.infer import pairs_of_counts, schedule_for
from .count.solver import CountSolver
from .forest import ladder
from .forest.tangent import Direction, moving_derivatives
from .problem import ForestProblem, Problem
from .quadrature import integral

ENOUGH = 1e-9  # relative error of a divergence
NOTHING = 1e-15  # and absolute
_UNKNOWN = 1e-20  # probability of a count below which it does not matter


def _shared(p: Float64, q: Float64) -> tuple[Float64, Float64]:
    """Log-weights with -inf where either has it."""
    dead = np.isneginf(p) | np.isneginf(q)
    return np.where(dead, -math.inf, p), np.where(dead, -math.inf, q)


def _step(p: Float64, q: Float64) -> Float64:
    """``q - p``; 0 where both are infinite."""
    finite = np.isfinite(p)
    return np.where(finite, np.where(finite, q, 0.0) - np.where(finite, p, 0.0), 0.0)


def count_divergence(p: Problem, q: Problem) -> Float64:
    """KL(p || q) of possible models on one tree, (B,); q must allow what p does.

    By the chain rule where a quadratic walk is cheap. The integral, which serves larger models, takes nodes for granted
    that are closer than the changes on the way.
    """
    program = p.tree.program
    if pairs_of_counts(program) * len(p) > thresholds.LARGEST_WALK:
        return _by_integral(p, q)
    schedule = schedule_for(program, np.zeros((1, program.table_total)))
    return chain_rule.divergence(program, schedule, (p.nu, p.full_tables), (q.nu, q.full_tables))


def _by_integral(p: Problem, q: Problem) -> Float64:
    nu = np.where(np.isfinite(q.nu), p.nu, q.nu)  # what q fixes is fixed by the tables of p
    tables, other = _shared(p.full_tables, q.full_tables)
    inside = np.where(np.isfinite(nu), q.nu, nu)
    restricted = replace(q, nu=inside, tables=other, mixtures={}, constant=0.0, log_leaves=None)
    base = replace(restricted, nu=nu, tables=tables)
    # Counts that neither model knows would only roughen the way from one to the other.
    often = CountSolver(base).expected_counts() * (1.0 + np.abs(_step(tables, other)))
    unknown = often + CountSolver(restricted).expected_counts() < _UNKNOWN
    tables, other = (np.where(unknown, -math.inf, x) for x in (tables, other))
    base = replace(base, tables=tables)
    v, h = _centred(base, _step(nu, inside), _step(tables, other))

    def product(t: float) -> Float64:
        at = CountSolver(
            replace(base, nu=nu + t * _step(nu, inside), tables=tables + t * _step(tables, other))
        )
        moved = at.tangent(v[None], h[None], counts=True)
        assert moved.counts is not None
        return np.asarray((v * moved.marginals[0]).sum(1) + (h * moved.counts[0]).sum(1))

    found = integral(lambda t: (1.0 - t) * product(t))[0] if v.any() or h.any() else np.zeros(len(base))
    wider = (np.isfinite(q.nu) & ~np.isfinite(nu)).any(1) | (restricted.tables != q.full_tables).any(1)
    if wider.any():
        plain = replace(q, mixtures={}, constant=0.0, log_leaves=None)
        weight = np.where(np.isposinf(nu) & np.isfinite(q.nu), q.nu, 0.0).sum(1)  # forced variables count one
        left = CountSolver(plain).log_norm() - CountSolver(restricted).log_norm() - weight
        found = found + np.where(wider, np.maximum(left, 0.0), 0.0)
    return np.asarray(found)


def _centred(base: Problem, v: Float64, h: Float64) -> tuple[Float64, Float64]:
    """The same direction up to a constant, without what is common to the variables of an outermost set.

    Adding a to v there is adding ``a c`` to the table of the set: what cancels is taken out before it is summed.
    """
    family = base.tree.family
    top = np.arange(family.n_sets)
    while np.any(family.set_parent[top] >= 0):
        top = np.where(family.set_parent[top] >= 0, family.set_parent[top], top)
    held = family.variable_parent >= 0
    root: Ints = np.where(held, top[np.where(held, family.variable_parent, 0)] if family.n_sets else 0, 0)
    solver = CountSolver(base)
    odds = solver.odds()
    spread = np.where(held, expit(odds) * expit(-odds), 0.0)
    v, h, probs = v.copy(), h.copy(), solver.expected_counts()
    offset, outermost = family.set_offset, np.flatnonzero(family.set_parent < 0)
    for b in range(len(base)):
        weight = np.bincount(root, spread[b], family.n_sets)
        shift = np.bincount(root, spread[b] * v[b], family.n_sets) / np.where(weight > 0.0, weight, 1.0)
        v[b] = np.where(held & np.isfinite(base.nu[b]), v[b] - shift[root] if family.n_sets else v[b], v[b])
        for s in outermost.tolist():
            cells = slice(offset[s], offset[s + 1])
            possible = base.full_tables[b, cells] > -math.inf
            moved = h[b, cells] + shift[s] * np.arange(offset[s + 1] - offset[s])
            h[b, cells] = np.where(
                possible, moved - (probs[b, cells] * np.where(possible, moved, 0.0)).sum(), 0.0
            )
    return v, h


def forest_divergence(p: ForestProblem, q: ForestProblem) -> Float64:
    """KL(p || q) of possible models on one forest and family, (B,), where both allow the same."""
    pairs = [
        _shared(*np.broadcast_arrays(*parts))
        for parts in ((p.log_leaf, q.log_leaf), (p.log_edge, q.log_edge), (p.full_tables, q.full_tables))
    ]
    start = replace(p, log_leaf=pairs[0][0], log_edge=pairs[1][0], tables=pairs[2][0])
    steps = Direction(*(_step(*pair) for pair in pairs))
    steps = Direction(*(np.broadcast_to(x, (len(p), *x.shape[1:])) for x in steps))

    def product(t: float) -> Float64:
        at = replace(
            start,
            log_leaf=start.log_leaf + t * steps.leaf,
            log_edge=start.log_edge + t * steps.edge,
            tables=start.tables + t * steps.tables,
        )
        moved = moving_derivatives(at, ladder.infer(at), steps)
        return np.asarray(sum((m * s).reshape(len(p), -1).sum(1) for m, s in zip(moved, steps)))

    return integral(lambda t: (1.0 - t) * product(t))[0]
