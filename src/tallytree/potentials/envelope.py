"""Where the logarithm of a potential bends up, down or not at all: its largest value under a slope without a table.

A solver over 10^9 variables asks for ``max_k log f(k) - slope k`` on long ranges of counts. On a stretch where log f is
concave that is a search by halves, and where it is convex one of the two ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import singledispatch
from typing import Literal, NamedTuple

import numpy as np

from tallytree.arrays import Float64
from tallytree.errors import ParameterError
from tallytree.memo import once
from tallytree.potentials.base import Mirrored, Potential, Power, Product
from tallytree.potentials.constraints import Interval, Modulo, OneOf
from tallytree.potentials.exponentials import ExponentialMixture, Geometric, NoisyOr, SpikeAndSlab, Uniform
from tallytree.potentials.profiles import AllOrNone, Gaussian, Poisson, Quadratic

LONGEST_TABLE = 1 << 24  # counts of a stretch that has to be looked at as a whole

Bend = Literal["straight", "concave", "convex", "unknown"]


class Stretch(NamedTuple):
    """Counts first, first + step, ..., last, on which log f bends one way; it may be -inf at the ends only."""

    first: int
    last: int
    bend: Bend
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

    def __init__(self, potential: Potential, n: int, window: Callable[[int, int], Float64]) -> None:
        self._window, self._name = window, repr(potential)
        self.stretches = [s for s in _stretches(potential, n) if s.first <= s.last]
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
        if stretch.bend == "unknown":
            inside = self._table(stretch)[low - stretch.first : high - stretch.first + 1]
            return float(np.max(inside - slope * np.arange(len(inside))))
        tried = [low, high]
        if stretch.bend == "concave":
            top = self._top(low, high, slope)
            tried += [k for k in (top - 1, top, top + 1) if low <= k <= high]
        return max(self._at(k) - slope * (k - low) for k in tried)

    def _at(self, k: int) -> float:
        return float(self._window(k, k)[0])

    def _top(self, low: int, high: int, slope: float) -> int:
        """The first count from which a concave log f rises by less than the slope."""
        while low < high:
            middle = (low + high) // 2
            here, there = self._window(middle, middle + 1)
            rises = there > -math.inf and (here == -math.inf or there - here >= slope)
            low, high = (middle + 1, high) if rises else (low, middle)
        return low

    def _table(self, stretch: Stretch) -> Float64:
        length = stretch.last - stretch.first + 1
        if length > LONGEST_TABLE:
            raise ParameterError(
                f"`{self._name}` has to be looked at on {length} counts one by one, which is limited to "
                f"{LONGEST_TABLE}. Use a named potential, or confine the count by multiplying with `between`."
            )
        return once(self, stretch, lambda: self._window(stretch.first, stretch.last))


@singledispatch
def _stretches(potential: Potential, n: int) -> list[Stretch]:
    return [Stretch(0, n, "unknown")]


def _supported(potential: Potential, n: int, bend: Bend) -> list[Stretch]:
    low, high = potential._support(n)
    return [Stretch(int(low), int(high), bend)]


@_stretches.register(Interval)
@_stretches.register(Uniform)
@_stretches.register(Geometric)
def _straight(potential: Potential, n: int) -> list[Stretch]:
    return _supported(potential, n, "straight")


@_stretches.register(Gaussian)
@_stretches.register(Poisson)
@_stretches.register(NoisyOr)
def _concave(potential: Potential, n: int) -> list[Stretch]:
    # log(1 - a b^c) is concave, because 1 - a b^c is; log(a b^c) is straight.
    return _supported(potential, n, "concave")


@_stretches.register
def _one_of(potential: OneOf, n: int) -> list[Stretch]:
    counts = np.array(potential._within(n), np.int64)
    starts = np.flatnonzero(np.diff(counts, prepend=-2) > 1)
    ends = np.append(starts[1:], len(counts)) - 1
    return [Stretch(int(counts[a]), int(counts[b]), "straight") for a, b in zip(starts, ends)]


@_stretches.register
def _modulo(potential: Modulo, n: int) -> list[Stretch]:
    low, high = potential._support(n)
    return [Stretch(low, high, "straight", potential.m)]


@_stretches.register
def _quadratic(potential: Quadratic, n: int) -> list[Stretch]:
    return [Stretch(0, n, "convex" if potential.curvature > 0.0 else "concave")]


@_stretches.register
def _spike_and_slab(potential: SpikeAndSlab, n: int) -> list[Stretch]:
    rest = [Stretch(1, n, "straight")] if potential.slab > 0.0 else []
    return [Stretch(0, 0, "straight"), *rest]


@_stretches.register
def _all_or_none(potential: AllOrNone, n: int) -> list[Stretch]:
    # Straight up to the count at which the penalty stops growing, and so is the mirror image.
    reach = 0 if potential.truncation is None else int(min(potential.truncation, 0.5 * n))
    return [
        Stretch(0, reach, "straight"),
        Stretch(reach + 1, n - reach - 1, "straight"),
        Stretch(max(n - reach, reach + 1), n, "straight"),
    ]


@_stretches.register
def _mixture(potential: ExponentialMixture, n: int) -> list[Stretch]:
    if min(potential.coefficients) >= 0.0 and min(potential.rates) > 0.0:
        return [Stretch(0, n, "convex")]  # the log of a sum of exponentials
    return [Stretch(0, n, "unknown")]


@_stretches.register
def _power(potential: Power, n: int) -> list[Stretch]:
    return _stretches(potential.base, n)


@_stretches.register
def _mirrored(potential: Mirrored, n: int) -> list[Stretch]:
    found = _stretches(potential._mirror(), n)
    return [Stretch(n - s.last, n - s.first, s.bend, s.step) for s in reversed(found)]


@_stretches.register
def _product(potential: Product, n: int) -> list[Stretch]:
    found = _stretches(potential.factors[0], n)
    for factor in potential.factors[1:]:
        found = _crossed(found, _stretches(factor, n))
    return found


def _crossed(a: list[Stretch], b: list[Stretch]) -> list[Stretch]:
    """Stretches on which both logarithms bend one way, in rising order."""
    out, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        both = _sum(a[i], b[j])
        if both is not None:
            out.append(both)
        i, j = (i + 1, j) if a[i].last <= b[j].last else (i, j + 1)
    return out


def _sum(a: Stretch, b: Stretch) -> Stretch | None:
    bends = {a.bend, b.bend} - {"straight"}
    bend: Bend = a.bend if a.bend != "straight" else b.bend
    if len(bends) > 1:
        bend = "unknown"
    low, high, step = max(a.first, b.first), min(a.last, b.last), max(a.step, b.step)
    if a.step > 1 and b.step > 1:
        return Stretch(low, high, "unknown") if low <= high else None
    if step > 1:
        origin = a.first if a.step > 1 else b.first
        low += (origin - low) % step
        high -= (high - origin) % step
        if bend != "straight":
            step, bend = 1, "unknown"  # few such potentials; the counts between are impossible
    return Stretch(low, high, bend, step) if low <= high else None
