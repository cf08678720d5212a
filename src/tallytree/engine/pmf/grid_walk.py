"""Configurations of a weighted sum with a function of its value: exact samples and best ones, by walking the grid back.

Variables are added one by one, as in :mod:`.weighted`; given the value of the sum after a variable, whether it is on is
decided by the two terms that made its entry. Tables of every block of about sqrt(n) variables are made anew when the
walk comes there, so O(sqrt(n) W) numbers are kept.
"""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64, Ints, States
from .recursion import softplus
from .weighted import with_variable


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
