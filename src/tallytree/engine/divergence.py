"""Kullback-Leibler divergences as integrals of covariance products, where the plain difference cancels.

With the parameters theta of p and theta + v of q,

    KL(p || q) = A(theta + v) - A(theta) - v . grad A(theta) = integral_0^1 (1 - t) v' Cov_(theta + t v) v dt

by Gauss and Legendre. No term is negative, so small divergences keep their digits; v may have parts in log-odds, edges
and tables. Where q allows more than p, it is first restricted to what p allows, which adds ``-log q(that)``.

Where the integral is not sure, and a walk in quadratic time is short, that is done instead. By the chain rule over the
clusters of a forest, which may have no edges,

    KL(p || q) = sum_j p_j (log(p_j / q_j) + KL_j),

where the alternatives j that a cluster sums over have probabilities p_j and q_j given its own state, and divergences
KL_j inside. Those of independent parts add up. What is above the cluster cancels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit

from ..arrays import Bools, Float64, Ints
from ..structure.forest.clusters import Step
from ..structure.forest.contraction import top_sets
from ..structure.nested.family import NestedFamily
from . import native, thresholds
from .arithmetic import UNIT_ROUNDOFF, Carried, Terms, largest
from .count import flat
from .count.infer import pairs_of_counts
from .count.information import integral
from .count.solver import CountSolver
from .forest import ladder
from .forest.solver import ForestSolver
from .forest.tangent import Direction, centred_tables, directional_derivatives, without_common
from .forest.values import Chunk, ForestValues
from .ladder import WALK, announce
from .problem import ForestProblem, Problem, without_edges

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


def count_divergence(p: Problem, q: Problem, odds: Float64, other: Float64) -> Float64:
    """KL(p || q) of possible models on one tree, (B,), of posterior log-odds (B, D); q must allow what p does.

    The integral takes nodes for granted that are closer than the changes on the way. So they are where log-weights move
    little, and otherwise what all nodes tell of the change of the mean is compared with it. Where that fails a walk in
    quadratic time takes over, if it is short; longer ones are for integrals that have not settled.
    """
    out = np.zeros(len(p))
    rows = np.flatnonzero((p.nu != q.nu).any(1) | (p.full_tables != q.full_tables).any(1))
    p, q = (replace(x.take(rows), mixtures={}) for x in (p, q))
    if len(rows) and p.tree.components.whole:
        p, q = _undecided(p, q, odds[rows], other[rows])
    walk = pairs_of_counts(p.tree)
    if len(rows):
        doubt = np.full(len(rows), math.inf)
        if (
            native.present() or walk > thresholds.SHORT_WALK
        ):  # products of array code cost as much as a short walk
            out[rows], doubt = _by_integral(p, q, walk <= thresholds.SHORT_WALK)
        places = np.flatnonzero(doubt > np.maximum(ENOUGH * out[rows], NOTHING))
        if walk > thresholds.SHORT_WALK and walk * len(places) > thresholds.LARGEST_WALK:
            return out
        if len(places):
            announce(walk * len(places), WALK, "A divergence")
        step = max(1, _CELLS // p.nu.shape[1])
        for some in (places[i : i + step] for i in range(0, len(places), step)):
            out[rows[some]] = _by_chain_rule(
                *(without_edges(p.tree.program, x.nu[some], x.full_tables[some]) for x in (p, q))
            )
    return out


def _reach(p: Problem, q: Problem) -> Float64:
    """Nats (B,) by which the log-weights of two configurations may move apart from p to q."""
    v, h = (np.nan_to_num(_step(*pair), posinf=0.0, neginf=0.0) for pair in _parameters(p, q))
    starts = p.tree.family.set_offset[:-1]
    reach = np.abs(v).sum(1)
    if len(starts):
        reach = reach + (np.maximum.reduceat(h, starts, axis=1) - np.minimum.reduceat(h, starts, axis=1)).sum(
            1
        )
    return np.asarray(reach)


def _undecided(p: Problem, q: Problem, odds: Float64, other: Float64) -> tuple[Problem, Problem]:
    """Models of a single set without the variables that are as good as decided alike by p and q.

    Where E are their likely values and R the :func:`_reach`, this leaves out less than
    ``p(not E) (2 + R) + q(not E)`` of the divergence.
    """
    room = _CERTAIN + np.log(odds.shape[1] * (1.0 + _reach(p, q)))[:, None]
    off, on = (np.minimum(s * odds, s * other) > room for s in (-1.0, 1.0))
    return flat.without(p, off, on), flat.without(q, off, on)


# Reaches R for which 1, 2, ... nodes will do: the integrand is analytic to a distance of pi / R, and Gauss and Legendre
# with n nodes are right to some 30 (R / 4)^(2 n), a share of 1e-10
_REACHES = 7e-6, 5e-3, 0.048, 0.145, 0.28
_NEAR = 8.0  # nats: with such a reach the second derivatives of log Z are smooth between any two nodes
_CERTAIN = 40.0  # log-odds that leave e^-40
_CELLS = 1 << 20  # log-odds of the models that are worked on together


class Divergent(Carried):
    """Log-weights under p and under q; those under p carry the divergence of what is inside the cluster.

    Rows are those of models p, then as many of models q. Of alternatives all are added apart from the first of the
    largest: where that is nearly all, the others have the digits.
    """

    def gathered(self, shape: tuple[int, ...], terms: Terms) -> Any:
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
            out.imag[place] += _divergences((term.real - anchor[place]) - np.log1p(others[place]), term.imag)
        return out

    def total(self, values: Any, axis: Any, keepdims: bool = False) -> Any:
        top = values.real.max(axis=axis, keepdims=True)
        below = values.real - np.where(top == -math.inf, 0.0, top)
        weight = np.exp(below)
        np.put_along_axis(weight, np.expand_dims(values.real.argmax(axis=axis), axis), 0.0, axis)
        others = np.log1p(weight.sum(axis=axis, keepdims=True))
        out = (top + others).astype(complex)
        out.imag = _divergences(below - others, values.imag).sum(axis=axis, keepdims=True)
        return out if keepdims else np.squeeze(out, axis=axis)


def _divergences(log_probs: Float64, below: Float64) -> Float64:
    """What alternatives (..., row) add to the divergences of rows p, given those inside them; 0 for rows q."""
    half = log_probs.shape[-1] // 2
    p, q = log_probs[..., :half], log_probs[..., half:]
    out = np.zeros(log_probs.shape)
    out[..., :half] = _surprise(p, q) + np.where(p > -math.inf, np.exp(p) * below[..., :half], 0.0)
    return out


class _DivergentPass(ForestValues):
    """Upwards for models p and as many models q, whose rows are worked on together."""

    def __init__(self, p: ForestProblem, q: ForestProblem) -> None:
        leaf, edge, tables = (
            np.concatenate([np.broadcast_to(x, (len(p), *x.shape[1:])) for x in pair])
            for pair in _numbers(p, q)
        )
        super().__init__(replace(p, log_leaf=leaf, log_edge=edge, tables=tables), Divergent())

    def _chunks(self, step: Step, batch: int) -> Iterator[Chunk]:
        for chunk in super()._chunks(step, batch // 2):
            other = chunk.batch + batch // 2
            rows = np.append(chunk.rows, chunk.rows + batch // 2 * self.program.n_nodes)
            yield Chunk(step, rows, np.append(chunk.batch, other), np.tile(chunk.nodes, 2))


def _by_chain_rule(p: ForestProblem, q: ForestProblem) -> Float64:
    """KL(p || q) of possible models, (B,)."""
    with np.errstate(all="ignore"):
        values = _DivergentPass(p, q)
        values.upward()
    return np.asarray(values.up.buffer[values.root_cells[: len(p)]].imag.sum(axis=1))


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


def _by_integral(p: Problem, q: Problem, surely: bool) -> tuple[Float64, Float64]:
    """KL(p || q), and by how much it changed with the last nodes, or surely what may lie between them, (B,) each.

    With ``S = log q/p`` up to a constant, the covariances add up to the change of its mean from p to q.
    """
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

    def at(t: float) -> CountSolver:
        return CountSolver(replace(base, nu=nu + t * steps[0], tables=tables + t * steps[1]))

    def products(t: float) -> Float64:
        moved = at(t).tangent(v[None], h[None], counts=True)
        assert moved.counts is not None
        product = (v * moved.marginals[0]).sum(1) + (h * moved.counts[0]).sum(1)
        return np.stack([(1.0 - t) * product, product])

    found = change = np.zeros(len(base))
    if v.any() or h.any():
        reach = _reach(base, at(1.0).problem)
        nodes = 1 + int(np.searchsorted(_REACHES, reach.max(initial=0.0)))
        (found, whole), (change, _) = integral(products, nodes=nodes if nodes <= len(_REACHES) else 0)
        if surely and (reach > _NEAR).any():
            start, end = at(0.0), at(1.0)
            side = np.where(start.odds() > 0.0, -1.0, 1.0)
            mean = (v * side * (expit(side * end.odds()) - expit(side * start.odds()))).sum(1)
            if h.any():
                mean = mean + (h * (end.expected_counts() - start.expected_counts())).sum(1)
            change = np.where(reach > _NEAR, np.maximum(change, np.abs(whole - mean)), change)
    wider = (np.isfinite(q.nu) & ~np.isfinite(nu)).any(1) | (restricted.tables != q.full_tables).any(1)
    if wider.any():
        plain = replace(q, mixtures={}, constant=0.0, log_leaves=None)
        weight = np.where(np.isposinf(nu) & np.isfinite(q.nu), q.nu, 0.0).sum(1)  # forced variables count one
        norms = CountSolver(plain).log_norm(), CountSolver(restricted).log_norm()
        found = found + np.where(wider, np.maximum(norms[0] - norms[1] - weight, 0.0), 0.0)
        if surely:  # here large numbers may cancel
            size = np.abs(norms[0]) + np.abs(norms[1]) + np.abs(weight)
            change = np.where(wider, np.maximum(change, 8.0 * UNIT_ROUNDOFF * size), change)
    return np.asarray(found), change


def _centred(
    solver: CountSolver | ForestSolver,
    free: Bools,
    family: NestedFamily,
    offset: Ints,
    v: Float64,
    h: Float64,
) -> tuple[Float64, Float64]:
    """:func:`~tallytree.engine.forest.tangent.without_common`, up to a constant."""
    if family.n_sets:
        odds = solver.odds()
        v, h = without_common(top_sets(family), offset, free, expit(odds) * expit(-odds), v, h)
        h = centred_tables(h, solver.expected_counts(), solver.problem.full_tables, offset)
    return v, h


def _parameters(p: Problem, q: Problem) -> list[tuple[Float64, Float64]]:
    return [(p.nu, q.nu), (p.full_tables, q.full_tables)]


def _numbers(p: ForestProblem, q: ForestProblem) -> list[tuple[Float64, Float64]]:
    return [(p.log_leaf, q.log_leaf), (p.log_edge, q.log_edge), (p.full_tables, q.full_tables)]


_SHORT = 1.0  # a change of a log-weight that the integral cannot pass over


def forest_divergence(p: ForestProblem, q: ForestProblem) -> Float64:
    """KL(p || q) of possible models on one forest and family, (B,), NaN where it is not sure; q must allow what p does.

    By the chain rule where counts are short. The integral serves the others, and keeps the digits of short steps.
    """
    out, rows = np.full(len(p), math.nan), np.arange(len(p))
    pairs = [np.broadcast_arrays(*pair) for pair in _numbers(p, q)]
    walk = ladder.pairs_of_counts(p) / max(len(p), 1)
    if all(np.array_equal(a == -math.inf, b == -math.inf) for a, b in pairs):
        far = sum((np.abs(_step(*pair)).reshape(len(pair[0]), -1) > _SHORT).any(1) for pair in pairs)
        smooth = rows[(far == 0) | (walk > thresholds.SHORT_WALK)]
        if len(smooth):
            found, change = _forest_integral(p.take(smooth), q.take(smooth))
            sure = change <= np.maximum(ENOUGH * found, NOTHING)
            out[smooth[sure]] = found[sure]
            rows = np.setdiff1d(rows, smooth[sure])
    if len(rows) and walk * len(rows) <= thresholds.LARGEST_WALK:
        announce(walk * len(rows), ladder.LOGS, "A divergence")
        out[rows] = _by_chain_rule(p.take(rows), q.take(rows))
    return out


def _forest_integral(p: ForestProblem, q: ForestProblem) -> tuple[Float64, Float64]:
    """KL(p || q) where both allow the same, and by how much it changed with the last nodes, (B,) each."""
    pairs = [_shared(*np.broadcast_arrays(*pair)) for pair in _numbers(p, q)]
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
        return np.zeros(len(p)), np.zeros(len(p))

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

    return integral(lambda t: (1.0 - t) * product(t))
