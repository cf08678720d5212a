"""Expectations of functions of a sum of events, its probabilities and tails, and draws given such a function.

Short sums, and those whose probabilities span more than a tilt can bring together, are exact: positive terms are added,
in plain numbers or logarithms. Long ones are solved on windows under a tilt, and an answer counts only where its
certificate holds. With u the law of the tilted sum and ``d(k) = f(k) exp(-s k)``, scaled to a largest value of 1,

    |dZ| / Z  <=  ( min(e_1, e_max sum d) + exp(-KEPT) ) / Z,    Z = sum_k u(k) d(k),

where e_1 and e_max bound the errors of u in the sum and in one cell. The message to an outcome is certified in the same
way, relative to itself. What fails is asked in another way: a function of the sum is cut into
pieces, whose expectations add up without cancellation, each under a tilt of its own; an outcome is conditioned on; what
a tilt leaves undecided is added alone (`undecided.py`); and at last comes the exact tree. Where a table has to be cut
is known before any pass, from Chernoff's rate of the sum. Certified is a relative error of 1e-10.

Laws, tails, quantiles and contributions of rare events, 1e-3 to 1e-16 of them expected, cost what others cost. What
still takes the exact tree are tails far below the smallest float64 where about 1e-16 events are expected, and
conditional probabilities given sums that need several events where fewer than about 1e-6 are: there the sum has a
probability below 1e-12, and the outcomes span further powers of the expected number.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicHermiteSpline

from ...arrays import Bools, Float64, Ints
from ..ladder import SUMMED, announce
from ..law import indices_of, log_side
from ..log_sums import anchor, log_sum
from ..thresholds import SHORT_PASS
from .events import Events, Weight, mean_under, tilt_of_rare, tilt_to
from .tree import LOGS, PLAIN, WINDOWS, SumTree
from .undecided import Undecided, undecided

SHORT = 1024  # cells up to which the exact tree is quick enough for everything
FEW = 4096  # configurations that are listed one by one
CERTIFIED = 1e-10  # relative error that an answer may have
_SURE = 5e-11  # of one probability
_DEEPEST = 600.0  # nats: the rarest configuration, times the least f, is still a normal number
_PIECES = 24  # of a function, before the exact tree is cheaper
_SINGLE = 64  # outcomes that are conditioned on, one by one
_LISTED = 1 << 36  # events times cells up to which possible sums are listed: a second
_ROOM = 1 << 21  # cells of the rows that go into one tree
_STEEP = 8.0  # nats by which a table may rise from the likeliest cell of a piece, beyond its tilt
_DEEP = 40.0  # nats below its likeliest cell from which on cells of a piece that fails become others
_RARE = 0.5  # events that leave their likeliest outcomes: fewer have a tilt of their own


class Expectation(NamedTuple):
    """Log E[f] (B,), the log-probabilities (B, n, O) of all outcomes given f, and the mean (B,) of log f then.

    Without outcomes only the first is of meaning.
    """

    log_mean: Float64
    log_outcomes: Float64 = np.zeros(0)
    log_f: Float64 = np.zeros(0)


def expectation(events: Events, f: Weight, *, outcomes: bool) -> Expectation:
    """E[f] and, if asked for, what f says about the outcomes of every event.

    Notes
    -----
    Cost: near-linear in the number of events and the cells that matter, O(most^2) at worst.
    Accuracy: 1e-10, relative, of E[f] and of every probability.
    """
    batch, n, width = events.log_p.shape
    log_mean = np.full(batch, -math.inf)
    found, log_f = np.full((batch, n, width) if outcomes else 0, -math.inf), np.zeros(batch)

    def put(rows: Any, answer: Expectation) -> None:
        log_mean[rows] = answer.log_mean
        if outcomes:
            found[rows], log_f[rows] = answer.log_outcomes, answer.log_f

    if n and width**n <= FEW and events.most > SHORT:
        put(slice(None), _listed(events, f, outcomes))
    elif events.most <= SHORT or n < 2:
        put(slice(None), _exact(events, f, outcomes))
    else:
        room = max(1, _ROOM // (events.most + 2 * n))
        for start in range(0, batch, room):
            rows = np.arange(start, min(batch, start + room))
            failed = rows
            if batch > 1 or f.table is None:
                answer, _, bound, _ = _on_windows(events.take(rows), f.take(rows), outcomes)
                put(rows, answer)
                failed = rows[~(bound <= CERTIFIED)]
            for row in failed.tolist():
                one = np.array([row])
                put(one, _in_pieces(events.take(one), f.take(one), outcomes))
    return Expectation(log_mean, found, log_f)


def _exact(events: Events, f: Weight, outcomes: bool) -> Expectation:
    """By adding positive terms: in plain numbers where they have the range, in logarithms otherwise."""
    log_p = events.log_p
    log_f = f.at(np.zeros(len(log_p), np.int64), events.most + 1)
    scale = anchor(log_f)
    if not len(events.values):
        return Expectation(log_f[:, 0], log_p, log_f[:, 0])
    least = np.where(log_f > -math.inf, log_f - scale, 0.0).min(axis=1, initial=0.0)
    log_mean, found = np.full(len(log_p), -math.inf), np.full(log_p.shape, -math.inf)
    mean_log_f = np.zeros(len(log_p))
    plain = _in_range(events, least)
    if events.most > SHORT_PASS:
        cells = [reachable(events.take([row])).sum() for row in np.flatnonzero(~plain)]
        announce(sum(0.5 * float(some) ** 2 for some in cells), SUMMED, "A weighted sum")
    for part, tree in _exact_trees(events, plain, keep=outcomes):
        some = log_f[part] - scale[part]
        law, with_logs = tree.root.law[:, 0], tree.numbers == LOGS
        with np.errstate(divide="ignore"):
            total = log_sum(law + some) if with_logs else np.log((law * np.exp(some)).sum(axis=1))
            log_mean[part] = total + scale[part, 0]
            if outcomes:
                given, _ = tree.outcome_messages(some if with_logs else np.exp(some))
                found[part] = _normalised(log_p[part] + (given if with_logs else np.log(given)))
                joint = (law if with_logs else np.log(law)) + some
                mean_log_f[part] = mean_under(np.exp(joint - anchor(joint)), log_f[part])
    return Expectation(log_mean, found, mean_log_f)


def _in_range(events: Events, least: Float64 | float = 0.0) -> Bools:
    """Rows (B,) whose rarest configuration, times ``exp(least)``, plain numbers can hold."""
    rarest = np.where(events.log_p > -math.inf, events.log_p, 0.0).min(axis=2, initial=0.0)
    return np.asarray(rarest.sum(axis=1) + least > -_DEEPEST)


def _exact_trees(events: Events, plain: Bools, *, keep: bool) -> Iterator[tuple[Ints, SumTree]]:
    """Trees of positive terms, some rows at a time: in plain numbers where that is said, in logarithms otherwise."""
    for numbers, rows in ((PLAIN, np.flatnonzero(plain)), (LOGS, np.flatnonzero(~plain))):
        for part in np.array_split(rows, max(1, len(rows) * (events.most + 1) // _ROOM)):
            if len(part):
                yield part, SumTree(events.take(part), numbers, keep=keep)


def _normalised(log_joint: Float64) -> Float64:
    """Log-probabilities of the outcomes of every event; of no meaning where there is none."""
    total = log_sum(log_joint, keepdims=True)
    return log_joint - np.where(np.isfinite(total), total, 0.0)


def _listed(events: Events, f: Weight, outcomes: bool) -> Expectation:
    """All configurations, for a few events of large values."""
    chosen, sums, log_p = configurations(events)
    log_f = np.concatenate([f.at(np.full(len(log_p), k), 1) for k in sums.tolist()], axis=1)
    log_mean = log_sum(log_p + log_f)
    if not outcomes:
        return Expectation(log_mean)
    width = events.values.shape[1]
    joint = [
        log_sum(np.where(chosen[:, i] == o, log_p + log_f, -math.inf))
        for i in range(len(events.values))
        for o in range(width)
    ]
    found = _normalised(np.stack(joint, axis=1).reshape(events.log_p.shape))
    share = np.exp(log_p + log_f - anchor(log_p + log_f))
    return Expectation(log_mean, found, mean_under(share, log_f))


def configurations(events: Events) -> tuple[Ints, Ints, Float64]:
    """Which outcomes (C, n), their sums (C,) and log-probabilities (B, C)."""
    n, width = events.values.shape
    chosen = np.indices((width,) * n).reshape(n, -1).T
    each = np.arange(n)
    return chosen, events.values[each, chosen].sum(axis=1), events.log_p[:, each, chosen].sum(axis=2)


# -- on windows ----------------------------------------------------------------------------------------------------


def _on_windows(
    events: Events, f: Weight, outcomes: bool, s: Float64 | None = None
) -> tuple[Expectation, Float64, Float64, Float64]:
    """Answers under one tilt per row, upper bounds of log E[f], bounds of the relative errors, and the tilts.

    Tables are looked for from the tilts `s` on, if there are some.
    """
    kept = events.within(f.low, f.high)
    if s is None:
        central, _ = kept.tilted(np.zeros(len(f.low)))
        mean, variance = central.moments()
        wanted = np.clip(mean, f.low, f.high) if f.table is None else _Scores.of(kept, f).guess.argmax(axis=1)
        s = np.where(np.abs(wanted - mean) <= 0.1 * np.sqrt(variance), 0.0, tilt_to(kept, wanted))
        if f.table is None:
            few = np.flatnonzero(central.departures() < _RARE)
            s[few] = tilt_of_rare(kept.take(few), f.low[few], f.high[few])
    for attempt in range(3):
        tilted, log_scale = kept.tilted(s)
        tree = SumTree(tilted, WINDOWS, keep=outcomes)
        law, cells = tree.root.law[:, 0], tree.root.start + np.arange(tree.root.length)
        log_d, top, d = _tilted_weight(tree, f, s)
        z = (law * d).sum(axis=1)
        if f.table is None or attempt == 2:
            break
        mean, variance = tilted.moments()
        with np.errstate(invalid="ignore", divide="ignore"):
            middle = (law * d * cells).sum(axis=1) / z
        middle = np.where(np.isfinite(middle), middle, mean)
        if (np.abs(middle - mean) <= 0.5 * np.sqrt(variance)).all():
            break
        s = tilt_to(kept, middle, near=0.05, start=s)
    error = _error(tree, f, s, top, d)
    scale = log_scale + top[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(z > 0.0, error / z, math.inf) + 16.0 * 2.0**-53
        log_mean, most = np.log(z) + scale, np.log(z + error) + scale
    empty = (f.low > f.high) | ~(log_d > -math.inf).any(axis=1)
    bound = np.where(empty & (f.table is None), 0.0, bound)
    if not outcomes:
        return Expectation(log_mean), most, bound, s
    message, noise = tree.outcome_messages(d)
    noise = noise + error[:, None] * (f.table is not None) + tree.lost
    message, noise = _with_rest(tilted, message, noise, z, error)
    possible = kept.log_p > -math.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.where(possible, noise / message, 0.0)
        joint = tilted.log_p + np.log(message)
    joint = np.where(possible, joint, -math.inf) - np.log(np.where(z > 0, z, 1.0))[:, None, None]
    doubtful = np.argwhere(~(off <= CERTIFIED))
    if 0 < len(doubtful) <= _SINGLE and (bound <= CERTIFIED).all():
        for row, i, o in doubtful.tolist():
            joint[row, i, o] = events.log_p[row, i, o] - log_mean[row] + _given_outcome(events, f, row, i, o)
            off[row, i, o] = 0.0
    bound = np.maximum(bound, np.where(np.isnan(off), math.inf, off).max(axis=(1, 2), initial=0.0))
    mean_log_f = mean_under(law * d, log_d + s[:, None] * cells)
    return Expectation(log_mean, _normalised(joint), mean_log_f), most, bound, s


def _with_rest(
    events: Events, message: Float64, noise: Float64, z: Float64, error: Float64
) -> tuple[Float64, Float64]:
    """Messages (B, n, O) and bounds on their errors, those (B, n) of the tree or those of what other outcomes leave.

    Where an event is rare, the message to its likeliest outcome is next to Z, ``(Z - sum of the others) / p``, and the
    error of the others counts by their probabilities only.
    """
    p = np.exp(events.log_p)
    likeliest = p.argmax(axis=2)[..., None]
    top = np.take_along_axis(p, likeliest, axis=2)[..., 0]
    np.put_along_axis(p, likeliest, 0.0, axis=2)
    rest = (z[:, None] - (p * message).sum(axis=2)) / top
    off = (error[:, None] + p.sum(axis=2) * noise + 16.0 * 2.0**-53 * z[:, None]) / top
    better = (off < noise) & (rest > 0.0)
    bounds = np.repeat(noise[..., None], p.shape[2], axis=2)
    own = np.take_along_axis(message, likeliest, axis=2)[..., 0]
    np.put_along_axis(bounds, likeliest, np.where(better, off, noise)[..., None], axis=2)
    out = np.array(message)
    np.put_along_axis(out, likeliest, np.where(better, rest, own)[..., None], axis=2)
    return out, bounds


def _given_outcome(events: Events, f: Weight, row: int, i: int, o: int) -> float:
    """Log E[f] given one outcome of one event, by a pass of its own."""
    log_p = np.array(events.log_p[[row]])
    log_p[0, i] = -math.inf
    log_p[0, i, o] = 0.0
    one = Events(log_p, events.values)
    found, _, bound, _ = _on_windows(one, f.take([row]), False)
    if not bound[0] <= CERTIFIED:
        found = _in_pieces(one, f.take([row]), False)
    return float(found.log_mean[0])


class _Scores(NamedTuple):
    """Estimates and upper bounds of ``log f(k) P(X = k)`` (B, most + 1), from Chernoff's rate on a grid of tilts."""

    guess: Float64
    bound: Float64
    tilts: Float64  # those of the grid, and their place (B, most + 1) that bounds a cell
    best: Ints

    @classmethod
    def of(cls, events: Events, f: Weight) -> _Scores:
        """Between the tilts of the grid the rate is at least that of both tangents, and at most the chord."""
        log_p = events.log_p
        batch, span = len(log_p), max(float(events.values.max(initial=1)), 1.0)
        farthest = np.where(log_p > -math.inf, -log_p, 1.0).max(initial=1.0)
        up = 3.0 ** np.arange(-7, max(8, math.ceil(math.log(farthest, 3.0)))) * 3.0 / span
        known, tilts = [], np.concatenate([-up[::-1], [0.0], up])
        for s in tilts:
            tilted, log_scale = events.tilted(np.full(batch, s))
            at = tilted.moments()[0]
            known.append((at, s * at - log_scale))
        points, rates = np.stack([k[0] for k in known], 1), np.stack([k[1] for k in known], 1)
        cells = np.arange(events.most + 1)
        log_f = f.at(np.zeros(batch, np.int64), len(cells))
        guess, bound, best = np.array(log_f), np.array(log_f), np.zeros(log_f.shape, np.int64)
        for row, (at, rate) in enumerate(zip(points, rates)):
            new = np.append(True, np.diff(np.maximum.accumulate(at)) > 1e-9)
            chord, curve = np.interp(cells, at, rate), CubicHermiteSpline(at[new], rate[new], tilts[new])
            inside = (cells > at[0]) & (cells < at[-1])
            guess[row] -= np.where(inside, np.minimum(curve(np.clip(cells, at[0], at[-1])), chord), chord)
            nearest = np.searchsorted(at, cells)
            for side in (np.maximum(nearest - 1, 0), np.minimum(nearest, len(tilts) - 1)):
                tangent = rate[side] + tilts[side] * (cells - at[side])
                better = log_f[row] - tangent < bound[row]
                bound[row] = np.where(better, log_f[row] - tangent, bound[row])
                best[row] = np.where(better, side, best[row])
        return cls(np.minimum(guess, bound), bound, tilts, best)

    def most(self, first: int, last: int) -> float:
        """An upper bound of the logarithm of what a range of cells of one row adds to E[f]."""
        return float(log_sum(self.bound[0, first : last + 1]))

    def with_outcomes(self, events: Events, parts: list[tuple[float, int, int]]) -> Float64:
        """Upper bounds (1, n, O) of the logs of what ranges of cells of one row add to E[f and an outcome]."""
        cells = np.concatenate([np.arange(first, last + 1) for _, first, last in parts])
        out = np.full(events.log_p.shape, -math.inf)
        for t in np.unique(self.best[0, cells]).tolist():
            tilted, _ = events.tilted(self.tilts[[t]])
            out = np.logaddexp(out, tilted.log_p + log_sum(self.bound[0, cells[self.best[0, cells] == t]]))
        return np.asarray(out)

    def heart(self, first: int, last: int, depth: float = math.inf) -> tuple[int, int]:
        """The cells of a range of one row from the first to the last whose guess is not `depth` below the highest."""
        guess = self.guess[0, first : last + 1]
        kept = np.flatnonzero(guess > max(guess.max(initial=-math.inf) - depth, -math.inf))
        return (first + int(kept[0]), first + int(kept[-1])) if len(kept) else (first, first - 1)

    def around(self, events: Events, f: Weight, first: int, last: int) -> tuple[Float64, int, int]:
        """A tilt for the likeliest cell of a range of one row, and the cells around that it serves.

        Beyond them ``f(k) exp(-s k)`` is so large that their product with the tilted law would be most of the error.
        """
        cell = first + int(self.guess[0, first : last + 1].argmax())
        kept = events.within(np.array([first]), np.array([last]))
        s = tilt_to(kept, np.array([float(cell)]))
        log_d = f.at(np.array([first]), last - first + 1)[0] - s * np.arange(first, last + 1)
        over = np.flatnonzero(log_d > log_d[cell - first] + _STEEP) + first
        at = int(np.searchsorted(over, cell))
        return s, int(over[at - 1]) + 1 if at else first, int(over[at]) - 1 if at < len(over) else last


def _tilted_weight(tree: SumTree, f: Weight, s: Float64) -> tuple[Float64, Float64, Float64]:
    """Log ``f(k) exp(-s k)`` (B, L) at the cells of the root, its maximum (B, 1), and d."""
    start, length = tree.root.start, tree.root.length
    log_d = f.at(start[:, 0], length) - s[:, None] * (start + np.arange(length))
    top = anchor(log_d)
    return log_d, top, np.exp(log_d - top)


def _error(tree: SumTree, f: Weight, s: Float64, top: Float64, d: Float64) -> Float64:
    """Bounds (B,) on the error of ``sum u d``."""
    root = tree.root
    error = np.minimum(np.sqrt(root.error[:, 0]), root.peak_error[:, 0] * d.sum(axis=1)) + tree.lost
    return np.asarray(error if f.table is None else error + _outside(tree, f, s, top[:, 0]))


def _outside(tree: SumTree, f: Weight, s: Float64, top: Float64) -> Float64:
    """Bound on the share of E[f] outside the window of the root, by Chernoff's inequality in every cell."""
    root = tree.root
    if root.bounds is None:
        return np.zeros(len(s))
    assert f.table is not None
    cells = np.arange(f.table.shape[1])
    log_d = f.at(np.zeros(len(s), np.int64), len(cells)) - s[:, None] * cells - top[:, None]
    chance = np.min(root.bounds[:, 0, :, None] - tree._arguments[:, None] * cells, axis=1)
    first = root.start[:, :1]
    beyond = (cells < first) | (cells >= first + root.length)
    with np.errstate(over="ignore"):
        return np.asarray(np.where(beyond, np.exp(np.minimum(chance, 0.0) + log_d), 0.0).sum(axis=1))


class _Piece(NamedTuple):
    """A part of f with its answer under a tilt, by the tree of all events or of those left undecided."""

    f: Weight
    s: Float64
    answer: Expectation
    core: Undecided | None

    @classmethod
    def of(cls, events: Events, f: Weight, outcomes: bool, s: Float64 | None) -> tuple[_Piece | None, float]:
        """The piece where its answer is certified, and an upper bound of log E[f]."""
        kept = events.within(f.low, f.high)
        if s is None:
            s = tilt_to(kept, np.clip(kept.tilted(np.zeros(1))[0].moments()[0], f.low, f.high))
        core = undecided(kept, f, s, outcomes)
        if core is not None:
            answer = Expectation(core.log_mean, core.log_outcomes, core.log_f)
            return cls(f, s, answer, core), float(core.log_mean[0])
        answer, most, bound, s = _on_windows(events, f, outcomes, s if f.table is not None else None)
        return (cls(f, s, answer, None) if bound[0] <= CERTIFIED else None), float(most[0])

    def draw(self, events: Events, count: int, rng: np.random.Generator) -> Ints:
        """Outcomes (count, n) given this part of f."""
        if self.core is not None:
            return self.core.draw(count, rng)
        kept = events.within(self.f.low, self.f.high)
        return _draw_in(SumTree(kept.tilted(self.s)[0], WINDOWS), self.f, self.s, count, rng)


def _pieces(events: Events, f: Weight, outcomes: bool) -> list[_Piece] | None:
    """Parts of one row's f that are certified, the likeliest first; None where the exact tree is cheaper.

    A table is cut where no tilt can serve both sides, at once; what fails is cut into halves. What is left out adds
    less than exp(-30) to E[f], and less than 1e-10 to every joint probability with an outcome.
    """
    low, high = (int(x[0]) for x in events.extremes())
    mean = float(events.moments()[0][0])
    low, high = max(low, int(f.low[0])), min(high, int(f.high[0]))
    scores = None if f.table is None or low > high else _Scores.of(events, f)
    possible = events.within(f.low, f.high).log_p > -math.inf
    done: list[_Piece] = []
    todo: list[tuple[float, int, int]] = []
    best, joint = -math.inf, np.full(events.log_p.shape, -math.inf)

    def add(first: int, last: int, most: float = math.inf) -> None:
        if scores is not None:
            first, last = scores.heart(first, last)
            most = min(most, scores.most(first, last))
        if first <= last:
            todo.append((most, first, last))

    add(low, high)
    for _ in range(_PIECES):
        todo.sort(key=lambda part: (part[0], -max(part[1] - mean, mean - part[2], 0.0)))
        left = float(np.logaddexp.reduce([part[0] for part in todo])) if todo else -math.inf
        if left == -math.inf or (left <= best - 30.0 and not outcomes):
            return done
        if left <= best - 30.0:
            others = np.array(left) if scores is None else scores.with_outcomes(events, todo)
            if (np.minimum(others, left) <= joint + math.log(0.1 * CERTIFIED))[possible].all():
                return done
        most, first, last = todo.pop()
        s, start, stop = (None, first, last) if scores is None else scores.around(events, f, first, last)
        add(first, start - 1)
        add(stop + 1, last)
        part = f.between(np.array([start]), np.array([stop]))
        piece, found = _Piece.of(events, part, outcomes, s)
        if piece is not None:
            done.append(piece)
            best = float(np.logaddexp(best, piece.answer.log_mean[0]))
            if outcomes:
                joint = np.logaddexp(joint, piece.answer.log_outcomes + piece.answer.log_mean[0])
        elif start == stop:
            return None
        else:
            low, high = (start, stop) if scores is None else scores.heart(start, stop, _DEEP)
            if (low, high) == (start, stop):
                high = (start + stop) // 2
            for a, b in ((start, low - 1), (low, high), (high + 1, stop)):
                add(a, b, min(most, found))
    return None


def _in_pieces(events: Events, f: Weight, outcomes: bool) -> Expectation:
    """One row by certified pieces, or by the exact tree."""
    done = _pieces(events, f, outcomes)
    if done is None:
        return _exact(events, f, outcomes)
    log_mean = log_sum(np.array([[piece.answer.log_mean[0] for piece in done]]))
    if not outcomes:
        return Expectation(log_mean)
    joint, log_f = np.full(events.log_p.shape, -math.inf), np.zeros(1)
    for _, _, answer, _ in done:
        log_share = answer.log_mean - log_mean
        joint = np.logaddexp(joint, answer.log_outcomes + log_share)
        log_f = log_f + np.exp(log_share) * answer.log_f
    return Expectation(log_mean, _normalised(joint), log_f)


# -- the law -------------------------------------------------------------------------------------------------------


class Stretch(NamedTuple):
    """What one tilted pass says from the cell `first` on.

    ``known`` has the logs of P(X = k), P(X <= k) and P(X >= k), "at", "below" and "above", and which are certified.
    """

    first: int
    known: dict[str, tuple[Float64, Bools]]
    peak: float  # bounds of the absolute errors of one cell and of a tail, where there is no tilt
    ones: float


@dataclass(eq=False)
class SumLaw:
    """The law of one sum, computed where it is asked for."""

    events: Events
    _stretches: list[Stretch] = field(default_factory=list)
    _whole: Float64 | None = None

    @property
    def central(self) -> Stretch:
        """The pass without a tilt."""
        if not self._stretches:
            self._stretches.append(self._pass(np.zeros(1)))
        return self._stretches[0]

    def _pass(self, s: Float64) -> Stretch:
        tilted, log_scale = self.events.tilted(s)
        tree = SumTree(tilted, WINDOWS, keep=False)
        root = tree.root
        law, first, tilt = root.law[0, 0], int(root.start[0, 0]), float(s[0])
        peak, ones = float(root.peak_error[0, 0]), math.sqrt(float(root.error[0, 0])) + tree.lost
        with np.errstate(divide="ignore"):
            logs = np.log(law)
        cells = first + np.arange(len(law))
        moved = logs - tilt * cells + log_scale[0]
        sure = law > max(peak, 1e-250) / _SURE if peak else law > 1e-250
        known = {"at": (moved, sure)}
        slope = ones if tilt == 0.0 else min(ones, peak / -math.expm1(-abs(tilt))) + tree.lost
        least = math.log(max(slope, 1e-250) / _SURE)
        for side, sign in (("below", 1), ("above", -1)):
            if tilt * sign > 0.0:  # the heavy side
                known[side] = moved, np.zeros(len(law), bool)
                continue
            tail = np.logaddexp.accumulate(moved[::sign])[::sign]
            known[side] = tail, tail + tilt * cells - log_scale[0] > least
        return Stretch(first, known, peak + tree.lost, ones)

    def _look(self, which: str, cells: Ints, out: Float64, todo: Bools, stretch: Stretch) -> None:
        values, sure = stretch.known[which]
        place = cells - stretch.first
        here = todo & (place >= 0) & (place < len(values))
        here[here] = sure[place[here]]
        out[here] = values[place[here]]
        todo[here] = False

    def ask(self, which: str, cells: Ints) -> Float64:
        """Log P(X = k), P(X <= k) or P(X >= k) for "at", "below" or "above" at cells (m,), to 1e-10."""
        low, high = (int(x[0]) for x in self.events.extremes())
        out = np.full(cells.shape, -math.inf)
        todo = (cells >= low) & (cells <= high)
        if which != "at":
            sure = cells >= high if which == "below" else cells <= low
            out[sure], todo = 0.0, todo & ~sure
        self.central  # noqa: B018 - the first stretch
        for stretch in self._stretches:
            self._look(which, cells, out, todo, stretch)
        mean = float(self.events.moments()[0][0])
        while todo.any():
            left = np.flatnonzero(todo)
            # the nearest to the mean first; a third of a reach beyond it, so that its neighbours are served as well
            order = left[np.argsort(np.abs(cells[left] - mean), kind="stable")]
            target = order[min(len(order) - 1, self._reach // 3)] if which == "at" else order[0]
            before = int(todo.sum())
            for k in {int(cells[target]), int(cells[order[0]])}:
                stretch = self._pass(tilt_to(self.events, np.array([float(k)])))
                self._stretches.append(stretch)
                self._look(which, cells, out, todo, stretch)
                if int(todo.sum()) < before:
                    break
            if int(todo.sum()) == before:
                if which == "at" and len(self.events.values) * self.events.most <= _LISTED:
                    todo &= reachable(self.events)[np.where(todo, cells, 0)]
                out[todo] = self._exactly(which, cells[todo])
                break
        return out

    def rough(self, which: str, cell: int) -> tuple[float, float]:
        """A probability (tails include the cell) and a bound of its absolute error, without another pass."""
        at, out, todo = np.array([cell]), np.zeros(1), np.ones(1, bool)
        central = self.central
        for stretch in self._stretches:
            self._look(which, at, out, todo, stretch)
            if not todo[0]:
                return math.exp(float(out[0])), 0.0
        values = central.known[which][0]
        place = cell - central.first
        if 0 <= place < len(values):
            return math.exp(float(values[place])), central.peak if which == "at" else central.ones
        full = (place < 0) == (which == "above")
        return float(full and which != "at"), central.ones

    @property
    def _reach(self) -> int:
        return int(self._stretches[-1].known["at"][1].sum())

    def _exactly(self, which: str, cells: Ints) -> Float64:
        """What no tilt reaches."""
        if which == "at" and len(cells) > _SINGLE:
            return self._table()[cells]
        one = [np.array([c]) for c in cells.tolist()]
        none, all_of = np.zeros(1, np.int64), np.array([self.events.most])
        ends = [(c if which != "below" else none, c if which != "above" else all_of) for c in one]
        return np.array([expectation(self.events, Weight(*e), outcomes=False).log_mean[0] for e in ends])

    def _table(self) -> Float64:
        if self._whole is None:
            self._whole = SumTree(self.events, LOGS, keep=False).root.law[0, 0]
        return self._whole

    def side(self, which: str, cells: Ints) -> Float64:
        """Log P(X <= k) or P(X > k) for "below" or "above", by the smaller of the two sides."""

        def ask(side: str, cells: Ints) -> Float64:
            return self.ask(side, cells if side == "below" else cells + 1)

        return log_side(ask, which, cells, float(self.events.moments()[0][0]))

    def quantile(self, level: float, upper: bool) -> int:
        """First cell with P(X <= k) >= level, or P(X > k) <= level if `upper`; levels are attained up to 1e-10."""
        log_level = math.log(level)
        stretch = self._stretch_around(log_level, upper)
        if stretch is None:
            low, high = (int(x[0]) for x in self.events.extremes())

            def reached(k: int) -> bool:
                tail = float(self.ask("above" if upper else "below", np.array([k + upper]))[0])
                return tail <= log_level + CERTIFIED if upper else tail >= log_level - CERTIFIED

            return low + bisect_left(range(low, high), True, key=reached)
        if upper:  # P(X > k) = P(X >= k + 1)
            past = np.append(stretch.known["above"][0][1:], -math.inf)
            return stretch.first + int(np.searchsorted(-past, -log_level - CERTIFIED))
        return stretch.first + int(np.searchsorted(stretch.known["below"][0], log_level - CERTIFIED))

    def _stretch_around(self, log_level: float, upper: bool) -> Stretch | None:
        """A pass whose tail (P(X >= k) if `upper`) is certified on both sides of a level, if there is one."""

        def holds(stretch: Stretch) -> bool:
            tail, sure = stretch.known["above" if upper else "below"]
            known = tail[sure]
            return len(known) > 1 and bool(known.min() < log_level - 1e-9 and known.max() > log_level + 1e-9)

        self.central  # noqa: B018 - the first stretch
        for stretch in self._stretches:
            if holds(stretch):
                return stretch
        low, high = 0.0, 50.0 / max(math.sqrt(float(self.events.moments()[1][0])), 1e-9)
        sign = 1.0 if upper else -1.0
        for _ in range(60):  # the tilt whose saddle point has this tail
            s = 0.5 * (low + high)
            tilted, log_scale = self.events.tilted(np.array([sign * s]))
            mean, variance = (float(x[0]) for x in tilted.moments())
            tail = (
                float(log_scale[0]) - sign * s * mean - math.log(1.0 + s * math.sqrt(2 * math.pi * variance))
            )
            low, high = (s, high) if tail > log_level else (low, s)
            if high - low < 0.05 * high:
                break
        for factor in (1.0, 0.7, 1.4):
            self._stretches.append(self._pass(np.array([sign * s * factor])))
            if holds(self._stretches[-1]):
                return self._stretches[-1]
        return None


def log_table(events: Events) -> Float64:
    """Log pmf (B, most + 1); -inf exactly at impossible sums.

    Notes
    -----
    Cost: short sums are added exactly, O(most^2); long ones take one tilted pass for every few standard deviations.
    Accuracy: 1e-10, relative, in every cell.
    """
    batch, n, width = events.log_p.shape
    length = events.most + 1
    if length == 1 or not n:
        return np.zeros((batch, 1)) + (log_sum(events.log_p).sum(axis=1)[:, None] if n else 0.0)
    out = np.full((batch, length), -math.inf)
    if length - 1 > SHORT and width**n <= FEW:
        _, sums, log_p = configurations(events)
        for at, logs in zip(sums.tolist(), log_p.T):
            out[:, at] = np.logaddexp(out[:, at], logs)
        return out
    plain = _in_range(events)
    if length - 1 > 4 * SHORT or (length - 1 > SHORT and not plain.all()):
        for row in range(batch):
            out[row] = _long_table(events.take([row]))
        return out
    for part, tree in _exact_trees(events, plain, keep=False):
        law = tree.root.law[:, 0]
        with np.errstate(divide="ignore"):
            out[part] = law if tree.numbers == LOGS else np.log(law)
    return out


def _long_table(events: Events) -> Float64:
    """One row, by tilts; both ends exactly, because tilts to them are steep and reach little."""
    length, cap = events.most + 1, SHORT // 4
    out = np.full(length, -math.inf)
    out[: cap + 1] = SumTree(events, LOGS, keep=False, cap=cap).root.law[0, 0]
    out[length - cap - 1 :] = SumTree(events.mirrored(), LOGS, keep=False, cap=cap).root.law[0, 0, ::-1]
    inner = np.arange(cap + 1, length - cap - 1)
    inner = inner[reachable(events)[inner]]
    out[inner] = SumLaw(events).ask("at", inner)
    return out


def reachable(events: Events) -> Bools:
    """Which sums of one row are possible, (most + 1,), by whole words of bits."""
    bits = 1
    for log_p, values in zip(events.log_p[0], events.values.tolist()):
        bits = reduce(lambda a, b: a | b, [bits << v for v, p in zip(values, log_p) if p > -math.inf], 0)
    length = events.most + 1
    packed = np.frombuffer(bits.to_bytes(length // 8 + 1, "little"), np.uint8)
    return np.unpackbits(packed, bitorder="little")[:length].astype(bool)


# -- draws ---------------------------------------------------------------------------------------------------------


def draw(events: Events, f: Weight, count: int, rng: np.random.Generator) -> Ints:
    """Outcomes (count, B, n) of all events, drawn with weight f of the sum; E[f] must be positive."""
    batch, n = events.log_p.shape[:2]
    out = np.zeros((count, batch, n), np.int64)
    for row in range(batch) if n else ():
        out[:, row] = _draw_row(events.take([row]), f.take([row]), count, rng)
    return out


def _draw_row(events: Events, f: Weight, count: int, rng: np.random.Generator) -> Ints:
    """By one tilted tree where rounding is no share of E[f], or else in two halves of f, drawn first."""
    kept = events.within(f.low, f.high)
    if events.most <= SHORT:
        return _draw_in(SumTree(kept, LOGS), f, np.zeros(1), count, rng)
    if events.log_p.shape[2] ** len(events.values) <= FEW:
        chosen, sums, log_p = configurations(events)
        log_f = np.concatenate([f.at(np.array([k]), 1)[0] for k in sums.tolist()])
        return np.asarray(chosen[indices_of(log_p[0] + log_f, rng.random(count))])
    done = _pieces(events, f, False)
    if done is None:
        return _draw_in(SumTree(kept, LOGS), f, np.zeros(1), count, rng)
    which = indices_of(np.array([piece.answer.log_mean[0] for piece in done]), rng.random(count))
    out = np.empty((count, len(events.values)), np.int64)
    for k, piece in enumerate(done):
        if (which == k).any():
            out[which == k] = piece.draw(events, int((which == k).sum()), rng)
    return out


def _draw_in(tree: SumTree, f: Weight, s: Float64, count: int, rng: np.random.Generator) -> Ints:
    """Outcomes (count, n) of one row from the tree of its sums under a tilt."""
    root = tree.root
    start, law = root.start[:, 0], root.law[:, 0]
    with np.errstate(divide="ignore"):
        logs = law if tree.numbers == LOGS else np.log(np.where(law > 10.0 * root.peak_error, law, 0.0))
    cells = int(start[0]) + np.arange(law.shape[1])
    log_weight = logs[0] + f.at(start, law.shape[1])[0] - s[0] * cells
    out, left = np.full((count, len(tree.events.values)), -1, np.int64), np.arange(count)
    while len(left):
        total = cells[indices_of(log_weight, rng.random(len(left)))]
        out[left] = tree.draw(total[:, None], rng)[:, 0]
        left = left[
            (out[left] < 0).any(axis=1)
        ]  # rounding of a transform has left nothing: about once in 10^13
    return out
