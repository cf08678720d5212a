"""Tilting a nested model: moving the mean of each component's count to where its posterior lies.

Adding s to all log-odds of a component and -s z to its root table changes nothing but the rounding errors. The right
s is found by iteration: the posterior of the tilted model tells its mean count, the tilt that gives the independent
variables that mean is the next s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Float64
from ...memo import once
from ...structure.nested.family import follow
from ...structure.nested.tree import TreeProgram
from .. import native
from ..answer import Answer, posterior
from ..ladder import improve
from ..problem import Rows
from ..tilt import cumulant_change, tilt_to_mean
from .characteristic import solve_batch

_ROUNDS = 4
_SAMPLE = 1 << 12  # variables by which tilts are judged: messages change little from one variable to the next

_UNSEEN = 64.0  # nats below the whole at which counts are left out
_NEEDED = 30.0  # nats: a hundredth of 1e-10, with room
_CERTAIN = 40.0  # log-odds of a variable that is as good as decided
_FAR = 12.0  # standard deviations: the mass beyond is e^-72, which no pass sees


class TiltedPass(Protocol):
    """A pass under tilts of the roots, (B, roots), about counts near their means: the answer is that without tilts."""

    def __call__(self, nu: Float64, tables: Float64, tilt: Float64, centre: Float64) -> Answer: ...


def serves(program: TreeProgram) -> bool:
    """Whether one group holds all variables."""
    return len(program.roots) == 1 and int(program.size[program.roots[0]]) == program.n_leaves


def needed(program: TreeProgram, nu: Float64, tables: Float64) -> bool:
    """Whether no model can do without a tilt: all counts that the outermost table allows are far from the prior mean.

    Judged by a sample of the variables, with room for its errors.
    """
    if not serves(program):
        return False
    n, (root,) = program.n_leaves, _of_roots(program)
    share, outermost = root.share, tables[:, root.cells]
    for b, row in enumerate(nu[:, root.seen]):
        likely = expit(row)
        mean, spread = share * likely.sum(), np.sqrt(share * np.sum(likely * (1.0 - likely)))
        reach = _FAR * spread + 4.0 * share * np.sqrt(len(row)) * likely.std() + 1.0
        near = slice(max(0, int(mean - reach)), min(n, int(mean + reach)) + 1)
        if np.any(outermost[b if len(outermost) > 1 else 0, near] > -np.inf):
            return False
    return True


def climb_under_tilts(
    program: TreeProgram, nu: Float64, tables: Float64, run: TiltedPass, *, least: float = 0.0
) -> Answer:
    """Run under better and better tilts until every model is certified, at most a few rounds.

    The messages of a model that keeps only the table of a root are nearly the same for all its variables, and that is
    the first tilt: it costs one flat model. Where no first guess moves a mean by more than about `least` standard
    deviations there is nothing to gain, and no answer: the bounds are infinite.
    """
    alone = np.zeros(nu.shape)
    for root in _of_roots(program):
        rows = Rows(*(np.ascontiguousarray(x) for x in (nu[:, root.variables], tables[:, root.cells])))
        found = native.flat(rows, False) if native.present() else solve_batch(rows.nu, rows.full_tables)
        alone[:, root.variables] = found.messages

    def guess(messages: Float64) -> tuple[Float64, Float64]:
        each = [(*_tilt_of(nu[:, r.seen], messages[:, r.seen]), r.share) for r in _of_roots(program)]
        means = [np.round(share * mean) for _, mean, share in each]
        return np.stack([tilt for tilt, _, _ in each], axis=1), np.stack(means, axis=1)

    first = guess(alone)
    if least > 0 and np.all(np.abs(first[0]) * np.sqrt(0.25 * program.size[program.roots]) < least):
        return Answer.none(nu.shape)
    return improve(lambda tilts: run(nu, tables, *tilts), first, lambda found: guess(found.messages), _ROUNDS)


class _Root(NamedTuple):
    """A set that is in no other."""

    variables: Any  # an index: all variables, or numbers
    seen: Any  # those that are looked at ...
    share: float  # ... and how many each of these stands for
    cells: slice  # of its table


def _of_roots(program: TreeProgram) -> list[_Root]:
    return once(program, "roots by tilts", lambda: list(_made_roots(program)))


def _made_roots(program: TreeProgram) -> Iterator[_Root]:
    if serves(program):
        yield _whole(program.n_leaves, int(program.table_offset[int(program.roots[0]) - program.n_leaves]))
        return
    owner, starts = _roots(program), program.table_offset[program.roots - program.n_leaves].tolist()
    ends = np.searchsorted(np.sort(owner), np.arange(len(starts)))
    for own, start in zip(np.split(np.argsort(owner, kind="stable"), ends)[1:], starts):
        step = max(1, len(own) // _SAMPLE)
        yield _Root(own, own[::step], len(own) / len(own[::step]), slice(start, start + len(own) + 1))


def _whole(n: int, start: int = 0) -> _Root:
    step = max(1, n // _SAMPLE)
    return _Root(
        slice(None), slice(None, None, step), n / len(range(0, n, step)), slice(start, start + n + 1)
    )


def outermost_cells(program: TreeProgram) -> slice:
    """Where the table of the group that holds all variables is among all."""
    return _of_roots(program)[0].cells


def _tilt_of(nu: Float64, messages: Float64) -> tuple[Float64, Float64]:
    """The tilts (B,) that give independent variables the mean count that the messages give them, and these means."""
    likely = expit(posterior(nu, messages))
    free = np.isfinite(nu) & np.isfinite(likely)
    wanted = np.sum(np.where(free, likely, 0.0), axis=1)
    number = free.sum(axis=1)
    means = np.sum(np.where(np.isnan(likely), 0.0, likely), axis=1)
    hidden = np.where(free, nu, -np.inf)  # counts nothing under any tilt
    return tilt_to_mean(hidden, np.clip(wanted, 0.05, np.maximum(number - 0.05, 0.05)), near=1e-6), means


def shifted_pass(program: TreeProgram, rung: Callable[[Float64, Float64], Answer]) -> TiltedPass:
    """A pass that knows of no tilts as one that does."""
    roots = _of_roots(program)

    def run(nu: Float64, tables: Float64, tilt: Float64, centre: Float64) -> Answer:
        shift = _of_leaves(roots, tilt, nu.shape)
        found = rung(nu + shift, _tilted_tables(roots, tables, tilt, centre))
        change = cumulant_change(nu, shift)[0].sum(-1) - (tilt * centre).sum(-1)
        return Answer(
            found.log_mean + change, lambda: found.messages + shift, None, found.bound, doubt=found.doubt
        )

    return run


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
    lengths, places = np.diff(program.set_offset), np.arange(program.table_total)
    own, parent = _innermost(program)
    spread = np.where(np.abs(odds) < room, expit(odds) * expit(-odds), 0.0)
    moved = np.where(spread > 0.0, spread * np.where(np.isfinite(messages), messages, 0.0), 0.0)
    held, sets = own >= 0, len(lengths)
    outermost = follow(np.where(parent >= 0, parent, np.arange(sets)))
    sums = np.stack([_sums_by(own, x, sets) for x in (moved, spread)])
    of_all = np.stack([_sums_by(outermost, x, sets) for x in sums])[..., outermost]
    total, weight = np.where(sums[1] > 0.0, sums, of_all)
    tilt = np.divide(total, weight, out=np.zeros(total.shape), where=weight > 0.0)
    change = tilt - np.where(parent >= 0, tilt[:, parent], 0.0)
    shifted = np.array(nu)
    shifted[:, held] += tilt[:, own[held]]
    tables = np.broadcast_to(tables, (len(nu), program.table_total))
    away = places - np.repeat(level, lengths, axis=1)
    height = np.repeat(np.take_along_axis(tables, level, 1), lengths, axis=1)
    weights = (tables - height) - np.repeat(change, lengths, axis=1) * away
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
    return once(program, "innermost sets", lambda: _made_innermost(program))


def _made_innermost(program: TreeProgram) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
    roots = [_whole(tables.shape[1] - 1)] if program is None else _of_roots(program)
    shift = np.zeros((len(nu), len(roots)))
    for c, root in enumerate(roots):
        for b, row in enumerate(nu[:, root.variables]):
            finite = np.isfinite(row)
            own = row[finite]
            if len(own):
                sent = messages[b, root.variables][finite][:: max(1, len(own) // _SAMPLE)]
                far = _CERTAIN + math.log(len(own))
                shift[b, c] = np.median(np.clip(sent, -own.max() - far, -own.min() + far))
    leaf_shift = _of_leaves(roots, shift, nu.shape)
    likely = native.posterior_marginals(nu, np.zeros(nu.shape) + leaf_shift)
    centre = np.round(_sums(roots, likely))

    def away(states: NDArray[Any]) -> Float64:
        return np.asarray((shift * (_sums(roots, states) - centre)).sum(1))

    return leaf_shift, _tilted_tables(roots, tables, shift, centre), away


def _of_leaves(roots: list[_Root], shift: Float64, shape: tuple[int, ...]) -> Float64:
    """What every leaf is tilted by, (B, n), or (B, 1) if that is the same."""
    if len(roots) == 1 and isinstance(roots[0].variables, slice):
        return shift
    out = np.zeros(shape)
    for c, root in enumerate(roots):
        out[:, root.variables] = shift[:, c, None]
    return out


def _tilted_tables(roots: list[_Root], tables: Float64, shift: Float64, centre: Float64) -> Float64:
    """Tables (B, T) under tilts about counts near the means: s z itself would round where s (z - centre) does not."""
    weights = np.array(np.broadcast_to(tables, (len(shift), tables.shape[1])))
    for c, root in enumerate(roots):
        away = np.arange(root.cells.stop - root.cells.start) - centre[:, c, None]
        weights[:, root.cells] -= shift[:, c, None] * away
    return weights


def _sums(roots: list[_Root], values: NDArray[Any]) -> Float64:
    """Sums of values (B, n) over the variables of every root, (B, roots)."""
    return np.stack([values[:, root.variables].sum(1, dtype=np.float64) for root in roots], axis=1)


def _roots(program: TreeProgram) -> NDArray[np.int64]:
    """Index of every leaf's component among `program.roots`, -1 for a free leaf."""
    top = follow(np.where(program.parent >= 0, program.parent, np.arange(program.n_nodes)))
    leaf = top[: program.n_leaves]
    place = np.searchsorted(program.roots, leaf)
    return np.where(leaf >= program.n_leaves, place, -1)


def _sums_by(owner: NDArray[np.int64], values: NDArray[Any], count: int) -> Float64:
    """Sums of values (B, n) over the variables of every owner, (B, count); -1 owns nothing."""
    held = owner >= 0
    if count == 1:
        return np.asarray(values[:, held].sum(1, keepdims=True))
    return np.stack([np.bincount(owner[held], row[held], count) for row in values])
