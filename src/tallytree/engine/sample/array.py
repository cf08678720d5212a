"""Exact samples in array code: counts down the tree, then the variables of every block.

    z_l given z_p   has weights   up_l(i) up_r(z_p - i)
    y_1 given r     is on with    w_1 / (w_1 + rho(r)),   rho(r) = P(r of the others on) / P(r - 1 of the others on)

Upward messages include a node's own table and never enter a weight together with it, so each table counts once.
Samples with the same parent count share one cumulative sum. The ratios rho obey

    rho(r) <- rho(r - 1) (rho(r) + w) / (rho(r - 1) + w)

when a variable of odds w joins: positive terms only, and errors do not grow, because the two sensitivities
``1 - P(y=1 | r)`` and ``P(y=1 | r-1)`` add up to at most one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Float64, Ints
from ...structure.nested.blocks import BlockForest
from ..law import indices_of, log_convolve

_CELLS = 1 << 22  # entries of temporary arrays
_SHORT, _SMOOTH = 512, 200.0  # counts, and nats of range, up to which a table leaves messages smooth


@dataclass(frozen=True)
class Window:
    """Counts ``low..high`` of the root matter; under tilt s all nodes stay within `budget` nats of their means."""

    tilt: float
    low: int
    high: int
    budget: float


class OpenCounts:
    """Which counts of every block and node can occur in a sample of one model.

    Parameters
    ----------
    nu, tables : (D,), (T,)
        Log-odds and packed log-tables.
    window : Window, optional
        For a forest of one tree without tables below its root.
    """

    def __init__(
        self, forest: BlockForest, nu: Float64, tables: Float64, window: Window | None = None
    ) -> None:
        self._forest = forest
        self._tilt = 0.0 if window is None else window.tilt
        inside = nu[forest.variables]
        self._finite = np.isfinite(inside)
        blocks = np.repeat(np.arange(forest.n_blocks), np.diff(forest.start))
        self._block = blocks[self._finite]
        self._variable = forest.variables[self._finite]
        self._nu = inside[self._finite] + self._tilt
        self._forced = np.bincount(blocks[inside == math.inf], minlength=forest.n_blocks)
        self._count = np.bincount(self._block, minlength=forest.n_blocks)
        self._start = np.concatenate([[0], np.cumsum(self._count)])
        self._independent = np.concatenate([forest.free, forest.variables[~self._finite]])
        self._on = expit(nu[self._independent])
        with np.errstate(all="ignore"):
            self._set_intervals(tables, window)

    def _set_intervals(self, tables: Float64, window: Window | None) -> None:
        """Counts low..high that can occur at every block and node, from zeros in tables and from the window."""
        forest, n = self._forest, self._forest.n_blocks
        low, high = self._forced.tolist(), (self._forced + self._count).tolist()
        p, q = expit(self._nu), expit(-self._nu)
        mean = (np.bincount(self._block, p, n) + self._forced).tolist()
        var = np.bincount(self._block, p * q, n).tolist()
        for node in range(len(forest.size)):
            if node >= n:
                a, b = forest.left[node - n], forest.right[node - n]
                low.append(low[a] + low[b])
                high.append(high[a] + high[b])
                mean.append(mean[a] + mean[b])
                var.append(var[a] + var[b])
            if forest.table[node] >= 0:
                own = tables[forest.table[node] + low[node] : forest.table[node] + high[node] + 1]
                possible = np.flatnonzero(own > -math.inf) + low[node]
                low[node], high[node] = (possible[0], possible[-1]) if len(possible) else (0, -1)
            if window is not None:
                c = window.budget / 3.0
                radius = c + math.sqrt(c * c + 2.0 * window.budget * var[node])  # Bernstein
                low[node] = max(low[node], math.floor(mean[node] - radius))
                high[node] = min(high[node], math.ceil(mean[node] + radius))
        self.impossible = any(a > b for a, b in zip(low, high))
        if window is not None and not self.impossible:
            root = forest.roots[0]
            low[root], high[root] = max(low[root], window.low), min(high[root], window.high)
        for node in range(len(forest.size) - 1, n - 1, -1):
            a, b = forest.left[node - n], forest.right[node - n]
            for x, y in ((a, b), (b, a)):
                low[x], high[x] = max(low[x], low[node] - high[y]), min(high[x], high[node] - low[y])
        self._low, self._high = np.array(low, np.int64), np.array(high, np.int64)

    def pairs_far_from_peaks(self, tables: Float64) -> float:
        """Pairs of counts whose weights are added up one by one: those of messages that are not smooth.

        Few slopes reach all entries of a message if its tables have no holes and little range. All that lies above a
        table of another kind is far from smooth; a table of a root enters no merge.
        """
        forest, length = self._forest, np.maximum(self._high - self._low + 1, 0).astype(np.float64)
        rough = np.zeros(len(forest.size), bool)
        for node in np.flatnonzero((forest.table >= 0) & (length > _SHORT)).tolist():
            own = tables[forest.table[node] :][self._low[node] : self._high[node] + 1]
            rough[node] = np.ptp(own) > _SMOOTH if np.isfinite(own).all() else True
        pairs = 0.0
        for node in range(forest.n_blocks, len(rough)):
            a, b = forest.children(node)
            if rough[a] or rough[b]:
                rough[node] = True
                pairs += min(length[a], length[b]) * min(max(length[a], length[b]), length[node])
        return pairs


class ArrayForest(OpenCounts):
    """Upward messages of one model, ready to draw from. Parameters are those of :class:`OpenCounts`."""

    def __init__(
        self, forest: BlockForest, nu: Float64, tables: Float64, window: Window | None = None
    ) -> None:
        super().__init__(forest, nu, tables, window)
        with np.errstate(all="ignore"):
            self._set_messages(tables)

    # -- upward ------------------------------------------------------------------------------------------------

    def _set_messages(self, tables: Float64) -> None:
        forest, n, low, high = self._forest, self._forest.n_blocks, self._low, self._high
        self._up: list[Float64] = [np.empty(0)] * len(forest.size)
        if self.impossible:
            return
        for size, blocks in self._by_size():
            log_ratio, _ = _ratios(self._members(self._nu, blocks, size), False)
            for b, row in zip(blocks.tolist(), _log_masses(log_ratio)):
                self._up[b] = row[low[b] - self._forced[b] : high[b] - self._forced[b] + 1]
        for node in range(len(forest.size)):
            if node >= n:
                a, b = forest.left[node - n], forest.right[node - n]
                origin = low[a] + low[b]
                self._up[node] = log_convolve(
                    self._up[a], self._up[b], low[node] - origin, high[node] - origin
                )
            if forest.table[node] >= 0:
                t = forest.table[node]
                self._up[node] = self._up[node] + tables[t + low[node] : t + high[node] + 1]
        self.impossible = any(self._up[r].max(initial=-math.inf) == -math.inf for r in forest.roots)

    def root_log_weights(self) -> tuple[int, Float64]:
        """Smallest count and the log-weights of the counts of the first root, under the tilt, table included."""
        root = int(self._forest.roots[0])
        return int(self._low[root]), self._up[root]

    def _by_size(self) -> list[tuple[int, Ints]]:
        found = []
        for size in np.unique(self._count).tolist():
            blocks = np.flatnonzero(self._count == size)
            step = max(1, _CELLS // (size + 1) ** 2)
            found += [(size, blocks[i : i + step]) for i in range(0, len(blocks), step)]
        return found

    def _members(self, values: NDArray[np.generic], blocks: Ints, size: int) -> NDArray[np.generic]:
        return values[self._start[blocks][:, None] + np.arange(size)]

    # -- downward ----------------------------------------------------------------------------------------------

    def draw(
        self, out: NDArray[np.uint8], rows: Ints, seed: np.random.SeedSequence, totals: Ints | None = None
    ) -> None:
        """Fill ``out[rows]`` (rows, D); ``totals`` (n_rows,) fixes the count of the first root."""
        rng = np.random.default_rng(seed)
        width = max(1, int(self._count.max(initial=1)), len(self._forest.size))
        step = max(1, _CELLS // width)
        for i in range(0, len(rows), step):
            part = slice(i, i + step)
            self._draw(out, rows[part], rng, None if totals is None else totals[part])

    def _draw(
        self, out: NDArray[np.uint8], rows: Ints, rng: np.random.Generator, totals: Ints | None
    ) -> None:
        forest, n, m = self._forest, self._forest.n_blocks, len(rows)
        step = max(1, _CELLS // max(1, len(self._independent)))
        for i in range(0, m if len(self._independent) else 0, step):
            some = rows[i : i + step]
            out[some[:, None], self._independent] = rng.random((len(some), len(self._independent))) < self._on
        z = np.zeros((len(forest.size), m), np.int64)
        for root in forest.roots.tolist():
            z[root] = self._low[root] + indices_of(self._up[root], rng.random(m))
        if totals is not None:
            z[forest.roots[0]] = totals
        for node in range(len(forest.size) - 1, n - 1, -1):
            a, b = forest.left[node - n], forest.right[node - n]
            z[a] = self._split(int(a), int(b), z[node], rng)
            z[b] = z[node] - z[a]
        for size, blocks in self._by_size():
            if size:
                self._draw_blocks(out, rows, rng, blocks, size, z[blocks] - self._forced[blocks][:, None])

    def _split(self, a: int, b: int, z: Ints, rng: np.random.Generator) -> Ints:
        """Counts of the left child given the parent's, samples with the same parent count together."""
        u = rng.random(len(z))
        left = np.empty_like(z)
        order = np.argsort(z, kind="stable")
        values, starts = np.unique(z[order], return_index=True)
        for value, who in zip(values.tolist(), np.split(order, starts[1:])):
            low = max(self._low[a], value - self._high[b])
            high = min(self._high[a], value - self._low[b])
            second = self._up[b][value - high - self._low[b] : value - low - self._low[b] + 1][::-1]
            terms = self._up[a][low - self._low[a] : high - self._low[a] + 1] + second
            left[who] = low + indices_of(terms, u[who])
        return left

    def _draw_blocks(
        self, out: NDArray[np.uint8], rows: Ints, rng: np.random.Generator, blocks: Ints, size: int, r: Ints
    ) -> None:
        nu, variable = self._members(self._nu, blocks, size), self._members(self._variable, blocks, size)
        with np.errstate(all="ignore"):
            _, on = _ratios(nu, True)
        for i in range(size):
            y = rng.random(r.shape) < np.take_along_axis(on[i], r, axis=1)
            r = r - y
            out[rows[:, None], variable[:, i]] = y.T


def _log_masses(log_ratio: Float64) -> Float64:
    """Log P(0..n) of blocks (B, n + 1) from log P(r) - log P(r - 1), which falls with r.

    Summed from the most probable count, where the sign changes, the entries that matter are small numbers however
    large the log-odds are; they add up to one.
    """
    rising = log_ratio > 0
    up = np.cumsum(np.where(rising, 0.0, log_ratio), axis=1)
    down = np.cumsum(np.where(rising, log_ratio, 0.0)[:, ::-1], axis=1)[:, ::-1]
    none = np.zeros((len(log_ratio), 1))
    mass = np.concatenate([none, up], axis=1) - np.concatenate([down, none], axis=1)
    return np.asarray(mass - np.log(np.exp(mass).sum(1, keepdims=True)))


def _ratios(nu: NDArray[np.generic], keep: bool) -> tuple[Float64, list[Float64]]:
    """For blocks (B, n) of log-odds: log rho(1..n) (B, n), and per variable P(on | r from here on) for r = 0..n."""
    blocks, n = nu.shape
    log_ratio = np.full((blocks, n), -math.inf)
    on: list[Float64] = [np.empty(0)] * n
    for i in range(n - 1, -1, -1):
        own = np.asarray(nu[:, i : i + 1], np.float64)
        if keep:
            # With r = 0 nothing is on; where all that is left must be on, rho is 0 and the probability exactly 1.
            on[i] = np.concatenate([np.zeros((blocks, 1)), expit(own - log_ratio)], axis=1)
        joined = np.logaddexp(log_ratio, own)
        step = np.empty_like(log_ratio)
        step[:, :1] = joined[:, :1]
        step[:, 1:] = log_ratio[:, :-1] + (joined[:, 1:] - joined[:, :-1])
        log_ratio = step
    return log_ratio, on
