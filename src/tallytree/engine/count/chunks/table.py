"""What solve asks of a potential: single counts, windows, and its largest value under a slope."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from ....arrays import Float64


class CountTable(Protocol):
    """Log f on the counts ``0 .. n`` of all variables; it need not exist as a table."""

    @property
    def n(self) -> int: ...

    def at(self, k: int) -> float:
        """Log f(k)."""

    def window(self, first: int, last: int) -> Float64:
        """Log f(first), ..., log f(last)."""

    def support_within(self, least: int, most: int) -> tuple[int, int]:
        """First and last possible count between the two; the first exceeds the last if there is none."""

    def largest(self, first: int, last: int, slope: float) -> float:
        """The largest ``log f(k) - slope (k - first)`` for ``first <= k <= last``, -inf if none is possible."""


class TableArray:
    """A table in memory."""

    def __init__(self, log_f: Float64) -> None:
        self._log_f = np.ascontiguousarray(log_f, np.float64)

    @property
    def n(self) -> int:
        return len(self._log_f) - 1

    def at(self, k: int) -> float:
        """See CountTable."""
        return float(self._log_f[k])

    def window(self, first: int, last: int) -> Float64:
        """See CountTable."""
        return self._log_f[first : last + 1]

    def support_within(self, least: int, most: int) -> tuple[int, int]:
        """See CountTable."""
        possible = np.flatnonzero(self._log_f[least : most + 1] > -math.inf)
        return (least + int(possible[0]), least + int(possible[-1])) if len(possible) else (least, least - 1)

    def largest(self, first: int, last: int, slope: float) -> float:
        """See CountTable."""
        inside = self._log_f[first : last + 1]
        return float(np.max(inside - slope * np.arange(len(inside)), initial=-math.inf))


class Shifted:
    """The table as the finite variables see it: `forced` others are on, `excluded` ones off."""

    def __init__(self, table: CountTable, forced: int, excluded: int) -> None:
        self._table, self._forced = table, forced
        self.n = table.n - forced - excluded

    def at(self, k: int) -> float:
        """See CountTable."""
        return self._table.at(k + self._forced)

    def window(self, first: int, last: int) -> Float64:
        """See CountTable."""
        inside = self._table.window(first + self._forced, last + self._forced)
        return np.ascontiguousarray(inside, np.float64)

    def support_within(self, least: int, most: int) -> tuple[int, int]:
        """See CountTable."""
        first, last = self._table.support_within(least + self._forced, most + self._forced)
        return first - self._forced, last - self._forced

    def largest(self, first: int, last: int, slope: float) -> float:
        """See CountTable."""
        return self._table.largest(first + self._forced, last + self._forced, slope)
