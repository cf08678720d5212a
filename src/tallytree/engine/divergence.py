"""Kullback-Leibler divergences as integrals of covariance products, where the plain difference cancels.

With the parameters theta of p and theta + v of q,

    KL(p || q) = A(theta + v) - A(theta) - v . grad A(theta) = integral_0^1 (1 - t) v' Cov_(theta + t v) v dt

by Gauss and Legendre. No term is negative, so small divergences keep their digits; v may have parts in log-odds, edges
and tables. Where q allows more than p, it is first restricted to what p allows, which adds ``-log q(that)``.

Count models that are small enough for a walk in quadratic time need no integral. By the chain rule over the tree,

    KL(p || q) = sum_roots KL(p(z_r) || q(z_r))  +  sum_merges sum_z P_p(z) KL(p(z_l | z_p = z) || q(z_l | z_p = z)),

where the weights of z_l = i given z_p = z are ``up_l(i) up_r(z - i)``; tables above the merge cancel.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit

from ..arrays import Bools, Float64, Ints
from ..structure.forest.contraction import top_sets
from ..structure.nested.family import NestedFamily
from ..structure.nested.schedule import full_schedule
from ..structure.nested.tree import TreeProgram
from . import thresholds
from .arithmetic import Carried, Terms, largest
from .count.infer import pairs_of_counts
from .count.information import integral
from .count.solver import CountSolver
from .count.tree_pass import TreePass
from .forest import ladder
from .forest.solver import ForestSolver
from .forest.tangent import Direction, centred_tables, directional_derivatives
from .ladder import WALK, announce
from .problem import ForestProblem, Problem

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

    By the chain rule where a walk in quadratic time is short. The integral, which serves larger models, takes nodes for
    granted that are closer than the changes on the way; where it has not settled and a walk is possible, that is done.
    """
    program = p.tree.program
    walk = pairs_of_counts(program)
    out, rows = (
        np.zeros(len(p)),
        np.flatnonzero((p.nu != q.nu).any(1) | (p.full_tables != q.full_tables).any(1)),
    )
    if walk > thresholds.SHORT_WALK and len(rows):
        out[rows], change = _by_integral(*(replace(x.take(rows), mixtures={}) for x in (p, q)))
        rows = rows[change > np.maximum(ENOUGH * out[rows], NOTHING)]
        if walk * len(rows) > thresholds.LARGEST_WALK:
            return out
    if len(rows):
        announce(walk * len(rows), WALK, "A divergence")
        out[rows] = _by_chain_rule(program, *((x.nu[rows], x.full_tables[rows]) for x in (p, q)))
    return out


_CELLS = 1 << 20  # message entries of the models that are worked on together


class Divergent(Carried):
    """Log-weights under p and under q; those under p carry the divergence of what is inside the cluster.

    Rows are nodes; of each there are `batch` models p, then as many models q.
    """

    def __init__(self, batch: int) -> None:
        self._shape = -1, 2, batch

    def _laws(self, values: Any) -> Any:
        """Numbers (..., row) as (..., node, 2, B)."""
        return values.reshape(*values.shape[:-1], *self._shape)

    def gathered(self, shape: tuple[int, ...], terms: Terms) -> Any:
        """The others are added apart from the first of the largest: where that is nearly all, they have the digits."""
        top, out = largest(shape, terms), np.zeros(shape, complex)
        anchor, first, others = np.where(top == -math.inf, 0.0, top), np.full(shape, -1), np.zeros(shape)
        for i, (start, term) in enumerate(terms()):
            place = np.s_[..., start : start + term.shape[3], :]
            leads = (first[place] < 0) & (term.real == top[place])
            first[place] = np.where(leads, i, first[place])
            others[place] += np.where(leads, 0.0, np.exp(term.real - anchor[place]))
        out.real = top + np.log1p(others)
        for start, term in terms():
            place = np.s_[..., start : start + term.shape[3], :]
            logs = self._laws((term.real - anchor[place]) - np.log1p(others[place]))
            p, below = np.exp(logs[..., 0, :]), self._laws(term.imag)[..., 0, :]
            found = _surprise(logs[..., 0, :], logs[..., 1, :]) + np.where(p > 0.0, p * below, 0.0)
            self._laws(out.imag[place])[..., 0, :] += found
        return out

    def divergence(self, values: Any) -> Float64:
        """KL(p || q) of independent counts, (B,), from their weights (1, 1, 1, count, row)."""
        each = [(0, values[..., i : i + 1, :]) for i in range(values.shape[3])]
        found = self.gathered((1, 1, 1, 1, values.shape[-1]), lambda: iter(each))
        return np.asarray(self._laws(found.imag)[0, 0, 0, 0, :, 0].sum(0))


def _by_chain_rule(program: TreeProgram, p: tuple[Float64, ...], q: tuple[Float64, ...]) -> Float64:
    """KL(p || q) of possible models given by (nu, tables) each, (B,); p must allow nothing that q does not."""
    schedule, parts = full_schedule(program), []
    free = program.parent[: program.n_leaves] < 0
    step = max(1, _CELLS // schedule.up_length)
    for start in range(0, len(p[0]), step):
        own = [x[start : start + step] for x in (*p, *q)]
        with np.errstate(all="ignore"):
            arithmetic = Divergent(len(own[0]))
            passes = TreePass(schedule, arithmetic, *(np.concatenate(pair) for pair in zip(own[:2], own[2:])))
            passes.upward()
            roots = passes.numbers(passes.up, schedule.roots.own_cells)
            alone = passes.leaves()[:, free].reshape(1, 1, 1, 2, -1)
            parts.append(arithmetic.divergence(roots) + arithmetic.divergence(alone))
    return np.concatenate(parts)


def _surprise(log_p: Float64, log_q: Float64) -> Float64:
    """``p (e^u - 1 - u)`` with u = log q / p: alternatives add up to the divergence, and no term is negative."""
    p, q = np.exp(log_p), np.exp(log_q)
    impossible = log_p == -math.inf
    u = np.where(impossible, 0.0, log_q - np.where(impossible, 0.0, log_p))
    large = np.where(u < 1.0, p * (np.expm1(np.minimum(u, 1.0)) - u), q - p - p * u)
    term = np.where(np.abs(u) < 0.5, p * _exp_minus_line(np.clip(u, -0.5, 0.5)), large)
    return np.where(impossible, q, np.where(u == -math.inf, math.inf, np.maximum(term, 0.0)))


def _exp_minus_line(u: Float64) -> Float64:
    """``e^u - 1 - u`` for abs(u) <= 1/2, to the last digits."""
    series = np.ones_like(u)
    for k in range(16, 2, -1):
        series = 1.0 + u / k * series
    return 0.5 * u * u * series


def _by_integral(p: Problem, q: Problem) -> tuple[Float64, Float64]:
    """KL(p || q), and by how much it changed with the last nodes, (B,) each."""
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
    steps = _step(nu, inside), _step(tables, other)
    family = base.tree.family
    v, h = _centred(CountSolver(base), np.isfinite(nu), family, family.set_offset, *steps)

    def product(t: float) -> Float64:
        at = CountSolver(
            replace(base, nu=nu + t * _step(nu, inside), tables=tables + t * _step(tables, other))
        )
        moved = at.tangent(v[None], h[None], counts=True)
        assert moved.counts is not None
        return np.asarray((v * moved.marginals[0]).sum(1) + (h * moved.counts[0]).sum(1))

    still = np.zeros(len(base)), np.zeros(len(base))
    found, change = integral(lambda t: (1.0 - t) * product(t)) if v.any() or h.any() else still
    wider = (np.isfinite(q.nu) & ~np.isfinite(nu)).any(1) | (restricted.tables != q.full_tables).any(1)
    if wider.any():
        plain = replace(q, mixtures={}, constant=0.0, log_leaves=None)
        weight = np.where(np.isposinf(nu) & np.isfinite(q.nu), q.nu, 0.0).sum(1)  # forced variables count one
        left = CountSolver(plain).log_norm() - CountSolver(restricted).log_norm() - weight
        found = found + np.where(wider, np.maximum(left, 0.0), 0.0)
    return np.asarray(found), change


def _centred(
    solver: CountSolver | ForestSolver,
    free: Bools,
    family: NestedFamily,
    offset: Ints,
    v: Float64,
    h: Float64,
) -> tuple[Float64, Float64]:
    """The same direction up to a constant, without what is common to the variables of an outermost set.

    Adding a to v there is adding ``a c`` to the table of the set: what cancels is taken out before it is summed. Fixed
    variables, which are not `free`, move the count by a constant, but not with the others.
    """
    top, n_sets = top_sets(family), family.n_sets
    if not n_sets:
        return v, h
    odds, free = solver.odds(), free & (top >= 0)
    spread = np.where(free, expit(odds) * expit(-odds), 0.0)

    def sums(values: Float64) -> Float64:
        return np.stack([np.bincount(np.maximum(top, 0), row, n_sets) for row in values])

    weight = sums(spread)
    shift = sums(spread * v) / np.where(weight > 0.0, weight, 1.0)
    owner = np.repeat(np.arange(n_sets), np.diff(offset))
    moved = h + shift[:, owner] * (np.arange(offset[-1]) - offset[owner])
    tables = centred_tables(moved, solver.expected_counts(), solver.problem.full_tables, offset)
    return np.where(free, v - shift[:, top], v), tables


def forest_divergence(p: ForestProblem, q: ForestProblem) -> Float64:
    """KL(p || q) of possible models on one forest and family, (B,), where both allow the same."""
    pairs = [
        _shared(*np.broadcast_arrays(*parts))
        for parts in ((p.log_leaf, q.log_leaf), (p.log_edge, q.log_edge), (p.full_tables, q.full_tables))
    ]
    start = replace(p, log_leaf=pairs[0][0], log_edge=pairs[1][0], tables=pairs[2][0])
    steps = Direction(*(_step(*pair) for pair in pairs))
    steps = Direction(*(np.broadcast_to(x, (len(p), *x.shape[1:])) for x in steps))

    in_odds = p.n_states == 2 and not steps.edge.any()
    v, h = steps.leaf[..., 0], steps.tables
    if in_odds:
        free: Bools = np.asarray(np.isfinite(start.log_leaf).all(axis=2))
        v = np.where(free, steps.leaf[..., 1] - v, 0.0)
        v, h = _centred(ForestSolver(start), free, start.structure.family, start.offset, v, h)
    if in_odds and not v.any() and not h.any():
        return np.zeros(len(p))

    def product(t: float) -> Float64:
        at = replace(
            start,
            log_leaf=start.log_leaf + t * steps.leaf,
            log_edge=start.log_edge + t * steps.edge,
            tables=start.tables + t * steps.tables,
        )
        if in_odds:
            moves = ForestSolver(at).tangent(v[None], h[None], counts=True)
            assert moves.counts is not None
            return np.asarray((v * moves.marginals[0]).sum(1) + (h * moves.counts[0]).sum(1))
        moved = directional_derivatives(at, ladder.infer(at), steps)
        return np.asarray(sum((m * s).reshape(len(p), -1).sum(1) for m, s in zip(moved, steps)))

    return integral(lambda t: (1.0 - t) * product(t))[0]
