"""The posterior distribution of the count of all variables, on windows that hold all but a negligible part of it.

Under one tilt the inverse transform knows every probability to about 1e-16 of the largest, and so the counts within
five standard deviations of the mean relatively well. Further out another tilt serves; where the ranges of two tilts
meet, both are right, which fixes the constant between them without large numbers.

Exact joint draws over chunks are made of laws of counts. Given the total, a tilt common to all variables changes
nothing: ``P(counts of chunks | total)`` is proportional to the product of the laws of the chunks under any tilt. So the
total is drawn from the posterior and split top-down over a tree of chunks, each node of which has the merged sums of
its chunks; then every chunk is drawn given its count.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ....arrays import Float64, States
from ....errors import InfeasibleError, PrecisionError
from ....structure.nested.count_tree import CountTree
from ... import native
from ...law import Law, draw_index
from ...problem import Problem
from ...sample.sampler import Sampler
from ..solver import CountSolver
from .solve import COLLECTABLE, CountTable, Part, Shifted, Solution, collected_problem, solve
from .sums import ENOUGH, VALUES, Request, Sums, count_law, reduce

RELATIVE = 3e-9  # error of a probability that a tilt is trusted with
NEGLIGIBLE = 44.0  # nats below the likeliest count at which the window may end
STRIDE = 4.5  # standard deviations between the means of neighbouring tilts, where nothing else is known
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
        sums = sums.joined((yield tuple(Request("deviations", (tilt, ENOUGH)) for tilt in wanted)))
        small = tuple(Request("small deviations", (tilt,)) for tilt in wanted if _misses(sums, tilt))
        if small:
            sums = sums.joined((yield small))
        for window in growing:
            window.grow(sums)
    if not all(window.complete() for window in growing):
        return (yield from _otherwise(solution.table))
    found = [window.finished() for window in growing]
    if solution.log_all_off > -math.inf:
        found.append(CountWindow(0, np.array([solution.log_all_off])))
    if solution.log_all_on > -math.inf:
        found.append(CountWindow(sums.n, np.array([solution.log_all_on])))
    return _joined([window._replace(first=window.first + forced) for window in found])


class _Law(NamedTuple):
    """The law of the count under a tilt, up to a constant, where it is right."""

    tilt: float
    law: Law
    sd: float


def _misses(sums: Sums, tilt: float) -> bool:
    return native.flat_count_law(sums.n, list(sums.parts.items()), tilt, False)[1] is None


def _law(sums: Sums, tilt: float) -> _Law:
    low, probs, noise, slope, mean, variance, _, _ = count_law(sums, tilt)
    away = np.abs(low + np.arange(len(probs)) - mean)
    good = noise + probs * slope * away / max(variance, 1.0) <= RELATIVE * probs
    top = int(np.argmax(probs))
    bad = np.flatnonzero(~good)
    start = int(bad[bad < top].max(initial=-1)) + 1
    stop = int(bad[bad > top].min(initial=len(probs)))
    return _Law(tilt, Law(int(low) + start, np.log(probs[start:stop])), math.sqrt(variance))


class _Side:
    """One end of a window: the law that reaches it, and how far the next tilt goes."""

    def __init__(self, sign: int, law: _Law) -> None:
        self.sign, self.law = sign, law
        self.boldness = 0.9  # the next mean lies a little inside the end, where both laws are right

    def next_tilt(self) -> float:
        """The tilt under which the two counts at the end are about equally likely."""
        logs = self.law.law.log_weights
        last = logs[-2:] if self.sign > 0 else logs[1::-1]
        falls = float(last[0] - last[1]) if len(last) == 2 else STRIDE / max(self.law.sd, 0.5)
        return self.law.tilt + self.sign * self.boldness * max(falls, 1e-3 * STRIDE / max(self.law.sd, 0.5))


class _Growing:
    """A window of the posterior of one part, which grows to both sides."""

    def __init__(self, part: Part, table: Shifted, law: _Law) -> None:
        self._part, self._table = part, table
        self._sides = (_Side(-1, law), _Side(1, law))
        self._first, self._log_probs = self._cut(law)
        self._weigh()

    @property
    def _last(self) -> int:
        return self._first + len(self._log_probs) - 1

    def wanted(self) -> list[float]:
        """Tilts under which the window would go on, where it has to."""
        return [side.next_tilt() for side in self._sides if self._goes_on(side)]

    def grow(self, sums: Sums) -> None:
        """Take up the laws that were wanted."""
        for side in [side for side in self._sides if self._goes_on(side)]:
            law = _law(sums, side.next_tilt())
            first, log_probs = self._cut(law)
            # Relative to the tilt of the part: P_s(k) is proportional to P_t(k) e^{-(t - s) k}.
            ramp = (law.tilt - self._part.tilt) * (first + np.arange(len(log_probs)) - self._first)
            before = len(self._log_probs)
            self._join(first, log_probs - ramp)
            if len(self._log_probs) > before:
                side.law = law
            else:
                side.boldness *= 0.5  # too far, or not far enough beyond a gap: the next one is nearer
        self._weigh()

    def finished(self) -> CountWindow:
        """Normalised to the share of the part."""
        return CountWindow(self._first, self._weights - self._log_total() + self._part.log_share)

    def _goes_on(self, side: _Side) -> bool:
        """Whether what lies beyond an end may be more than negligible.

        The law of the count is log-concave: beyond the end it falls at least as fast as at the end.
        """
        low, high = (
            (self._last + 1, self._part.last) if side.sign > 0 else (self._part.first, self._first - 1)
        )
        if low > high or side.boldness < 1e-3:
            return False
        h = self._log_probs if side.sign > 0 else self._log_probs[::-1]
        fall = min(float(h[-1] - h[-2]), 0.0) if len(h) > 1 else 0.0
        # All counts at their largest weight, or half of the fall as a geometric series: both are bounds of the sum.
        bound = self._beyond(side, low, high, fall) + math.log(high - low + 1.0)
        if fall < 0.0:
            series = (
                self._beyond(side, low, high, 0.5 * fall) + 0.5 * fall - math.log(-math.expm1(0.5 * fall))
            )
            bound = min(bound, series)
        return bool(bound > self._log_total() - NEGLIGIBLE)

    def _beyond(self, side: _Side, low: int, high: int, fall: float) -> float:
        """The largest log f(k) - tilt (k - first) + h(end) + fall |k - end| on the far side of an end."""
        end, h = (self._last, self._log_probs[-1]) if side.sign > 0 else (self._first, self._log_probs[0])
        top = self._table.largest(low, high, self._part.tilt - side.sign * fall)
        return float(top + h - self._part.tilt * (low - self._first) + fall * abs(low - end))

    def complete(self) -> bool:
        """Whether nothing that matters is missing."""
        for side in self._sides:
            side.boldness = 0.9
        return not any(self._goes_on(side) for side in self._sides)

    def _log_total(self) -> float:
        top = self._weights.max()
        return float(np.log(np.exp(self._weights - top).sum()) + top) if top > -math.inf else -math.inf

    def _cut(self, law: _Law) -> tuple[int, Float64]:
        inside = law.law.within(self._part.first, self._part.last)
        return inside.first, inside.log_weights

    def _join(self, first: int, log_probs: Float64) -> None:
        last, own_last = first + len(log_probs) - 1, self._last
        low, high = max(first, self._first), min(last, own_last)
        if low > high:
            return
        middle = (low + high) // 2
        log_probs = log_probs + (self._log_probs[middle - self._first] - log_probs[middle - first])
        before = log_probs[: max(0, self._first - first)]
        after = log_probs[own_last + 1 - first :] if last > own_last else log_probs[:0]
        self._log_probs = np.concatenate([before, self._log_probs, after])
        self._first = min(first, self._first)

    def _weigh(self) -> None:
        log_f = self._table.window(self._first, self._last)
        self._weights = self._log_probs + log_f - self._part.tilt * np.arange(len(log_f))


def _otherwise(table: CountTable) -> Asking:
    """Where tilts do not certify the window."""
    if table.n > COLLECTABLE:
        raise PrecisionError(
            f"tilts do not certify the distribution of the count of these {table.n} variables, and they are too many "
            "for the methods that would. Ask for marginals, or for fewer variables."
        )
    everything = Request(VALUES, ())
    sums = yield (everything,)
    return _collected(sums.parts[everything].listed, table)


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


# -- draws ---------------------------------------------------------------------------------------------------------

SMALL_VARIANCE = 50.5  # below 50 the compiled engine wants small deviations one by one


def law_sums(logits: NDArray[Any], tilt: float) -> Sums:
    """What the law of a chunk's count under a tilt needs; sums of chunks add."""
    wide = Request("deviations", (tilt, ENOUGH))
    sums = reduce(logits, [wide])
    part = sums.parts[wide]
    variance = (part.sum[6] + part.carry[6]) / 8.0  # the second deviation sum stands after five totals
    if variance < SMALL_VARIANCE:
        sums = sums.joined(reduce(logits, [Request("small deviations", (tilt,))]))
    return sums


def law_of(sums: Sums, tilt: float) -> Law:
    """The law under a tilt of the count of the variables behind `sums`, which :func:`law_sums` took at this tilt.

    Counts outside its window have less than exp(-42).
    """
    if sums.n == 0:
        return Law(sums.forced, np.zeros(1))
    first, probs = count_law(sums, tilt)[:2]
    with np.errstate(divide="ignore"):
        return Law(int(first) + sums.forced, np.log(np.maximum(probs, 0.0)))


class Total(NamedTuple):
    """How many of all variables are on, and a tilt under which that is not rare."""

    on: int
    tilt: float


def draw_total(solution: Solution, rng: np.random.Generator) -> Total:
    """Draw the count of all variables from the posterior; for solutions made of parts."""
    sums, seen = solution.sums, Shifted(solution.table, solution.sums.forced, solution.sums.excluded)
    if solution.impossible:
        raise InfeasibleError("an impossible model has no samples")
    if sums.n == 0:
        return Total(sums.forced, 0.0)
    shares = [*(part.log_share for part in solution.parts), solution.log_all_off, solution.log_all_on]
    which = draw_index(np.array(shares), rng)
    if which >= len(solution.parts):
        return Total(sums.forced + (0 if which == len(solution.parts) else sums.n), 0.0)
    part = solution.parts[which]
    law = law_of(sums, part.tilt).shifted(-sums.forced).within(part.first, part.last)
    log_f = seen.window(law.first, law.last) - part.tilt * np.arange(len(law.log_weights))
    weighed = law._replace(log_weights=law.log_weights + log_f)
    return Total(sums.forced + weighed.draw(rng), part.tilt)


def draw_given_count(logits: NDArray[Any], count: int, rng: np.random.Generator) -> States:
    """Draw a chunk (m,) given how many of its variables are on."""
    nu = np.array(logits, np.float64)
    if len(nu) <= 1:
        return np.full(len(nu), count, np.uint8)
    log_f = np.full(len(nu) + 1, -math.inf)
    log_f[count] = 0.0
    return _drawn(Problem(CountTree.flat(len(nu)), nu[None], log_f[None]), rng)


def draw_gathered(solution: Solution, rng: np.random.Generator) -> States:
    """Draw all variables of a solution that has them at hand, in order."""
    assert solution.gathered is not None
    if len(solution.gathered) == 1:
        odds = solution.mapping.look_up(solution.gathered)
        return (rng.random(1) < expit(odds)).astype(np.uint8)
    return _drawn(collected_problem(solution.gathered, solution.table), rng)


def _drawn(problem: Problem, rng: np.random.Generator) -> States:
    sampler = Sampler(problem)
    if sampler.impossible.any():
        raise InfeasibleError("an impossible model has no samples")
    return np.asarray(sampler.draw(1, rng)[0, 0])
