"""The posterior distribution of the count of all variables, on windows that hold all but a negligible part of it.

Under one tilt the inverse transform knows every probability to about 1e-16 of the largest, and so the counts within
five standard deviations of the mean relatively well. Further out another tilt serves; where the ranges of two tilts
meet, both are right, which fixes the constant between them without large numbers.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from ....arrays import Float64
from ... import native
from ..solver import CountSolver
from .solution import Part, Solution
from .solve import collected_problem, solve
from .sums import Request, Sums
from .table import CountTable, Shifted

RELATIVE = 3e-9  # error of a probability that a tilt is trusted with
NEGLIGIBLE = 44.0  # nats below the likeliest count at which the window may end
STRIDE = 4.5  # standard deviations between the means of neighbouring tilts
ROUNDS = 16  # of reductions, at most; each brings another tilt on both sides

Asking = Generator[tuple[Request, ...], Sums, "tuple[CountWindow, ...]"]


class CountWindow(NamedTuple):
    """Log-probabilities of the counts ``first``, ``first + 1``, ... of all variables."""

    first: int
    log_probs: Float64


def count_windows(solution: Solution) -> Asking:
    """A conversation like :func:`solve` that ends with the windows, in rising order, none of them touching.

    Notes
    -----
    Cost: one further reduction of the variables where the first tilt does not reach far enough, which is usual.
    Accuracy: log-probabilities within 1e-8; counts outside all windows have less than e^-40 of the mass.
    """
    if solution.gathered is not None:
        return _collected(solution.gathered, solution.table)
    if not solution.parts and solution.sums.n and max(solution.log_all_off, solution.log_all_on) == -math.inf:
        solution = yield from solve(solution.table)  # a closed form knows no counts
    sums, forced = solution.sums, solution.sums.forced
    seen = Shifted(solution.table, forced, sums.excluded)
    if sums.n == 0:
        return (CountWindow(forced, np.zeros(1)),)
    growing = [_Growing(part, seen, _law(sums, part.tilt)) for part in solution.parts]
    for _ in range(ROUNDS):
        wanted = sorted({tilt for window in growing for tilt in window.wanted()})
        if not wanted:
            break
        sums = sums.joined((yield tuple(Request("deviations", (tilt, 48.0)) for tilt in wanted)))
        small = tuple(Request("small deviations", (tilt,)) for tilt in wanted if _misses(sums, tilt))
        if small:
            sums = sums.joined((yield small))
        for window in growing:
            window.grow(sums)
    found = [window.finished() for window in growing]
    if solution.log_all_off > -math.inf:
        found.append(CountWindow(0, np.array([solution.log_all_off])))
    if solution.log_all_on > -math.inf:
        found.append(CountWindow(sums.n, np.array([solution.log_all_on])))
    return _joined([window._replace(first=window.first + forced) for window in found])


class _Law(NamedTuple):
    """Log of P(count) under a tilt, up to a constant, where it is right."""

    tilt: float
    first: int
    log_probs: Float64
    mean: float
    sd: float

    @property
    def last(self) -> int:
        return self.first + len(self.log_probs) - 1


def _misses(sums: Sums, tilt: float) -> bool:
    return native.flat_count_law(sums.n, list(sums.parts.items()), tilt, False)[1] is None


def _law(sums: Sums, tilt: float) -> _Law:
    missing, found = native.flat_count_law(sums.n, list(sums.parts.items()), tilt, False)
    if found is None:
        raise ValueError(f"sums for the law of a count under tilt {tilt} lack {missing}")
    low, probs, noise, slope, mean, variance, _, _ = found
    away = np.abs(low + np.arange(len(probs)) - mean)
    good = noise + probs * slope * away / max(variance, 1.0) <= RELATIVE * probs
    top = int(np.argmax(probs))
    bad = np.flatnonzero(~good)
    start = int(bad[bad < top].max(initial=-1)) + 1
    stop = int(bad[bad > top].min(initial=len(probs)))
    return _Law(tilt, int(low) + start, np.log(probs[start:stop]), mean, math.sqrt(variance))


class _Growing:
    """A window of the posterior of one part, which grows to both sides."""

    def __init__(self, part: Part, table: Shifted, law: _Law) -> None:
        self._part, self._table = part, table
        self._left = self._right = law
        self._first, self._log_probs = self._cut(law)
        self._weigh()

    def wanted(self) -> list[float]:
        """Tilts under which the window would go on, where it has to."""
        part, likeliest = self._part, self._weights.max()
        out = []
        last = self._first + len(self._log_probs) - 1
        if last < part.last and self._edge(-1) > likeliest - NEGLIGIBLE:
            out.append(self._right.tilt + STRIDE / max(self._right.sd, 0.5))
        if self._first > part.first and self._edge(0) > likeliest - NEGLIGIBLE:
            out.append(self._left.tilt - STRIDE / max(self._left.sd, 0.5))
        return out

    def grow(self, sums: Sums) -> None:
        """Take up the laws that were wanted."""
        for tilt in self.wanted():
            law = _law(sums, tilt)
            first, log_probs = self._cut(law)
            # Relative to the tilt of the part: P_s(k) is proportional to P_t(k) e^{-(t - s) k}.
            log_probs = log_probs - (tilt - self._part.tilt) * (
                first + np.arange(len(log_probs)) - self._first
            )
            self._join(first, log_probs)
            if tilt > self._part.tilt:
                self._right = law
            else:
                self._left = law
        self._weigh()

    def finished(self) -> CountWindow:
        """Normalised to the share of the part."""
        total = np.log(np.exp(self._weights - self._weights.max()).sum()) + self._weights.max()
        return CountWindow(self._first, self._weights - total + self._part.log_share)

    def _cut(self, law: _Law) -> tuple[int, Float64]:
        first, last = max(law.first, self._part.first), min(law.last, self._part.last)
        return first, law.log_probs[first - law.first : last - law.first + 1]

    def _join(self, first: int, log_probs: Float64) -> None:
        last, own_last = first + len(log_probs) - 1, self._first + len(self._log_probs) - 1
        low, high = max(first, self._first), min(last, own_last)
        if low > high:
            return  # too far: the window stays as it is
        middle = (low + high) // 2
        log_probs = log_probs + (self._log_probs[middle - self._first] - log_probs[middle - first])
        before = log_probs[: max(0, self._first - first)]
        after = log_probs[own_last + 1 - first :] if last > own_last else log_probs[:0]
        self._log_probs = np.concatenate([before, self._log_probs, after])
        self._first = min(first, self._first)

    def _weigh(self) -> None:
        last = self._first + len(self._log_probs) - 1
        log_f = self._table.window(self._first, last)
        ramp = self._part.tilt * np.arange(len(log_f))
        self._weights = self._log_probs + log_f - ramp

    def _edge(self, which: int) -> float:
        """The weight at an end of the window; under a potential with gaps, of the nearest possible count."""
        finite = self._weights[self._weights > -math.inf]
        return float(finite[which]) if len(finite) else -math.inf


def _collected(logits: Float64, table: CountTable) -> tuple[CountWindow, ...]:
    if len(logits) == 1:
        log_z = np.logaddexp(table.at(0), table.at(1) + logits[0])
        return (CountWindow(0, np.array([table.at(0), table.at(1) + logits[0]]) - log_z),)
    return (CountWindow(0, CountSolver(collected_problem(logits, table)).counts(0)[0]),)


def _joined(windows: list[CountWindow]) -> tuple[CountWindow, ...]:
    """Windows in rising order, neighbours as one."""
    out: list[CountWindow] = []
    for window in sorted(windows, key=lambda w: w.first):
        if out and out[-1].first + len(out[-1].log_probs) >= window.first:
            overlap = out[-1].first + len(out[-1].log_probs) - window.first
            log_probs = np.concatenate([out[-1].log_probs, window.log_probs[overlap:]])
            out[-1] = CountWindow(out[-1].first, log_probs)
        else:
            out.append(window)
    return tuple(out)
