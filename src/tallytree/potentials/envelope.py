"""Where the logarithm of a potential bends up, down or not at all: its largest value under a slope without a table.

A solver over 10^9 variables asks for ``max_k log f(k) - slope k`` on long ranges of counts. On a stretch where log f is
concave that is a search by halves, and where it is convex one of the two ends.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from tallytree.arrays import Float64
from tallytree.errors import ParameterError
from tallytree.memo import once

LONGEST_TABLE = 1 << 24  # counts of a stretch that has to be looked at as a whole
_KEPT = (
    1 << 18
)  # counts of a stretch that is: a formula asked for single counts takes as long as for a thousand


Convexity = Literal["straight", "concave", "convex", "unknown"]


class Stretch(NamedTuple):
    """Counts first, first + step, ..., last, on which log f bends one way; it may be -inf at the ends only."""

    first: int
    last: int
    convexity: Convexity
    step: int = 1


class Envelope:
    """The largest values of a single potential for a group of ``n`` variables.

    Parameters
    ----------
    potential : Potential
    n : int
    window : callable
        ``window(first, last)`` is log f(first), ..., log f(last).
    """

    def __init__(self, potential: Any, n: int, window: Callable[[int, int], Float64]) -> None:
        self._window, self._name = window, repr(potential)
        self.stretches = [s for s in potential._stretches(n) if s.first <= s.last]
        self._ends = np.array([s.last for s in self.stretches])

    def largest(self, first: int, last: int, slope: float) -> float:
        """The largest ``log f(k) - slope (k - first)`` for ``first <= k <= last``; -inf if none is possible."""
        best = -math.inf
        for stretch in self.stretches[int(np.searchsorted(self._ends, first)) :]:
            if stretch.first > last:
                break
            step = stretch.step
            low = max(stretch.first, first + (stretch.first - first) % step)
            high = min(stretch.last, last - (last - stretch.last) % step)
            if low <= high:
                best = max(best, self._along(stretch, low, high, slope) - slope * (low - first))
        return best

    def _along(self, stretch: Stretch, low: int, high: int, slope: float) -> float:
        """The largest ``log f(k) - slope (k - low)`` on a part of a stretch."""
        if stretch.convexity == "unknown":
            inside = self._table(stretch)[low - stretch.first : high - stretch.first + 1]
            return float(np.max(inside - slope * np.arange(len(inside))))
        window = self._quick_window(stretch)
        tried = [low, high]
        if stretch.convexity == "concave":
            top = self._top(window, low, high, slope)
            tried += [k for k in (top - 1, top, top + 1) if low <= k <= high]
        return max(float(window(k, k)[0]) - slope * (k - low) for k in tried)

    def _quick_window(self, stretch: Stretch) -> Callable[[int, int], Float64]:
        """A function like `window`, from a table where the stretch is short enough for one."""
        if stretch.last - stretch.first >= _KEPT:
            return self._window
        table, start = self._table(stretch), stretch.first
        return lambda first, last: table[first - start : last - start + 1]

    def _top(self, window: Callable[[int, int], Float64], low: int, high: int, slope: float) -> int:
        """The first count from which a concave log f rises by less than the slope."""

        def rises(k: int) -> bool:
            here, there = window(k, k + 1)
            return bool(there > -math.inf and (here == -math.inf or there - here >= slope))

        return low + bisect_left(range(low, high), True, key=lambda k: not rises(k))

    def _table(self, stretch: Stretch) -> Float64:
        length = stretch.last - stretch.first + 1
        if length > LONGEST_TABLE:
            raise ParameterError(
                f"`{self._name}` has to be looked at on {length} counts one by one, which is limited to "
                f"{LONGEST_TABLE}. Use a named potential, or confine the count by multiplying with `between`."
            )
        return once(self, stretch, lambda: self._window(stretch.first, stretch.last))


def crossed(a: list[Stretch], b: list[Stretch]) -> list[Stretch]:
    """Stretches on which both logarithms convexity one way, in rising order."""
    out, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        both = _sum(a[i], b[j])
        if both is not None:
            out.append(both)
        i, j = (i + 1, j) if a[i].last <= b[j].last else (i, j + 1)
    return out


def _sum(a: Stretch, b: Stretch) -> Stretch | None:
    bends = {a.convexity, b.convexity} - {"straight"}
    convexity: Convexity = a.convexity if a.convexity != "straight" else b.convexity
    if len(bends) > 1:
        convexity = "unknown"
    low, high, step = max(a.first, b.first), min(a.last, b.last), max(a.step, b.step)
    if a.step > 1 and b.step > 1:
        return Stretch(low, high, "unknown") if low <= high else None
    if step > 1:
        origin = a.first if a.step > 1 else b.first
        low += (origin - low) % step
        high -= (high - origin) % step
        if convexity != "straight":
            step, convexity = 1, "unknown"  # few such potentials; the counts between are impossible
    return Stretch(low, high, convexity, step) if low <= high else None
