"""What solving from sums ends with.

What solve asks of a potential: single counts, windows, and its largest value under a slope.

Map: a solution turns a chunk of log-odds into posterior log-odds or marginals, each variable by itself.

The numbers that the compiled engine makes of a solution, as far as Python reads them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ....arrays import Float64
from ... import native
from ...answer import posterior
from .sums import Sums


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


What = Literal["posterior_logits", "marginals"]


@dataclass(frozen=True, eq=False, slots=True)
class Mapping:
    """All that a chunk needs to know of a solution: a few hundred numbers, or for few variables a list.

    Attributes
    ----------
    series
        Numbers of the compiled engine; empty where the answers are listed.
    logits, messages
        Finite log-odds in rising order, and what the potential says to variables with these.
    """

    series: Float64 = field(default_factory=lambda: np.empty(0))
    logits: Float64 = field(default_factory=lambda: np.empty(0))
    messages: Float64 = field(default_factory=lambda: np.empty(0))

    def look_up(self, logits: Float64) -> Float64:
        """Posterior log-odds of listed variables."""
        place = np.searchsorted(self.logits, logits)
        place = np.minimum(place, max(0, len(self.logits) - 1))
        finite = np.isfinite(logits)
        if not np.array_equal(self.logits[place[finite]], logits[finite]):
            raise ValueError("a chunk has other log-odds than when it was reduced")
        messages = np.zeros(logits.shape)
        messages[finite] = self.messages[place[finite]]
        return posterior(logits, messages)


def map_logits(
    logits: NDArray[Any],
    mapping: Mapping,
    what: What = "posterior_logits",
    *,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Posterior log-odds, or marginals, of one chunk (m,), in its own precision: float64 or float32.

    Parameters
    ----------
    logits : (m,)
        As they were reduced; infinite ones keep their values.
    mapping : Mapping
        Of the solution.
    what : str
        "posterior_logits" or "marginals".
    out : (m,), optional
        Where the answer goes, of the same precision and contiguous; it may be `logits` itself.

    Notes
    -----
    Cost: about 2 ns per variable.
    """
    chunk = np.ascontiguousarray(logits)
    result = np.empty_like(chunk) if out is None else out
    if len(mapping.series):
        native.flat_map(mapping.series, chunk, result, what == "marginals")
        return result
    odds = mapping.look_up(chunk.astype(np.float64))
    result[...] = expit(odds) if what == "marginals" else odds
    return result


class Part(NamedTuple):
    """Counts ``first .. last`` of the finite variables that were solved under one tilt, and their log share."""

    tilt: float
    log_share: float
    first: int
    last: int


@dataclass(frozen=True, eq=False, slots=True)
class Solution:
    """A certified answer; what a chunk needs of it is `mapping`.

    Attributes
    ----------
    log_partition : float
        Log Z, forced variables with weight one; -inf for an impossible model, which has no other answers.
    error_bound : float
        Certified bound on the error of every posterior log-odds, and of log Z beyond its rounding.
    mapping : Mapping
        For :func:`map_logits`.
    sums : Sums
        All that was reduced on the way.
    table : CountTable
        The potential.
    parts : tuple of Part
        The posterior as a mixture; shares of "all off" and "all on" are apart.
    log_all_off, log_all_on : float
        Log shares of the two; -inf where a part holds them.
    gathered : (size,) or None
        All log-odds in order, where they are so few that they were simply collected.
    log_mean : float
        Log E f, the log-odds' own norm left out, where the compiled engine solved from sums.
    """

    log_partition: float
    error_bound: float
    mapping: Mapping
    sums: Sums
    table: CountTable
    parts: tuple[Part, ...] = ()
    log_all_off: float = -math.inf
    log_all_on: float = -math.inf
    gathered: Float64 | None = None
    log_mean: float = math.nan

    @property
    def impossible(self) -> bool:
        return self.log_partition == -math.inf


_ENDS, _SERIES = 1, 2  # kinds of solutions that tell "all off" and "all on" apart
_LISTS = 5  # of every part: its series, and its waves where the variance is small


def unpacked(numbers: Float64, sums: Sums, table: CountTable) -> Solution:
    """The solution of the compiled engine, in the order of ``visit_solution`` in cpp/flat/packed.cpp."""
    kind, log_mean, log_norm, bound, all_off, all_on, _, _, _, count = numbers[:10].tolist()
    if kind == _SERIES and not count:
        bound = math.inf
    if log_mean == -math.inf:
        return Solution(-math.inf, bound, Mapping(numbers), sums, table, log_mean=log_mean)
    at, parts = 10, []
    for _ in range(int(count)):
        tilt, log_weight, *_, first, length = numbers[at : at + 10].tolist()
        parts.append(Part(tilt, log_weight - log_mean, int(first), int(first + length) - 1))
        at += 10
        for _ in range(_LISTS):
            at += 1 + int(numbers[at])
    apart = kind in (_ENDS, _SERIES)
    off, on = (all_off - log_mean, all_on - log_mean) if apart else (-math.inf, -math.inf)
    return Solution(log_norm, bound, Mapping(numbers), sums, table, tuple(parts), off, on, None, log_mean)
