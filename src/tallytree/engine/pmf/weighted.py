"""Sums of independent Bernoulli variables with positive integer weights, by direct addition.

One variable of weight w turns P into ``q P(k) + p P(k - w)``. All terms are positive, so every entry keeps
its relative accuracy as long as it stays in range: in plain float64 when no product of probabilities can
leave it, in logarithms otherwise. Variables are added by rising weight, which keeps the partial sums short.

Configurations of a weighted sum with a function of its value: exact samples and best ones, by walking the grid back.

Variables are added one by one, as in :mod:`.weighted`; given the value of the sum after a variable, whether it is on is
decided by the two terms that made its entry. Tables of every block of about sqrt(n) variables are made anew when the
walk comes there, so O(sqrt(n) W) numbers are kept.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...arrays import Float64, Ints, States
from .recursion import softplus


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
        self._log_f, self._maxima = log_f, maxima

    def _add(self, table: Float64, i: int) -> Float64:
        """The table with one variable more."""
        on, off = self._on[:, i : i + 1], self._off[:, i : i + 1]
        return with_variable(table, on, off, int(self._weights[i]), np.add, self._combine)

    def draw(self, count: int, rng: np.random.Generator) -> States:
        """Samples (count, B, n)."""
        return self._walk(count, rng)

    def best(self) -> States:
        """Best configurations (B, n); among equals variables stay off."""
        return np.asarray(self._walk(1, None)[0])

    def _walk(self, count: int, rng: np.random.Generator | None) -> States:
        batch, n = self._on.shape
        block = max(1, math.isqrt(n))
        table = np.full(self._log_f.shape, -math.inf)
        table[:, 0] = 0.0
        kept: list[Float64] = []
        with np.errstate(invalid="ignore"):
            for i in range(n):
                if i % block == 0:
                    kept.append(table)
                table = self._add(table, i)
            at = self._last(table + self._log_f, count, rng)
            states = np.zeros((count, batch, n), np.uint8)
            for number in range(len(kept) - 1, -1, -1):
                first, stop = number * block, min(n, (number + 1) * block)
                tables = [kept[number]]
                for i in range(first, stop):
                    tables.append(self._add(tables[-1], i))
                for i in range(stop - 1, first - 1, -1):
                    on = self._choose(tables[i - first], tables[i - first + 1], at, i, rng)
                    states[:, :, self._order[i]] = on
                    at = at - on * self._weights[i]
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


# Where plain float64 starts, to have twice the range below it; a power of 2 rounds nothing.
HEADROOM = 2.0**930
DEEPEST = 1900.0 * np.log(2.0)  # nats from HEADROOM down to the last normal numbers
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
    rows = nu.shape[0]
    total = int(weights.sum())
    order = np.argsort(weights, kind="stable")
    steps, weights = nu[:, order], weights[order]
    out = np.empty((rows, total + 1))
    finite = np.where(np.isfinite(steps), np.abs(steps), 0.0)
    deepest = (finite + np.log1p(np.exp(-finite))).sum(axis=1)  # -log of the rarest configuration
    in_range = (deepest < DEEPEST) & (finite.max(axis=1, initial=0.0) < STEEPEST)
    size = max(1, BUFFER // (total + 1))
    for plain in (True, False):
        chosen = np.flatnonzero(in_range == plain)
        add = _plain if plain else _logs
        for start in range(0, chosen.size, size):
            picked = chosen[start : start + size]
            out[picked] = add(steps[picked], weights, total)
    return out


def with_variable(
    table: Float64, on: Float64, off: Float64, weight: int, times: np.ufunc, plus: np.ufunc
) -> Float64:
    """The table (B, W + 1) of a sum with one variable more, whose weights are ``on`` and ``off`` (B, 1)."""
    out: Float64 = times(table, off)
    out[:, weight:] = plus(out[:, weight:], times(table[:, : table.shape[1] - weight], on))
    return out


def _plain(nu: Float64, weights: Ints, total: int) -> Float64:
    pmf = np.zeros((len(nu), total + 1))
    pmf[:, 0] = HEADROOM
    _add_all(pmf, np.exp(-softplus(-nu)), np.exp(-softplus(nu)), weights, np.multiply, np.add)
    with np.errstate(divide="ignore"):
        return np.where(pmf > 1.0, np.log(pmf / HEADROOM), np.log(pmf) - np.log(HEADROOM))


def _logs(nu: Float64, weights: Ints, total: int) -> Float64:
    log_pmf = np.full((len(nu), total + 1), -np.inf)
    log_pmf[:, 0] = 0.0
    _add_all(log_pmf, -softplus(-nu), -softplus(nu), weights, np.add, np.logaddexp)
    return log_pmf


def _add_all(
    table: Float64, on: Float64, off: Float64, weights: Ints, times: np.ufunc, plus: np.ufunc
) -> None:
    """All variables one by one, in place; sums that are not reached yet are not looked at."""
    top = 0
    for i, w in enumerate(weights.tolist()):
        reached, target = table[:, : top + 1], table[:, w : w + top + 1]
        moved = times(reached, on[:, i : i + 1])
        times(reached, off[:, i : i + 1], out=reached)
        plus(target, moved, out=target)
        top += w
