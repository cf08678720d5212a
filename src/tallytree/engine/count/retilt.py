"""Tilting a nested model: moving the mean of each component's count to where its posterior lies.

Adding s to all log-odds of a component and -s z to its root table changes nothing but the rounding errors. The right
s is found by iteration: the posterior of the tilted model tells its mean count, the tilt that gives the independent
variables that mean is the next s.

Tilting a nested model whose variables all lie in one group, by passes that know of tilts.

As in :mod:`~tallytree.engine.count.retilt`, with one tilt per model. The messages of the model that keeps only the
table of the outermost group are nearly the same for all variables, and that is the first tilt: it costs one flat model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Float64
from ...structure.nested.family import follow
from ...structure.nested.tree import TreeProgram
from .. import native
from ..answer import Answer, posterior
from ..ladder import improve
from ..problem import Rows
from ..tilt import cumulant_change, posterior_rate, summarise, tilt_to_mean

_ROUNDS = 4
_SAMPLE = 1 << 12  # variables by which tilts are judged: messages change little from one variable to the next

_UNSEEN = 64.0  # nats below the whole at which counts are left out
_NEEDED = 30.0  # nats: a hundredth of 1e-10, with room
_CERTAIN = 40.0  # log-odds of a variable that is as good as decided
_FAR = 12.0  # standard deviations: the mass beyond is e^-72, which no pass sees


class TiltedPass(Protocol):
    """A pass that returns the answer of the model without the tilt."""

    def __call__(self, nu: Float64, tables: Float64, *, tilt: Float64, centre: Float64) -> Answer: ...


def serves(program: TreeProgram) -> bool:
    """Whether one group holds all variables."""
    return len(program.roots) == 1 and int(program.size[program.roots[0]]) == program.n_leaves


def needed(program: TreeProgram, nu: Float64, tables: Float64) -> bool:
    """Whether no model can do without a tilt: all counts that the outermost table allows are far from the prior mean.

    Judged by a sample of the variables, with room for its errors.
    """
    if not serves(program):
        return False
    n, seen, share = _sampled(program)
    outermost = tables[:, outermost_cells(program)]
    for b, row in enumerate(nu[:, seen]):
        likely = expit(row)
        mean, spread = share * likely.sum(), np.sqrt(share * np.sum(likely * (1.0 - likely)))
        reach = _FAR * spread + 4.0 * share * np.sqrt(len(row)) * likely.std() + 1.0
        near = slice(max(0, int(mean - reach)), min(n, int(mean + reach)) + 1)
        if np.any(outermost[b if len(outermost) > 1 else 0, near] > -np.inf):
            return False
    return True


def climb_under_common_tilt(
    program: TreeProgram, nu: Float64, tables: Float64, run: TiltedPass, *, least: float = 0.0
) -> Answer:
    """Run under better and better tilts until every model is certified, at most a few rounds.

    Where no first guess moves a mean by more than about `least` standard deviations there is nothing to gain, and no
    answer: the bounds are infinite.
    """
    n, seen, share = _sampled(program)
    simpler = native.flat(Rows(nu, np.ascontiguousarray(tables[:, outermost_cells(program)])), False)
    tilt, mean = _tilt_of(nu[:, seen], simpler.messages[:, seen])
    if least > 0 and np.all(np.abs(tilt) * np.sqrt(0.25 * n) < least):
        return Answer.none(nu.shape)

    def under(guess: tuple[Float64, Float64]) -> Answer:
        return run(nu, tables, tilt=guess[0], centre=np.round(share * guess[1]))

    return improve(under, (tilt, mean), lambda found: _tilt_of(nu[:, seen], found.messages[:, seen]), _ROUNDS)


def _sampled(program: TreeProgram) -> tuple[int, slice, float]:
    """The number of variables, those that are looked at, and how many each of these stands for."""
    n = program.n_leaves
    seen = slice(None, None, max(1, n // _SAMPLE))
    return n, seen, n / len(range(n)[seen])


def outermost_cells(program: TreeProgram) -> slice:
    """Where the table of the group that holds all variables is among all."""
    offset = int(program.table_offset[int(program.roots[0]) - program.n_leaves])
    return slice(offset, offset + program.n_leaves + 1)


def _tilt_of(nu: Float64, messages: Float64) -> tuple[Float64, Float64]:
    """The tilts (B,) that give independent variables the mean count that the messages give them, and these means."""
    likely = expit(posterior(nu, messages))
    free = np.isfinite(nu) & np.isfinite(likely)
    wanted = np.sum(np.where(free, likely, 0.0), axis=1)
    number = free.sum(axis=1)
    means = np.sum(np.where(np.isnan(likely), 0.0, likely), axis=1)
    hidden = np.where(free, nu, -np.inf)  # counts nothing under any tilt
    return tilt_to_mean(hidden, np.clip(wanted, 0.05, np.maximum(number - 0.05, 0.05)), near=1e-6), means


ShiftedPass = Callable[[Float64, Float64], Answer]


def climb_to_posterior_mean(
    program: TreeProgram,
    nu: Float64,
    tables: Float64,
    rung: ShiftedPass,
    *,
    least: float = 0.0,
) -> Answer:
    """Run `rung` under better and better tilts until it certifies every model, at most a few rounds.

    Where no first guess moves a mean by more than about `least` standard deviations there is nothing to gain, and no
    answer: the bounds are infinite.
    """
    root_of_leaf = _roots(program)
    z = _root_counts(program)
    tables = np.broadcast_to(tables, (nu.shape[0], tables.shape[1]))
    shift = _first_guess(program, nu, tables, root_of_leaf)
    if least > 0 and np.all(np.abs(shift) * np.sqrt(0.25 * program.size[program.roots]) < least):
        return Answer.none(nu.shape)

    def under(shift: Float64) -> Answer:
        leaf_shift, centre, weights = _shifted(nu, tables, shift, root_of_leaf, z)
        found = _untilted(rung(nu + leaf_shift, weights), nu, leaf_shift)
        found.log_mean = found.log_mean - (shift * centre).sum(-1)
        return found

    return improve(
        under, shift, lambda found: _posterior_tilts(nu, found, root_of_leaf, len(program.roots)), _ROUNDS
    )


def around_posterior(
    program: TreeProgram, nu: Float64, tables: Float64, messages: Float64, log_beliefs: Float64
) -> tuple[Float64, Float64]:
    """Models at their posterior (:func:`at_posterior`), cut to the counts that it makes possible.

    What is left out moves a covariance by less than a hundredth of 1e-10 of the standard deviation of any variable that
    is left.
    """
    odds = posterior(nu, messages)
    away = np.abs(odds)
    open_odds = np.where(away < _room(program), away, 0.0).max(axis=1, initial=0.0)
    seen = _NEEDED + 0.5 * open_odds + 2.0 * math.log(program.table_total)
    starts, lengths = program.set_offset[:-1], np.diff(program.set_offset)
    low = np.maximum.reduceat(log_beliefs, starts, axis=1) - seen[:, None]
    likely = log_beliefs >= np.repeat(low, lengths, axis=1)
    last = np.maximum.reduceat(np.where(likely, np.arange(program.table_total), 0), starts, axis=1)
    shifted, weights = at_posterior(program, nu, tables, odds, messages, last)
    return shifted, np.where(likely, weights, -np.inf)


def _room(program: TreeProgram) -> float:
    """Log-odds beyond which variables are as good as decided: all are in all but e^-64 of the weight."""
    return _UNSEEN + math.log(program.n_leaves)


def at_posterior(
    program: TreeProgram,
    nu: Float64,
    tables: Float64,
    odds: Float64,
    messages: Float64,
    level: NDArray[np.int64],
) -> tuple[Float64, Float64]:
    """Log-odds and tables (B, T) of models with the same law but for e^-64 of the weight.

    The variables of every set have the tilt that makes their log-odds posterior ones, on the whole; where these differ
    the tables of sets inside sets take it back. Decided variables are fixed, and the tables are relative to their
    entries at `level` (B, sets), places of counts in the middle of the law.
    """
    room = _room(program)
    starts, lengths = program.set_offset[:-1], np.diff(program.set_offset)
    own, parent = _innermost(program)
    spread = np.where(np.abs(odds) < room, expit(odds) * expit(-odds), 0.0)
    moved = np.where(spread > 0.0, spread * np.where(np.isfinite(messages), messages, 0.0), 0.0)
    held, sets = own >= 0, len(starts)
    outermost = follow(np.where(parent >= 0, parent, np.arange(sets)))
    shifted, weights = np.array(nu), np.empty((len(nu), program.table_total))
    for b in range(len(nu)):
        own_sums = _sums_by(own, np.stack([moved[b], spread[b]]), sets)
        of_all = np.stack([np.bincount(outermost, row, sets)[outermost] for row in own_sums])
        total, weight = np.where(own_sums[1] > 0.0, own_sums, of_all)
        tilt = np.divide(total, weight, out=np.zeros(sets), where=weight > 0.0)
        change = tilt - np.where(parent >= 0, tilt[parent], 0.0)
        shifted[b, held] += tilt[own[held]]
        row = tables[b % len(tables)]
        away = np.arange(program.table_total) - np.repeat(level[b], lengths)
        weights[b] = (row - np.repeat(row[level[b]], lengths)) - np.repeat(change, lengths) * away
    shifted[odds > room], shifted[odds < -room] = np.inf, -np.inf
    return shifted, weights


def near_means(program: TreeProgram, tables: Float64, odds: Float64) -> NDArray[np.int64]:
    """Of every set the place (B, sets) of the possible count that is nearest to its mean in the packed tables."""
    starts, lengths = program.set_offset[:-1], np.diff(program.set_offset)
    own, parent = _innermost(program)
    sums = _sums_by(own, expit(odds), len(starts))
    for s, above in enumerate(parent.tolist()):  # children come first
        if above >= 0:
            sums[:, above] += sums[:, s]
    places = np.arange(program.table_total)
    away = np.abs(places - np.repeat(starts, lengths) - np.repeat(sums, lengths, axis=1))
    away = np.where(tables > -math.inf, away, math.inf)
    nearest = away == np.repeat(np.minimum.reduceat(away, starts, axis=1), lengths, axis=1)
    return np.asarray(np.maximum.reduceat(np.where(nearest, places, 0), starts, axis=1))


def _innermost(program: TreeProgram) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The smallest set around every leaf, and around every set, -1 where there is none."""
    nodes = np.arange(program.n_nodes)
    place = np.full(program.n_nodes, -1)
    place[program.set_node] = np.arange(len(program.set_node))
    up = np.where(program.parent >= 0, program.parent, nodes)
    around = place[follow(np.where(place >= 0, nodes, up))]
    parent = np.where(up == nodes, -1, around[up])
    return around[: program.n_leaves], parent[program.set_node]


def at_messages(
    program: TreeProgram | None, nu: Float64, tables: Float64, messages: Float64
) -> tuple[Float64, Float64, Callable[[NDArray[Any]], Float64]]:
    """Tilts that make log-odds posterior ones, on the whole: of every leaf, (B, n), and the tables under them.

    The third answer is a function: ``s (c - c0)`` of all roots, (B,), for configurations or means (B, n). Messages are
    much alike inside a component, where they are finite; others say that all are on, or off. A single set of all
    variables needs no program.
    """
    root_of_leaf = None if program is None else _roots(program)
    z = _RootCounts(0, np.arange(tables.shape[1]), True) if program is None else _root_counts(program)
    shift = np.zeros((len(nu), 1 if program is None else len(program.roots)))
    for c in range(shift.shape[1]):
        inside = slice(None) if root_of_leaf is None else np.flatnonzero(root_of_leaf == c)
        for b in range(len(nu)):
            finite = np.isfinite(nu[b, inside])
            own = nu[b, inside][finite]
            if len(own):
                sent = messages[b, inside][finite][:: max(1, len(own) // _SAMPLE)]
                far = _CERTAIN + math.log(len(own))
                shift[b, c] = np.median(np.clip(sent, -own.max() - far, -own.min() + far))
    leaf_shift, centre, weights = _shifted(nu, tables, shift, root_of_leaf, z)

    def away(states: NDArray[Any]) -> Float64:
        return np.asarray((shift * (_sums_by(root_of_leaf, states, shift.shape[1]) - centre)).sum(1))

    return leaf_shift, weights, away


def _shifted(
    nu: Float64, tables: Float64, shift: Float64, root_of_leaf: NDArray[np.int64] | None, z: _RootCounts
) -> tuple[Float64, Float64, Float64]:
    """What every leaf is tilted by, (B, n), the counts that tables are about, (B, components), and the tables.

    They are near the mean: s z itself would round where s (z - centre) does not.
    """
    leaf_shift = shift if root_of_leaf is None else np.where(root_of_leaf >= 0, shift[:, root_of_leaf], 0.0)
    likely = native.posterior_marginals(nu, np.zeros(nu.shape) + leaf_shift)
    centre = np.round(_sums_by(root_of_leaf, likely, shift.shape[1]))
    owner = np.atleast_1d(z.owner)
    weights = tables - shift[:, owner] * (z.at_root * (z.counts - centre[:, owner]))
    return leaf_shift, centre, np.ascontiguousarray(weights)


def _first_guess(
    program: TreeProgram, nu: Float64, tables: Float64, root_of_leaf: NDArray[np.int64]
) -> Float64:
    """Tilts to the posterior means that the root tables alone would give: a saddle-point estimate."""
    tilts = np.zeros((nu.shape[0], len(program.roots)))
    offsets = program.table_offset[program.roots - program.n_leaves]
    for c, (root, offset) in enumerate(zip(program.roots.tolist(), offsets.tolist())):
        inside = np.flatnonzero(root_of_leaf == c)
        for b in range(nu.shape[0]):
            block = summarise(nu[b, inside])
            if block.n == 0:
                continue
            rate = posterior_rate(block, tables[b, offset : offset + int(program.size[root]) + 1])
            top = rate.log_mass.max()
            if np.isfinite(top):
                weight = np.exp(rate.log_mass - top)
                mean = float(weight @ np.arange(len(weight)) / weight.sum())
                tilts[b, c] = block.solve(min(max(mean, 0.05), block.n - 0.05))
    return tilts


class _RootCounts(NamedTuple):
    owner: NDArray[np.int64] | int
    counts: NDArray[Any]
    at_root: NDArray[np.bool_] | bool


def _root_counts(program: TreeProgram) -> _RootCounts:
    """For every cell of the packed tables: its component, its count, and whether the table is a root's."""
    lengths = np.diff(program.set_offset)
    node = np.repeat(program.set_node, lengths)
    count = (np.arange(program.table_total) - np.repeat(program.set_offset[:-1], lengths)).astype(np.float64)
    at_root = program.parent[node] < 0
    owner = np.searchsorted(program.roots, np.where(at_root, node, program.roots[0]))
    return _RootCounts(owner, count, at_root)


def _roots(program: TreeProgram) -> NDArray[np.int64]:
    """Index of every leaf's component among `program.roots`, -1 for a free leaf."""
    top = follow(np.where(program.parent >= 0, program.parent, np.arange(program.n_nodes)))
    leaf = top[: program.n_leaves]
    place = np.searchsorted(program.roots, leaf)
    return np.where(leaf >= program.n_leaves, place, -1)


def _untilted(found: Answer, nu: Float64, shift: Float64) -> Answer:
    """The same answer relative to the law without tilt: K(s) - K(0) joins log_mean, s joins the messages."""
    change = cumulant_change(nu, shift)[0].sum(-1)
    return Answer(
        found.log_mean + change, lambda: found.messages + shift, None, found.bound, doubt=found.doubt
    )


def _sums_by(owner: NDArray[np.int64] | None, values: NDArray[Any], count: int) -> Float64:
    """Sums of values (B, n) over the variables of every owner, (B, count); -1 owns nothing, None everything."""
    if owner is None:
        return np.asarray(values.sum(1, dtype=np.float64, keepdims=True))
    held = owner >= 0
    return np.stack([np.bincount(owner[held], row[held], count) for row in values])


def _posterior_tilts(nu: Float64, found: Answer, root_of_leaf: NDArray[np.int64], count: int) -> Float64:
    means = expit(posterior(nu, found.messages))
    tilts = np.zeros((nu.shape[0], count))
    for b in range(nu.shape[0]):
        for c in range(count):
            inside = np.flatnonzero(root_of_leaf == c)
            block = summarise(nu[b, inside])
            if block.n:
                wanted = float(np.nansum(means[b, inside])) - block.forced
                tilts[b, c] = block.solve(min(max(wanted, 0.05), block.n - 0.05))
    return tilts
