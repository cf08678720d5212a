"""Sums of independent Bernoulli variables with positive integer weights, by direct addition.

One variable of weight w turns P into ``q P(k) + p P(k - w)``. All terms are positive, so every entry keeps its relative
accuracy as long as it stays in range: in plain float64 when no product of probabilities can leave it, in logarithms
otherwise. Variables are added by rising weight, which keeps the partial sums short.

What a walk back over the variables needs is the table before each of them. About sqrt(n) tables are kept and the others
made again from these. The walk gives exact samples and best configurations for a function f of the sum, and the
evidence for each variable: with ``F_i(s)`` the probability that the variables before i add up to s, and ``B_i(s)`` the
expectation of f once the variables before i have added up to s,

    E[f | y_i = 1] = sum_s F_i(s) B_{i+1}(s + w),    E[f | y_i = 0] = sum_s F_i(s) B_{i+1}(s).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Bools, Float64, Ints, States
from ..log_sums import anchor, log_sum, softplus

# Where plain float64 starts, to have twice the range below it; a power of 2 rounds nothing.
HEADROOM = 2.0**930
DEEPEST = 1900.0 * np.log(2.0)  # nats from HEADROOM down to the last normal numbers
DEEPEST_PLAIN = 600.0  # nats: the rarest configuration, times the least f, is still a normal number
STEEPEST = 700.0  # log-odds up to which both probabilities of one variable are normal numbers
BUFFER = 1 << 22  # entries of one working array


class Lattice(NamedTuple):
    """A weighted sum rewritten as ``offset + step * (sum of positive coprime weights)``."""

    offset: int
    step: int
    nu: Float64
    weights: Ints


def to_lattice(nu: Float64, weights: Ints) -> Lattice:
    """Turn any integer weights into positive coprime ones.

    A weight below zero is its value plus ``|w|`` times the complement, ``w y = w + |w| (1 - y)``; a zero
    weight counts nothing; a common divisor becomes the step of the lattice.
    """
    used = weights != 0
    w = weights[used]
    flipped = np.where(w < 0, -nu[:, used], nu[:, used])
    step = int(np.gcd.reduce(np.abs(w))) if w.size else 1
    return Lattice(int(w[w < 0].sum()), step, flipped, np.abs(w) // step)


class _Numbers(NamedTuple):
    """Probabilities as they are, up to a factor, or as logarithms."""

    zero: float
    one: float
    times: np.ufunc
    plus: np.ufunc
    total: Callable[..., Any]
    enter: Callable[[Float64], Float64]
    log: Callable[[Float64], Float64]

    def first(self, shape: tuple[int, ...]) -> Float64:
        """The tables of a sum of nothing."""
        table = np.full(shape, self.zero)
        table[:, 0] = self.one
        return table

    def log_total(self, first: Float64, second: Float64) -> Float64:
        return self.log(self.total(self.times(first, second), axis=1))


def _log_below_headroom(values: Float64) -> Float64:
    with np.errstate(divide="ignore"):
        return np.where(values > 1.0, np.log(values / HEADROOM), np.log(values) - np.log(HEADROOM))


_PLAIN = _Numbers(0.0, HEADROOM, np.multiply, np.add, np.sum, np.exp, _log_below_headroom)
_LOGS = _Numbers(-math.inf, 0.0, np.add, np.logaddexp, log_sum, np.asarray, np.asarray)


def _parts(in_range: Bools, size: int) -> Iterator[tuple[_Numbers, Ints]]:
    """The numbers that serve, and rows for which they do, as many as fit a buffer of rows of this size."""
    room = max(1, BUFFER // size)
    for numbers, rows in ((_PLAIN, np.flatnonzero(in_range)), (_LOGS, np.flatnonzero(~in_range))):
        for start in range(0, len(rows), room):
            yield numbers, rows[start : start + room]


def weighted_log_pmf(nu: Float64, weights: Ints) -> Float64:
    """Log pmf of ``sum_i weights_i y_i`` on ``0 .. sum(weights)``.

    Parameters
    ----------
    nu : (B, n)
        Log-odds in [-inf, inf].
    weights : (n,)
        Positive integers.

    Returns
    -------
    (B, sum(weights) + 1) array
        -inf at sums that no configuration reaches.

    Notes
    -----
    Cost: O(n W) per row, W the sum of the weights; about three times as much in logarithms.
    Accuracy: relative error of every probability below about n times the unit round-off.
    """
    total = int(weights.sum())
    order = np.argsort(weights, kind="stable")
    steps, weights = nu[:, order], weights[order]
    out = np.empty((len(nu), total + 1))
    finite = np.where(np.isfinite(steps), np.abs(steps), 0.0)
    deepest = softplus(finite).sum(axis=1)  # -log of the rarest configuration
    in_range = (deepest < DEEPEST) & (finite.max(axis=1, initial=0.0) < STEEPEST)
    for numbers, rows in _parts(in_range, total + 1):
        table = numbers.first((len(rows), total + 1))
        on, off = numbers.enter(-softplus(-steps[rows])), numbers.enter(-softplus(steps[rows]))
        top = 0
        for i, w in enumerate(weights.tolist()):  # in place; sums that are not reached yet are not looked at
            reached, target = table[:, : top + 1], table[:, w : w + top + 1]
            moved = numbers.times(reached, on[:, i : i + 1])
            numbers.times(reached, off[:, i : i + 1], out=reached)
            numbers.plus(target, moved, out=target)
            top += w
        out[rows] = numbers.log(table)
    return out


def _with_variable(
    table: Float64, on: Float64, off: Float64, weight: int, times: np.ufunc, plus: np.ufunc
) -> Float64:
    """The table (B, W + 1) of a sum with one variable more, whose weights are ``on`` and ``off`` (B, 1)."""
    out: Float64 = times(table, off)
    out[:, weight:] = plus(out[:, weight:], times(table[:, : table.shape[1] - weight], on))
    return out


def _tables_backwards(
    table: Float64, n: int, add: Callable[[Float64, int], Float64]
) -> Iterator[tuple[int, Float64]]:
    """The table of all n variables, and then the one before each of them, from the last to the first."""
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


class GridWalk:
    """Log-odds (B, n), positive integer weights (n,) and log f at the sums 0 .. W, (B, W + 1)."""

    def __init__(self, nu: Float64, weights: Ints, log_f: Float64, *, maxima: bool) -> None:
        self._order = np.argsort(weights, kind="stable")  # short sums first
        self._weights = weights[self._order]
        steps = nu[:, self._order]
        if maxima:  # forced variables weigh one
            self._off = np.where(steps == math.inf, -math.inf, 0.0)
            self._on = np.where(steps == math.inf, 0.0, steps)
        else:
            self._off, self._on = -softplus(steps), -softplus(-steps)
        self._combine = np.maximum if maxima else np.logaddexp
        self._log_f = log_f

    def _add(self, table: Float64, i: int) -> Float64:
        """The table with one variable more."""
        on, off = self._on[:, i : i + 1], self._off[:, i : i + 1]
        return _with_variable(table, on, off, int(self._weights[i]), np.add, self._combine)

    def draw(self, count: int, rng: np.random.Generator) -> States:
        """Samples (count, B, n)."""
        return self._walk(count, rng)

    def best(self) -> States:
        """Best configurations (B, n); among equals variables stay off."""
        return np.asarray(self._walk(1, None)[0])

    def _walk(self, count: int, rng: np.random.Generator | None) -> States:
        batch, n = self._on.shape
        states = np.zeros((count, batch, n), np.uint8)
        with np.errstate(invalid="ignore"):
            tables = _tables_backwards(_LOGS.first(self._log_f.shape), n, self._add)
            after = next(tables)[1]
            at = self._last(after + self._log_f, count, rng)
            for i, before in tables:
                on = self._choose(before, after, at, i, rng)
                states[:, :, self._order[i]] = on
                at = at - on * self._weights[i]
                after = before
        return states

    def _last(self, final: Float64, count: int, rng: np.random.Generator | None) -> Ints:
        """The value of the whole sum, (count, B)."""
        if rng is None:
            return np.broadcast_to(final.argmax(axis=1), (count, len(final)))
        weight = np.exp(final - final.max(axis=1, keepdims=True))
        total = np.cumsum(weight, axis=1)
        # A threshold below the total and a strict comparison never pick a sum of weight zero.
        threshold = rng.random((count, len(final))) * total[:, -1]
        rows = [np.searchsorted(total[b], threshold[:, b], side="right") for b in range(len(final))]
        return np.stack(rows, axis=1) if rows else np.zeros((count, 0), np.int64)

    def _choose(
        self, before: Float64, after: Float64, at: Ints, i: int, rng: np.random.Generator | None
    ) -> Ints:
        rows, w = np.arange(len(before)), int(self._weights[i])
        below = np.where(at >= w, before[rows, np.maximum(at - w, 0)], -math.inf) + self._on[:, i]
        if rng is None:
            return (below > before[rows, at] + self._off[:, i]).astype(np.int64)
        share = np.exp(below - after[rows, at])  # exactly 1 where the variable cannot be off
        return (rng.random(at.shape) < share).astype(np.int64)


def inclusion_evidence(nu: Float64, weights: Ints, log_f: Float64) -> Float64:
    """``log E[f | y_i = 1] - log E[f | y_i = 0]`` of every variable, for a non-negative function f of the sum.

    Parameters
    ----------
    nu : (B, n)
        Log-odds in [-inf, inf].
    weights : (n,)
        Positive integers with sum W.
    log_f : (B, W + 1)
        Log f of every sum; 0 and -inf for an event. E[f] must be positive in every row.

    Returns
    -------
    (B, n) array
        Infinite where one of the two values is impossible; of no meaning where the log-odds are infinite.

    Notes
    -----
    Cost: O(n W) per row in time, O(sqrt(n) W) in memory.
    Accuracy: relative error of the likelihoods below about 2 n times the unit round-off.
    """
    out = np.empty(nu.shape)
    finite = np.where(np.isfinite(nu), np.abs(nu), 0.0)
    scaled = log_f - anchor(log_f)
    # -log of the least weight of a configuration
    deepest = softplus(finite).sum(axis=1) - np.where(np.isneginf(scaled), 0.0, scaled).min(axis=1)
    size = log_f.shape[1] * 2 * max(1, math.isqrt(nu.shape[1]))
    for numbers, rows in _parts(deepest < DEEPEST_PLAIN, size):
        out[rows] = _ratios(numbers, nu[rows], weights, scaled[rows])
    return out


def _ratios(numbers: _Numbers, nu: Float64, weights: Ints, log_f: Float64) -> Float64:
    on, off = numbers.enter(-softplus(-nu)), numbers.enter(-softplus(nu))

    def add(table: Float64, i: int) -> Float64:
        each = on[:, i : i + 1], off[:, i : i + 1]
        return _with_variable(table, *each, int(weights[i]), numbers.times, numbers.plus)

    out = np.empty(nu.shape)
    # Backwards, B moves to smaller sums: stored mirrored, it takes the same step as F.
    mirrored = numbers.enter(log_f[:, ::-1])
    tables = _tables_backwards(numbers.first(log_f.shape), nu.shape[1], add)
    next(tables)
    for i, forward in tables:
        w, backward = int(weights[i]), mirrored[:, ::-1]
        without = numbers.log_total(forward, backward)
        along = numbers.log_total(forward[:, :-w], backward[:, w:])
        with np.errstate(invalid="ignore"):  # -inf - -inf for a variable that cannot be otherwise
            out[:, i] = along - without
        mirrored = add(mirrored, i)
    return out
