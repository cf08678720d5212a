"""Functions of a sum, by their logarithms."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Float64, Ints


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
