"""Independent events whose outcomes add whole numbers to a sum, and their exponential tilts.

An event is a leaf polynomial ``sum_o p_o x^(v_o)``: a default of weight w is ``q + p x^w``, a loss on a few values has
a term for each, a weight between two cells of a grid is shared by both, and a negative weight is an offset.
Replacing ``p_o`` by ``p_o exp(s v_o - K_i(s))`` tilts the sum towards larger values without changing any
conditional probability.

Functions of the sum are weights. Best configurations of binary events under one come from (max, +) along the events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Bools, Float64, Ints, States
from ..log_sums import log_sum, softplus
from ..masks import MASK
from ..tilt import tilt_towards

_STEPS = 100  # of the search for a tilt; Newton's method takes about eight


class Events(NamedTuple):
    """Outcome o of event i has log-probability ``log_p[b, i, o]`` in row b and adds ``values[i, o]``, the least 0."""

    log_p: Float64
    values: Ints

    @property
    def most(self) -> int:
        """The largest sum."""
        return int(self.values.max(axis=1, initial=0).sum())

    def take(self, rows: Any) -> Events:
        return Events(self.log_p[rows], self.values)

    def extremes(self) -> tuple[Ints, Ints]:
        """The smallest and the largest possible sum of every row, (B,)."""
        possible, far = self.log_p > -math.inf, np.int64(2) ** 62
        least = np.where(possible, self.values, far).min(axis=2, initial=far)
        return least.sum(axis=1), np.where(possible, self.values, 0).max(axis=2, initial=0).sum(axis=1)

    def tilted(self, s: Float64) -> tuple[Events, Float64]:
        """The events under tilts (B,), and ``K(s)``, the logarithm of the factor that was divided out, (B,)."""
        raised = self.log_p + s[:, None, None] * self.values
        each = log_sum(raised, keepdims=True)
        return Events(raised - each, self.values), each.sum(axis=(1, 2))

    def moments(self) -> tuple[Float64, Float64]:
        """Mean and variance of the sum, (B,)."""
        p = np.exp(self.log_p)
        mean = (p * self.values).sum(axis=2)
        away = self.values - mean[:, :, None]
        return mean.sum(axis=1), (p * away * away).sum(axis=(1, 2))

    def departures(self) -> Float64:
        """How many events are expected not to have their likeliest outcome, (B,)."""
        p = np.exp(self.log_p)
        if p.size:
            np.put_along_axis(p, p.argmax(axis=2)[..., None], 0.0, axis=2)
        return np.asarray(p.sum(axis=(1, 2)))

    def within(self, low: Ints, high: Ints) -> Events:
        """Drop the outcomes that no sum in ``low .. high`` (B,) has; probabilities no longer add up to one.

        An outcome above `high`, or one that leaves the others short of `low`, is impossible: without it a tilt reaches
        sums that a single heavy event would jump over.
        """
        log_p = self.log_p
        for _ in range(8):
            possible = log_p > -math.inf
            far = np.int64(2) ** 62
            least = np.where(possible, self.values, far).min(axis=2, initial=far)
            most = np.where(possible, self.values, 0).max(axis=2, initial=0)
            below = self.values + (least.sum(axis=1)[:, None] - least)[:, :, None] <= high[:, None, None]
            above = self.values + (most.sum(axis=1)[:, None] - most)[:, :, None] >= low[:, None, None]
            kept = possible & below & above
            kept |= ~kept.any(axis=2).all(axis=1)[:, None, None]  # no sum lies there: the caller finds out
            if (kept | ~possible).all():
                break
            log_p = np.where(kept, log_p, -math.inf)
        return Events(log_p, self.values)

    def mirrored(self) -> Events:
        """The events of ``most`` minus the sum."""
        return Events(self.log_p, self.values.max(axis=1, keepdims=True, initial=0) - self.values)


class Lattice(NamedTuple):
    """The values ``step * (offset + 0), step * (offset + divisor), ...``, `size` of them."""

    offset: int
    divisor: int
    size: int
    step: float | None = None  # None: the values are integers

    @property
    def values(self) -> Any:
        return self.value(np.arange(self.size, dtype=np.int64))

    def value(self, cell: Any) -> Any:
        """The value of a cell."""
        at = self.offset + self.divisor * np.asarray(cell, np.int64)
        return at if self.step is None else multiples(at, self.step)

    def place(self, x: Float64) -> Float64:
        """In which cell a number lies; on a grid of real step, numbers within 1e-9 of a cell are in it."""
        if self.step is None:
            return np.asarray((x - self.offset) / self.divisor)
        with np.errstate(over="ignore", invalid="ignore"):
            place = (x / self.step - self.offset) / self.divisor
            near = np.rint(place)
            return np.where(np.abs(place - near) <= 1e-9 * (1.0 + np.abs(near)), near, place)


def to_lattice(values: Ints, step: float | None = None) -> tuple[Ints, Lattice]:
    """What outcomes add (n, O), as multiples of a common divisor from 0 on, and the lattice of the sums."""
    least = values.min(axis=1, keepdims=True, initial=np.int64(2) ** 62) if values.size else values[:, :0]
    above = values - least if values.size else values
    divisor = max(int(np.gcd.reduce(above, axis=None)), 1) if above.size else 1
    above = above // divisor
    most = int(above.max(axis=1).sum()) if above.size else 0
    return above, Lattice(int(least.sum()), divisor, most + 1, step)


def log_outcomes(nu: Float64) -> Float64:
    """Log-probabilities (..., 2) of 0 and 1, from log-odds."""
    return without_masks(np.stack([-softplus(nu), -softplus(-nu)], axis=-1))


def without_masks(log_p: Float64) -> Float64:
    """Log-probabilities of outcomes; -inf for those that a mask makes impossible."""
    return np.where(log_p < -MASK, -math.inf, log_p)


def shared_between_cells(log_p: Float64, weights: Float64, step: float) -> tuple[Float64, Ints, Ints]:
    """Outcomes on a grid that keep every mean, from log-probabilities (..., n, O) and real values (n, O).

    A value between two cells goes to both, in shares such that its mean stays. Returns the log-probabilities
    (..., n, P), the cells (n, P) and which of the O outcomes each of the P belongs to.
    """
    down, up = cells_below_and_above(weights, step)
    share = np.where(up > down, weights / step - down, 0.0)
    with np.errstate(divide="ignore"):
        parts = np.stack([np.log1p(-share), np.log(share)], axis=-1)
    owner = np.repeat(np.arange(weights.shape[1]), 2)
    used = np.asarray((share > 0.0).any(axis=0))  # outcomes that no event shares have one cell
    kept = np.stack([np.ones_like(used), used], axis=-1).ravel()
    spread = (log_p[..., None] + parts).reshape(*log_p.shape[:-1], -1)
    cells = np.stack([down, up], axis=-1).reshape(len(weights), -1)
    return spread[..., kept], cells[:, kept], owner[kept]


def cells_below_and_above(weights: Float64, step: float) -> tuple[Ints, Ints]:
    """Cells of a grid that enclose values; those within 1e-9 of a cell are taken to be on it, see `slack`."""
    place = weights / step
    near = np.rint(place)
    on = np.abs(place - near) <= 1e-9 * (1.0 + np.abs(near))
    down, up = np.where(on, near, np.floor(place)), np.where(on, near, np.ceil(place))
    return down.astype(np.int64), up.astype(np.int64)


# Exact arithmetic reads a number as the decimal that it prints as: 0.3 is three steps of 0.1, though not in binary.


def decimal(x: float) -> Fraction:
    """The decimal that a number prints as."""
    return Fraction(repr(float(x)))


def multiples(cells: Any, step: float) -> Any:
    """Cells times a step, rounded once where the digits of the step allow it: 3 times 0.1 is 0.3."""
    unit = decimal(step)
    top, bottom = float(unit.numerator), float(unit.denominator)
    if bottom != unit.denominator or top * np.abs(cells).max(initial=0) >= 2.0**53:
        return cells * step
    return cells * top / bottom


def slack(weights: Float64, step: float) -> tuple[Fraction, Fraction]:
    """How far sums of values (n, O) may be below those of their cells rounded down, and above those rounded up."""
    down, up = cells_below_and_above(weights, step)
    on, unit = (down == up) & (weights != 0.0), decimal(step)
    digits = unit.numerator * int(np.abs(down).max(initial=0)) < 10**15  # fewer than 16: printed as they are
    below = above = Fraction(0)
    for row in np.flatnonzero((on & ~(digits & (multiples(down, step) == weights))).any(axis=1)).tolist():
        off = [decimal(w) - unit * c for w, c, near in zip(weights[row], down[row].tolist(), on[row]) if near]
        below, above = below - min(*off, 0), above + max(*off, 0)
    return below, above


def floor_to_grid(x: Float64, shift: Fraction, step: float) -> Float64:
    """The largest multiples of a step that do not exceed ``x + shift``, exactly."""
    unit, out, far = decimal(step), np.array(x, np.float64), 2**62
    for at in np.argwhere(np.isfinite(out)):
        cell = math.floor((decimal(out[tuple(at)]) + shift) / unit)
        out[tuple(at)] = multiples(float(max(-far, min(cell, far))), step)
    return out


def rounded_outwards(x: float, shift: Fraction, up: bool, step: float | None) -> float:
    """A number, or the multiple of a step that it stands for, plus `shift`: not above the result if `up`, or below."""
    exact = decimal(x) if step is None else decimal(step) * round(decimal(x) / decimal(step))
    found = float(exact + shift)
    inside = decimal(found) < exact + shift if up else decimal(found) > exact + shift
    return math.nextafter(found, math.inf if up else -math.inf) if inside else found


def tilt_to(events: Events, wanted: Float64, *, near: float = 0.1, start: Float64 | float = 0.0) -> Float64:
    """Tilts (B,) under which the sums have means within `near` standard deviations of `wanted` (B,), from `start` on.

    They are looked for in units in which the largest value is 1.
    """
    span = max(float(events.values.max(initial=1)), 1.0)

    def moments(s: Float64) -> tuple[Float64, Float64]:
        mean, variance = events.tilted(s / span)[0].moments()
        return mean / span, variance / span**2

    first = np.zeros(len(wanted)) + start * span
    return tilt_towards(moments, lambda *_: wanted / span, first, near=near, slack=0.0, steps=_STEPS) / span


def tilt_of_rare(events: Events, low: Ints, high: Ints) -> Float64:
    """Tilts (B,) towards ``low .. high`` (B,) where few events leave their likeliest outcomes.

    With lambda the expected number that leaves them under the tilt, the error of a law is about ``lambda^2``, and a
    probability comes with the factor ``exp(s low - K(s))``, where K is about lambda. So the best tilt has
    ``(1 + 2 / lambda) mean = low``, the mean and `low` being counted from the likeliest sum.
    """
    log_p, likeliest = events.log_p, events.log_p.argmax(axis=2)[..., None]
    base = np.take_along_axis(np.broadcast_to(events.values, log_p.shape), likeliest, axis=2)
    away, start = events.values - base, base.sum(axis=(1, 2))
    target = np.clip(start, low, high) - start
    unit = np.sign(target) / max(float(np.abs(away).max(initial=1)), 1.0)

    def short(s: Float64) -> Bools:
        p = np.exp(Events(log_p, away).tilted(s * unit)[0].log_p)
        np.put_along_axis(p, likeliest, 0.0, axis=2)
        mean, number = np.abs((p * away).sum(axis=(1, 2))), p.sum(axis=(1, 2))
        return np.asarray(mean * (1.0 + 2.0 / np.maximum(number, 1e-300)) < np.abs(target))

    bottom, top = np.zeros(len(target)), np.ones(len(target))
    for _ in range(16):
        more = short(top)
        if not more.any():
            break
        bottom, top = np.where(more, top, bottom), np.where(more, 2.0 * top, top)
    for _ in range(6):
        middle = 0.5 * (bottom + top)
        more = short(middle)
        bottom, top = np.where(more, middle, bottom), np.where(more, top, middle)
    return np.asarray(np.where(bottom > 0.0, 0.5 * (bottom + top), 0.0) * unit)


# -- best configurations ---------------------------------------------------------------------------------------------


def best_configurations(nu: Float64, values: Ints, log_f: Float64) -> States:
    """Configurations (B, n) that maximise ``nu . y + log f(sum)``; among equals variables stay off.

    Parameters
    ----------
    nu : (B, n)
        Log-odds in [-inf, inf]; forced variables weigh one.
    values : (n, 2)
        What 0 and 1 add to the sum, the smaller of them 0.
    log_f : (B, W + 1)

    Notes
    -----
    Cost: O(n W) per row in time, O(sqrt(n) W) in memory.
    """
    order = np.argsort(values.max(axis=1), kind="stable")  # short sums first
    scores = np.stack([np.where(nu == math.inf, -math.inf, 0.0), np.where(nu == math.inf, 0.0, nu)])

    def add(table: Float64, i: int) -> Float64:
        """The table (B, W + 1) with one variable more."""
        out = np.full_like(table, -math.inf)
        for score, v in zip(scores[:, :, order[i]], values[order[i]].tolist()):
            part = out[:, v:]
            np.maximum(part, table[:, : table.shape[1] - v] + score[:, None], out=part)
        return out

    first = np.full(log_f.shape, -math.inf)
    first[:, :1] = 0.0
    tables = _tables_backwards(first, len(order), add)
    at = (next(tables)[1] + log_f).argmax(axis=1)
    rows, states = np.arange(len(nu)), np.zeros(nu.shape, np.uint8)
    for i, before in tables:
        off, on = (
            np.where(at >= v, before[rows, np.maximum(at - v, 0)], -math.inf) + score
            for score, v in zip(scores[:, :, order[i]], values[order[i]].tolist())
        )
        states[:, order[i]] = on > off
        at = at - values[order[i]][states[:, order[i]]]
    return states


def _tables_backwards(
    table: Float64, n: int, add: Callable[[Float64, int], Float64]
) -> Iterator[tuple[int, Float64]]:
    """The table of all n variables, and then the one before each, from the last to the first; sqrt(n) are kept."""
    block, kept = max(1, math.isqrt(n)), []
    for i in range(n):
        if i % block == 0:
            kept.append(table)
        table = add(table, i)
    yield n, table
    for number in range(len(kept) - 1, -1, -1):
        first, stop = number * block, min(n, (number + 1) * block)
        tables = [kept[number]]
        for i in range(first, stop - 1):
            tables.append(add(tables[-1], i))
        for i in range(stop - 1, first - 1, -1):
            yield i, tables.pop()


# -- functions of a sum, by their logarithms ----------------------------------------------------------------------


class Weight(NamedTuple):
    """A function f of the sum: `table` (B, most + 1) of logarithms or 1, in ``low .. high`` (B,); `edge` at `low`."""

    low: Ints
    high: Ints
    edge: Float64 | None = None
    table: Float64 | None = None

    def take(self, rows: Any) -> Weight:
        return Weight(*(None if x is None else x[rows] for x in self))  # type: ignore[arg-type]

    def between(self, low: Ints, high: Ints) -> Weight:
        edge = self.edge
        if edge is not None:
            edge = np.where(low <= self.low, edge, 0.0)
        return Weight(np.maximum(low, self.low), np.minimum(high, self.high), edge, self.table)

    def at(self, start: Ints, length: int) -> Float64:
        """Log f (B, length) at the cells from `start` (B,) on."""
        cells = start[:, None] + np.arange(length)
        inside = (cells >= self.low[:, None]) & (cells <= self.high[:, None])
        if self.table is None:
            out = np.where(inside, 0.0, -math.inf)
        else:
            last = self.table.shape[1] - 1
            inside &= (cells >= 0) & (cells <= last)
            out = np.where(inside, np.take_along_axis(self.table, np.clip(cells, 0, last), axis=1), -math.inf)
        if self.edge is not None:
            out = np.where(cells == self.low[:, None], out + self.edge[:, None], out)
        return out

    def largest(self, s: Float64) -> float:
        """The maximum of ``log f(k) - s k`` of one row whose range is finite."""
        low, high = int(self.low[0]), int(self.high[0])
        if self.table is not None:
            return float(
                (self.at(self.low, high - low + 1) - s * np.arange(low, high + 1)).max(initial=-math.inf)
            )
        ends = np.array([low, min(low + 1, high), high])
        return float(max((self.at(np.array([k]), 1) - s * k)[0, 0] for k in ends.tolist()))


def weight_of_table(log_f: Float64) -> Weight:
    """The function with logarithms (B, most + 1)."""
    possible = log_f > -math.inf
    first = possible.argmax(axis=1)
    last = log_f.shape[1] - 1 - possible[:, ::-1].argmax(axis=1)
    return Weight(first, np.where(possible.any(axis=1), last, -1), None, log_f)


def mean_under(share: Float64, log_f: Float64) -> Float64:
    """The mean of log f under shares (B, L) of E[f] that need not add up to one; 0 where there is none."""
    total = share.sum(axis=1)
    with np.errstate(invalid="ignore"):
        terms = np.where(share > 0.0, share * log_f, 0.0)
    return np.asarray(terms.sum(axis=1) / np.where(total > 0.0, total, 1.0))
