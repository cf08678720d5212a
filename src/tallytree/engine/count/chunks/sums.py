"""Reduce: what a chunk of log-odds comes to, and how the sums of chunks add up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....arrays import Float64
from ... import native
from ...log_sums import add_exactly

OVERVIEW = 16.0  # reach of the histogram that is taken before anything is known; also of the compiled engine
VALUES = "values"  # the one request that is not a sum: the log-odds themselves, in order
# Deviation sums that serve any variance that is not small; kMaxChebyshev of the compiled engine
ENOUGH = 24.0


class Request(NamedTuple):
    """Something to be summed over all finite log-odds.

    ==================  ==============================================================================================
    kind                numbers
    ==================  ==============================================================================================
    "deviations"        tilt, how many: Chebyshev sums of the deviations from the likely state, and the norm of the tilt
    "small deviations"  tilt: power sums of small deviations, and a list of the others; where the variance is small
    "histogram"         low, high: bins of equal width, and a list of what lies outside
    "powers"            rates: products of 1 - p + p rate
    "values"            nothing: the log-odds themselves, infinite ones too
    ==================  ==============================================================================================
    """

    kind: str
    numbers: tuple[float, ...]


class Reduced(NamedTuple):
    """What a request comes to: numbers that add with their rounding errors, extremes, and a list."""

    sum: Float64
    carry: Float64
    least: Float64
    most: Float64
    listed: Float64
    complete: bool  # lists that would be too long to be of use are not kept

    def plus(self, later: Reduced) -> Reduced:
        """Both together; the order matters in the last bits, and in the list."""
        total = self.sum + later.sum
        carry = self.carry
        if len(carry):
            carry = (carry + add_exactly(self.sum, later.sum)[1]) + later.carry
        complete = self.complete and later.complete
        listed = np.concatenate([self.listed, later.listed]) if complete else np.empty(0)
        least, most = np.fmin(self.least, later.least), np.fmax(self.most, later.most)
        return Reduced(total, carry, least, most, listed, complete)


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """Sums over one or more chunks; small, picklable.

    Attributes
    ----------
    size : int
        Log-odds of all kinds.
    excluded, forced, invalid : int
        Log-odds of -inf and +inf, and NaN; none of them is in the sums.
    parts : mapping
        What was asked for.
    """

    size: int
    excluded: int
    forced: int
    invalid: int
    parts: Mapping[Request, Reduced]

    @property
    def n(self) -> int:
        """Finite log-odds."""
        return self.size - self.excluded - self.forced - self.invalid

    def plus(self, later: Sums) -> Sums:
        """The sums over both, of what was asked of both."""
        common = [request for request in self.parts if request in later.parts]
        parts = {request: self.parts[request].plus(later.parts[request]) for request in common}
        return Sums(
            self.size + later.size,
            self.excluded + later.excluded,
            self.forced + later.forced,
            self.invalid + later.invalid,
            parts,
        )

    def joined(self, others: Sums) -> Sums:
        """Add what was asked for later of the same variables."""
        return Sums(self.size, self.excluded, self.forced, self.invalid, {**self.parts, **others.parts})


def reduce(logits: NDArray[Any], requests: Sequence[Request]) -> Sums:
    """Sums over one chunk (m,) of log-odds, float64 or float32, infinite ones allowed.

    All requests are served in one pass. Cost: about 1.5 ns per log-odds for 12 sums, and as much for a histogram.
    """
    chunk = np.ascontiguousarray(logits)
    asked = [request for request in requests if request.kind != VALUES]
    excluded, forced, invalid, found = native.flat_reduce(chunk, asked) if asked else _not_finite(chunk)
    parts = {request: Reduced(*part) for request, part in zip(asked, found, strict=True)}
    for request in requests:
        if request.kind == VALUES:
            nothing = np.empty(0)
            values = chunk.astype(np.float64)
            parts[request] = Reduced(nothing, nothing, nothing, nothing, values, True)
    return Sums(len(chunk), excluded, forced, invalid, parts)


def count_law(sums: Sums, tilt: float) -> Any:
    """The law of the count under a tilt, as the compiled engine has it; see cpp/bind/flat.cpp."""
    missing, found = native.flat_count_law(sums.n, list(sums.parts.items()), tilt, False)
    if found is None:
        raise ValueError(f"sums for the law of a count under tilt {tilt} lack {missing}")
    return found


def _not_finite(chunk: NDArray[Any]) -> tuple[int, int, int, list[Any]]:
    excluded, forced = np.count_nonzero(chunk == -np.inf), np.count_nonzero(chunk == np.inf)
    return int(excluded), int(forced), int(np.count_nonzero(np.isnan(chunk))), []


def merge(sums: Iterable[Sums]) -> Sums:
    """The sums over several chunks, added in the order given: the same order and chunks give the same bits."""
    every = iter(sums)
    total = next(every, None)
    if total is None:
        raise ValueError("`merge` needs the sums of at least one chunk")
    for one in every:
        total = total.plus(one)
    return total
