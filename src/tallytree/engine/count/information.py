"""Entropies of count problems: expectations, accurate count distributions, or terms that are not negative.

``H = log Z - E[log weight]`` where nothing cancels, which is nearly always. Then without the variables that are as good
as decided, where these are most, or with tables relative to their most probable entry, and last by terms that are not
negative: the chain rule for models that are not too large for a walk in quadratic time, sums around the mode, for a
dozen inferences, for the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, roots_jacobi

from ...arrays import Float64
from ...memo import lru
from .. import native, thresholds
from ..arithmetic import UNIT_ROUNDOFF
from ..forest.entropy import entropy_by_parts
from ..ladder import TANGENT, announce
from ..problem import Problem, without_edges
from . import flat, moments, retilt
from .derivatives import LEFT_OUT, count_probabilities
from .infer import pairs_of_counts

CERTIFIED = 9e-11  # relative error that expectations may have, whose estimate is made of bounds
ENOUGH = 1e-11  # and what is made of count distributions, whose estimate only follows the rounding
NOTHING = 1e-15  # and absolute
TINY, SMALL = 1e-13, 5e-12  # the same of expectations, and where models are too large for a short walk


_ROOM = 40.0  # log-odds that leave e^-40

_NODES = (2, 4, 8, 16, 32, 64)
_NODES_WITH_END = (1, *_NODES)  # one value more is known: that at 1, where far modes are seen best
_HOPEFUL = 4  # nodes up to which the next ones are tried whatever they say
_AGREED = 1e-11  # relative change from one number of nodes to the next at which to stop


@lru(16)
def _rule(nodes: int, with_end: bool) -> list[tuple[float, float]]:
    """Places in [0, 1] and their weights."""
    place, weight = roots_jacobi(nodes, 1.0 if with_end else 0.0, 0.0)
    weight = weight / (1.0 - place) if with_end else weight
    return list(zip((0.5 * (place + 1.0)).tolist(), (0.5 * weight).tolist()))


def integral(
    values: Callable[[float], Float64], end: Float64 | None = None, nodes: int = 0
) -> tuple[Float64, Float64]:
    """``integral_0^1 values(t) dt`` of every model, and by how much it changed with the last nodes that were added.

    By Gauss and Legendre, with as many nodes as it takes, or as many as are known to do; by Gauss and Radau where
    `end`, ``values(1)``, is known.
    """
    if nodes:
        known = np.sum([w * values(at) for at, w in _rule(nodes, False)], axis=0)
        return np.asarray(np.maximum(known, 0.0)), np.zeros(known.shape)
    previous, change = None, np.array(np.inf)
    for nodes in _NODES if end is None else _NODES_WITH_END:
        parts = [w * values(at) for at, w in _rule(nodes, end is not None)]
        total = np.sum(parts, axis=0)
        if end is not None:
            total = total + end / (nodes + 1.0) ** 2
        if previous is not None:
            change = np.abs(total - previous)
            if np.all(change <= np.maximum(_AGREED * total, NOTHING)):
                break
            hopeless = (
                change > _AGREED ** (0.5 * nodes / _NODES[-1]) * total
            )  # twice the nodes square it at best
            if nodes > _HOPEFUL and np.all(hopeless):
                break
        previous = total
    return np.asarray(np.maximum(total, 0.0)), change  # rounding alone could make it negative


def entropy_of(solver: Any) -> tuple[Float64, Float64]:
    """H of every model of a solved count problem in nats, and an estimate of its error, (B,) each.

    From expectations; where these lose digits but every variable is decided, from those alone; or without transforms,
    or under a tilt; then from count distributions with relative accuracy; at last from terms that are not negative.
    Models that climb do so without the others.
    """
    least = SMALL if pairs_of_counts(solver.problem.tree) > thresholds.SHORT_WALK else TINY

    def failed(value: Float64, error: Float64) -> Any:
        return np.flatnonzero(~(error <= np.maximum(CERTIFIED * value, least)))

    def part(rows: Any) -> Any:
        return solver if len(rows) == len(value) else type(solver)(solver.problem.take(rows), solver.method)

    value, error = np.zeros(len(solver.problem)), np.full(len(solver.problem), math.inf)
    if not _hopeless(solver, least):
        value, error = _from_expectations(solver)
    rows = failed(value, error)
    if len(rows):
        most = _entropy_if_independent(solver.odds()[rows])
        decided = most <= least
        value[rows[decided]] = error[rows[decided]] = most[decided]
        rows = rows[~decided]
    if len(rows) and solver.problem.tree.components.whole:
        small = _undecided(part(rows))
        if small is not None:
            value[rows], error[rows] = entropy_of(small)
            rows = rows[:0]
    nested = solver.problem.tree.components.nested is not None and native.present()
    for attempt in (_without_transforms,) * nested + (_under_tilt,):
        if len(rows) and solver.problem.tree.family.n_sets:
            found, doubt = attempt(part(rows))
            better = doubt < error[rows]
            value[rows] = np.where(better, found, value[rows])
            error[rows] = np.where(better, doubt, error[rows])
            rows = failed(value, error)
    if len(rows):
        value[rows] = _from_distributions(part(rows))
        error[rows] = np.maximum(ENOUGH * value[rows], NOTHING)
    return np.maximum(value, 0.0), error  # within its error, and never below 0


def _hopeless(solver: Any, least: float) -> bool:
    """Whether numbers are so large that :func:`_from_expectations` has no digits left for any model."""
    found, problem = solver.sums, solver.problem
    size, height = 0.0 if found.softplus is None else found.softplus, np.abs(found.log_mean)
    rounding = 4.0 * UNIT_ROUNDOFF * (size + height)
    large = rounding > CERTIFIED * (1.0 + 0.01 * problem.nu.shape[1])
    if not np.all(large | (height > size)):
        return False
    return bool((rounding > np.maximum(CERTIFIED * _entropy_if_independent(solver.odds()), least)).all())


def _undecided(solver: Any) -> Any:
    """Models of a single set without the variables that are as good as decided, None if these are few.

    Where E are their likely values, this leaves out less than ``P(not E) (1 + D)`` of the entropy.
    """
    odds = solver.odds()
    room = _ROOM + 2.0 * math.log(odds.shape[1])
    small = flat.without(solver.problem, odds < -room, odds > room)
    return type(solver)(small) if 2 * small.nu.shape[1] <= odds.shape[1] else None


def _entropy_if_independent(odds: Float64) -> Float64:
    """The sum (B,) of the entropies of all variables, (B, D), which no dependence makes larger."""
    away = np.abs(odds)
    rest = np.exp(-away)
    return np.asarray((np.log1p(rest) + np.where(rest > 0.0, away, 0.0) * rest / (1.0 + rest)).sum(-1))


def _without_transforms(solver: Any) -> tuple[Float64, Float64]:
    """:func:`_from_expectations` by passes without Fourier's noise, which moves all terms of large models at once."""
    return _from_expectations(type(solver)(solver.problem, "tiled"))


def _under_tilt(solver: Any) -> tuple[Float64, Float64]:
    """H and an estimate of its error, (B,) each, from models whose log-odds agree with the posterior on the whole.

    What a variable adds, ``log(1 + e^nu) - nu P(y = 1)``, is ``log(1 + e^-abs(nu))`` and ``abs(nu)`` times the
    probability that it disagrees: no large numbers cancel. Variables that are as good as decided are fixed, and tables
    enter without their heights: neither says anything about the others.
    """
    problem, odds = solver.problem, solver.odds()
    messages = odds - np.where(np.isfinite(problem.nu), problem.nu, 0.0)
    program = problem.tree.program
    level = retilt.near_means(program, problem.tables, odds)
    nu, tables = retilt.at_posterior(program, problem.nu, problem.tables, odds, messages, level)
    solver = type(solver)(Problem(problem.tree, nu, tables), solver.method)
    found, offset = solver.sums, problem.tree.family.set_offset
    finite, odds = np.isfinite(nu), solver.odds()
    away = np.where(finite, np.abs(nu), 0.0)
    disagrees = expit(np.where(nu > 0.0, -odds, odds))
    each = np.where(finite, np.log1p(np.exp(-away)), 0.0) + away * disagrees
    probs, doubt = count_probabilities(solver.problem, found)
    still = np.zeros((len(nu), 0))
    sums = moments.expectation_sums(still, still, probs, tables, offset)
    log_mean = np.asarray(found.log_mean)
    own = each.sum(-1)
    total = own + (sums.terms + (log_mean - sums.mean))
    scatter = 8.0 + math.sqrt(max(np.diff(offset).tolist(), default=0))
    rounding = own + np.abs(log_mean) + sums.mean_size + scatter * sums.terms_size
    if not native.present():  # array code: of equal log-odds all products are rounded to the same side
        rounding = rounding + 0.5 * finite.sum(-1)
    error = (
        found.bound * (1.0 + (away * disagrees * (1.0 - disagrees)).sum(-1)) + 4.0 * UNIT_ROUNDOFF * rounding
    )
    farthest = sums.farthest
    if (
        problem.tree.components.whole
    ):  # no count is likelier than its table entry, beside the mean of them all
        near = _ROOM + np.abs(sums.mean - log_mean)
        farthest = np.minimum(farthest, near + np.maximum(tables.max(1) - sums.mean, 0.0))
    return total, error + doubt * (2.0 * sums.away) + (LEFT_OUT * (doubt > 0.0)) * farthest


def _from_expectations(solver: Any) -> tuple[Float64, Float64]:
    """``log Z - E[log weight]`` and what its terms may have lost, (B,) each.

    A count whose probability is off by `doubt` moves H by that times the distance of its log-table from the mean.
    """
    problem, found = solver.problem, solver.sums
    nu, offset = problem.nu, problem.tree.family.set_offset
    softplus = moments.softplus_sum(nu) if found.softplus is None else found.softplus
    log_mean = np.asarray(found.log_mean)
    on = solver.marginals()
    if len(offset) > 1:
        probs, doubt = count_probabilities(problem, found)
        scatter = 8.0 + math.sqrt(max(np.diff(offset).tolist()))
    else:
        probs, doubt, scatter = np.zeros((len(nu), 0)), np.zeros(len(nu)), 0.0
    sums = moments.expectation_sums(nu, on, probs, problem.tables, offset)
    total = (softplus - sums.energy) + (sums.terms + (log_mean - sums.mean))
    rounding = softplus + sums.size + np.abs(log_mean) + sums.mean_size + scatter * sums.terms_size
    error = found.bound + 4.0 * UNIT_ROUNDOFF * rounding
    error = error + doubt * (2.0 * sums.away) + (LEFT_OUT * (doubt > 0.0)) * sums.farthest
    # P = on is off by what is known of all of them, or by `bound` on (1 - on): a closer look, where it is needed.
    moved = found.probability_bound * sums.size
    if np.all(error + moved <= np.maximum(CERTIFIED * total, NOTHING)):
        return total, error + moved
    away = np.abs(np.where(np.isfinite(nu), nu, 0.0))
    closer = found.bound * (away * on * (1.0 - on)).sum(-1)
    excluded = (away * ((nu < 0.0) & (on == 0.0))).sum(-1)  # products with 0 are not rounded
    return total, error - 4.0 * UNIT_ROUNDOFF * excluded + np.minimum(moved, closer)


def _from_distributions(solver: Any) -> Float64:
    """H from log-odds and log-probabilities with relative accuracy, or around the mode where digits are lost."""
    problem = solver.problem
    family = problem.tree.family
    offset = family.set_offset
    tables = [problem.tables[:, offset[s] : offset[s + 1]] for s in range(family.n_sets)]
    counts = [solver.counts(s) for s in range(family.n_sets)]
    found = solver.sums
    bound = 2.0 * found.bound
    quick, error = moments.cross_entropy(solver.odds(), problem.nu, found.log_mean, tables, counts, bound)
    rows = np.flatnonzero(~(error <= np.maximum(ENOUGH * quick, NOTHING)))
    if not len(rows):
        return quick
    out, walk = quick.copy(), pairs_of_counts(problem.tree)
    if walk > thresholds.SHORT_WALK:
        found, change = _around_mode(type(solver)(problem.take(rows), solver.method))
        sure = change <= np.maximum(ENOUGH * found, NOTHING)
        out[rows] = np.where(sure, found, np.maximum(quick[rows], 0.0))
        rows = rows[~sure]
    if walk * len(rows) <= thresholds.LARGEST_WALK:
        announce(walk * len(rows), TANGENT, "An entropy")
        part = problem.take(rows)
        out[rows] = entropy_by_parts(without_edges(problem.tree.program, part.nu, part.tables))
    return out


def _around_mode(solver: Any) -> tuple[Float64, Float64]:
    """H of every model from terms that are not negative, and how sure the integral is.

    The smallest entropy keeps its digits; large ones, of modes far from one another, have another way.

    With the mode y*, the number N(y) of variables in which y differs from it, and p_u(y) ~ p(y) u^N(y),

        H = -log p(y*) + E[log w(y*) - log w(y)],    -log p(y*) = integral_0^1 E_u[N] / u du.
    """
    problem = solver.problem
    on = solver.best()[0].astype(bool)
    side = np.where(on, 1.0, -1.0)

    def changes(solved: Any) -> Float64:
        return np.asarray(expit(-side * solved.odds()))

    def share(u: float) -> Float64:
        nearer = replace(problem, nu=problem.nu - side * math.log(u), log_leaves=None)
        return np.asarray(changes(type(solver)(nearer, solver.method)).sum(1) / u)

    shift = _threshold(problem, on)
    free = np.isfinite(problem.nu)
    changed = changes(solver)
    apart = side * np.where(free, problem.nu - shift, 0.0) * changed
    surprise, change = integral(share, changed.sum(1))
    total = surprise + apart.sum(1)
    family = problem.tree.family
    for s in range(family.n_sets):
        members = family.order[family.start[s] : family.stop[s]]
        table = problem.tables[:, family.set_offset[s] : family.set_offset[s + 1]]
        if family.set_parent[s] < 0:
            table = table + shift[:, members[:1]] * np.arange(len(members) + 1.0)
        best = np.take_along_axis(table, on[:, members].sum(1, keepdims=True), 1)
        probs = np.exp(solver.counts(s))
        lower = best - np.where(table > -math.inf, table, best)
        total = total + (probs * lower).sum(1)
    return np.asarray(total), change


def _threshold(problem: Any, on: Any) -> Float64:
    """A number (B, D) for all log-odds of an outermost set, between those that are on in the mode and the others.

    Taken off the log-odds and put on the table of the set it changes no weight, and what the set decides is left small.
    """
    family, nu = problem.tree.family, problem.nu
    shift = np.zeros(nu.shape)
    for s in np.flatnonzero(family.set_parent < 0):
        members = family.order[family.start[s] : family.stop[s]]
        own, chosen = nu[:, members], on[:, members]
        finite = np.isfinite(own)
        low = np.where(finite & ~chosen, own, -math.inf).max(1)
        high = np.where(finite & chosen, own, math.inf).min(1)
        middle = 0.5 * (np.where(low > -math.inf, low, 0.0) + np.where(high < math.inf, high, 0.0))
        shift[:, members] = np.where(low <= high, np.clip(0.0, low, high), middle)[:, None]
    return shift
