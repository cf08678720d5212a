"""Solve: a conversation that asks for sums over all variables until its certificate holds, and what it ends with.

The compiled solver is given all sums that are known and answers with a solution, or with the requests that it misses;
it repeats its O(window) steps when these arrive. Potentials near the prior need one reduction of the variables, others
two: the histogram of the first one chooses the tilts of the second. Several modes are solved at the same time.

A potential is asked for single counts, windows, and its largest value under a slope. A solution turns a chunk of
log-odds into posterior log-odds or marginals, each variable by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ....arrays import Float64
from ....errors import PrecisionError
from ....structure.nested.count_tree import CountTree
from ... import native
from ...answer import posterior
from ...ladder import TOLERANCE
from ...problem import Mixture, Problem
from ..solver import CountSolver
from .sums import ENOUGH, OVERVIEW, VALUES, Request, Sums, merge, reduce

FEW = 4096  # so few variables are collected and solved at once: every rung of the ladder serves them
COLLECTABLE = 1 << 20  # up to here they are collected where no series is certified

Found = TypeVar("Found")


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


def map_logits(logits: NDArray[Any], mapping: Mapping, what: What = "posterior_logits") -> NDArray[Any]:
    """Posterior log-odds, or marginals, of one chunk (m,) as it was reduced, in its own precision.

    Infinite log-odds keep their values. Cost: about 2 ns per variable.
    """
    chunk = np.ascontiguousarray(logits)
    result = np.empty_like(chunk)
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


# -- the conversation ----------------------------------------------------------------------------------------------

Conversation = Generator[tuple[Request, ...], Sums, Solution]


def solve(table: CountTable, mixture: Mixture | None = None, *, few: int = FEW) -> Conversation:
    """Ask for sums over all variables, and return the solution.

    Yields requests; the sums over all variables that serve them have to be sent. To be driven by
    :func:`solve_chunks` or by anything that can reduce.

    Parameters
    ----------
    table : CountTable
        The potential on the count of all variables.
    mixture : (coefficients, rates), optional
        The potential as a short sum of powers, where it is one.
    few : int
        Models with at most so many variables are collected.

    Raises
    ------
    PrecisionError
        If no rung certifies the answer and the variables are too many to be collected.

    Notes
    -----
    Cost: O(window) per round, none of it on variables. One or two rounds are usual.
    """
    everything = Request(VALUES, ())
    if table.n <= few or not native.present():
        if not native.present() and table.n > COLLECTABLE:
            raise PrecisionError(
                f"{table.n} variables in chunks need the compiled engine; the array engine collects at most "
                f"{COLLECTABLE}. Install the package with its C++ engine."
            )
        return _collected((yield (everything,)), everything, table)
    first = [Request("deviations", (0.0, _first_sums(table.n))), Request("histogram", (-OVERVIEW, OVERVIEW))]
    if mixture is not None and native.has_closed_form(*mixture):
        first.append(Request("powers", tuple(float(r) for r in mixture[1])))
    sums = yield tuple(first)
    n, seen = sums.n, Shifted(table, sums.forced, sums.excluded)
    if n == 0:
        return _nothing_free(sums, table)
    if mixture is not None and native.has_closed_form(*mixture):
        coefficients = mixture[0] * mixture[1] ** float(sums.forced)
        found, sums = yield from _ask(
            lambda known: native.flat_solve_power_sums(n, known, coefficients, mixture[1]), sums
        )
        closed = unpacked(found, sums, table)
        if closed.error_bound <= TOLERANCE:
            return closed
    found, sums = yield from _ask(lambda known: native.flat_solve_sums(n, known, seen), sums)
    solution = unpacked(found, sums, table)
    if solution.error_bound <= TOLERANCE:
        return solution
    if table.n <= COLLECTABLE:
        return _collected((yield (everything,)), everything, table)
    raise PrecisionError(
        f"no series certifies nine digits for these {table.n} variables (the best error bound is "
        f"{solution.error_bound:.1e}), and they are too many for the methods that would. Their log-odds, or the values "
        "of the potential, are spread too far; a coarser potential or fewer variables can be solved."
    )


def solve_chunks(
    chunks: Sequence[Any] | Callable[[tuple[Request, ...]], Sums],
    conversation: Generator[tuple[Request, ...], Sums, Found],
) -> Found:
    """Drive a conversation to its end: `chunks` are arrays, or a function that reduces all variables."""
    answer = chunks if callable(chunks) else lambda asked: merge(reduce(chunk, asked) for chunk in chunks)
    try:
        asked = next(conversation)
        while True:
            asked = conversation.send(answer(asked))
    except StopIteration as end:
        found: Found = end.value
        return found


def _first_sums(n: int) -> float:
    """Deviation sums that serve most models at once: fewer frequencies matter in large ones, and these cost more."""
    return 12.0 if n >= 1 << 15 else ENOUGH


def _ask(
    attempt: Callable[[Any], tuple[list[Any], Float64 | None]], sums: Sums
) -> Generator[tuple[Request, ...], Sums, tuple[Float64, Sums]]:
    """Repeat an attempt until it misses nothing."""
    while True:
        missing, found = attempt(list(sums.parts.items()))
        if found is not None:
            return found, sums
        sums = sums.joined((yield tuple(Request(kind, tuple(numbers)) for kind, numbers in missing)))


def _nothing_free(sums: Sums, table: CountTable) -> Solution:
    """No variable is undecided."""
    return Solution(table.at(sums.forced), 0.0, Mapping(), sums, table)


def _collected(sums: Sums, everything: Request, table: CountTable) -> Solution:
    """So few variables that all of them are at hand: the ladder of models in memory."""
    logits = sums.parts[everything].listed
    if sums.n == 0:
        return _nothing_free(sums, table)
    if len(logits) == 1:
        return _single(sums, logits, table)
    solver = CountSolver(collected_problem(logits, table))
    log_z, bound = float(solver.log_norm()[0]), float(solver.sums.bound[0])
    finite = np.isfinite(logits)
    distinct, place = np.unique(logits[finite], return_index=True)
    messages = np.zeros(len(distinct)) if log_z == -math.inf else solver.sums.messages[0][finite][place]
    listed = Mapping(logits=distinct, messages=messages)
    return Solution(log_z, bound, listed, sums, table, gathered=logits)


def _single(sums: Sums, logits: Float64, table: CountTable) -> Solution:
    """The table of a single variable is part of its log-odds."""
    off, on = table.at(0), table.at(1)
    message = np.array([on - off]) if max(off, on) > -math.inf else np.zeros(1)
    log_z = float(np.logaddexp(off, on + logits[0]))
    listed = Mapping(logits=logits, messages=message)
    return Solution(log_z, 0.0, listed, sums, table, gathered=logits)


def collected_problem(logits: Float64, table: CountTable) -> Problem:
    """Two or more variables at hand as a problem of the engine."""
    n = len(logits)
    return Problem(CountTree.flat(n), logits[None], np.array(table.window(0, n), np.float64)[None])
