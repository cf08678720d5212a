"""Solve: a conversation that asks for sums over all variables until its certificate holds.

The compiled solver is given all sums that are known and answers with a solution, or with the requests that it misses;
it repeats its O(window) steps when these arrive. Potentials near the prior need one reduction of the variables, others
two: the histogram of the first one chooses the tilts of the second. Several modes are solved at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import numpy as np

from ....arrays import Float64
from ....errors import PrecisionError
from ....structure.nested.count_tree import CountTree
from ... import native
from ...ladder import TOLERANCE
from ...problem import Mixture, Problem
from ..solver import CountSolver
from .solution import CountTable, Mapping, Shifted, Solution, unpacked
from .sums import ENOUGH, OVERVIEW, VALUES, Request, Sums, merge, reduce

FEW = 4096  # so few variables are collected and solved at once: every rung of the ladder serves them
COLLECTABLE = 1 << 20  # up to here they are collected where no series is certified

Found = TypeVar("Found")
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
