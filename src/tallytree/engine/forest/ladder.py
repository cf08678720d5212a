"""Forests with counts: the quickest pass that can be certified.

Rungs: FFT with a tilt that puts the mean of every top-level count where its posterior lies; direct sums of positive
terms, relatively accurate until they underflow, with such a tilt and without; logarithms, which always work. Which of
them come first depends on the length of the longest count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np

from ...arrays import Float64
from ..answer import Answer
from ..ladder import TOLERANCE, climb
from ..log_sums import log_sum
from ..problem import ForestProblem
from .arithmetic import ARITHMETICS, UNIT_ROUNDOFF, Direct, Fourier, LogSpace
from .certificate import rounding_error
from .noise import noisy_bound
from .passes import both_passes
from .plain import balanced, propagate
from .tilt import Tilter

SMALL = 256  # up to this size logarithms take no longer than a search for tilts
LONG = 2048  # up to this size direct sums take no longer than transforms, and a search for tilts as long as they do
_ROUNDS = 3
_LITTLE = 3.0  # times the rounding that every rung has: logarithms would gain no more, in quadratic time
_COUNT_ERROR = 1e-210  # of the probability of a count; above 1e-200 it is relatively accurate

Rung = Callable[[ForestProblem], Answer]


def infer(problem: ForestProblem) -> Answer:
    """Answers for a batch, each with the tilts that gave it."""
    if len(problem.offset) == 1:
        found = propagate(problem)
        if found is not None:
            return found
    plain, certain, search = _untilted(Direct), _untilted(LogSpace), _UnderTilts(problem)
    if problem.longest <= SMALL:
        return climb([plain, certain], problem)
    if problem.longest <= LONG:
        return climb([plain, search.directly, certain], problem)
    return _last_if_worth([search.by_fourier, search.directly], [plain, certain], problem)


def _last_if_worth(quick: list[Rung], last: list[Rung], problem: ForestProblem) -> Answer:
    """`climb`, without the last rungs where these could not certify much more.

    The rounding of sums over all variables is in the bound of every rung, and beyond a million of them most of it.
    """
    found = climb(quick, problem)
    with np.errstate(all="ignore"):  # messages of a failed pass may be any number
        everywhere = rounding_error(problem, found.log_mean, found.messages)
    failed = np.flatnonzero(~(found.bound <= np.fmax(TOLERANCE, _LITTLE * everywhere)))
    if not len(failed):
        return found
    return found.patched(climb(last, problem.take(failed)), failed)


def relative_counts(problem: ForestProblem, tilts: Float64) -> Float64:
    """Log-probabilities of the counts of all sets with relative accuracy, (B, T)."""

    def certain(part: ForestProblem) -> Answer:
        found = run(part, tilts[part.rows], Direct)
        # What may have vanished must not matter to the least probable counts that are promised.
        found.bound = np.where(found.vanished <= _COUNT_ERROR, found.bound, math.inf)
        return found

    return np.asarray(_last_if_worth([certain], [_untilted(LogSpace)], problem).log_beliefs)


def _untilted(kind: type[Direct]) -> Rung:
    return lambda problem: run(problem, np.zeros((len(problem), problem.program.set_node.size)), kind)


class _UnderTilts:
    """Rungs that share what is known about tilts, (B, n_sets) for the whole batch."""

    def __init__(self, problem: ForestProblem) -> None:
        self._tilter = Tilter(problem)

    @cached_property
    def _tilts(self) -> Float64:
        return self._tilter.first()

    def directly(self, problem: ForestProblem) -> Answer:
        return run(problem, self._tilts[problem.rows], Direct)

    def by_fourier(self, problem: ForestProblem) -> Answer:
        """FFT passes under better and better tilts, at most a few rounds."""
        found = run(problem, self._tilts[problem.rows], Fourier)
        for _ in range(_ROUNDS):
            failed = np.flatnonzero(~(found.bound <= TOLERANCE))
            if not len(failed):
                break
            better = self._tilter.again(found, self._tilts, failed)
            if np.array_equal(better, self._tilts[failed]):
                break
            again = run(problem.take(failed), better, Fourier)
            improved = again.bound < found.bound[failed]
            if not improved.any():
                break
            self._tilts[failed[improved]] = better[improved]
            found = found.patched(again.take(improved), failed[improved])
        return found


def run(problem: ForestProblem, tilts: Float64, kind: type[Direct]) -> Answer:
    """Both passes by one arithmetic under given tilts (B, n_sets)."""
    shifted, constant = tilted(problem, tilts)
    even, moved = (shifted, 0.0) if kind is LogSpace else balanced(shifted)
    found = both_passes(even, kind)
    bound = noisy_bound(even, found) if kind is Fourier else found.bound
    shift = _vertex_tilt(problem, tilts)[:, :, None] * problem.score + moved
    # Weights and tables were rounded where the tilt was added.
    reach = np.abs(tilts).max(axis=1, initial=0.0) * float(problem.score.max(axis=1).sum())
    return Answer(
        found.log_mean + constant,
        found.messages + shift,
        found.log_beliefs,
        bound + UNIT_ROUNDOFF * (reach + 2.0 * _rounded_at(even, tilts, found)),
        log_edges=found.log_edges,
        vanished=found.vanished,
        tilts=tilts,
        arithmetic=np.full(len(problem), ARITHMETICS.index(kind)),
    )


def _vertex_tilt(problem: ForestProblem, tilts: Float64) -> Float64:
    """The tilt of every vertex, (B, D): that of its top-level set."""
    out = np.zeros((len(tilts), problem.program.n_variables))
    inside = problem.top_set >= 0
    out[:, inside] = tilts[:, problem.top_set[inside]]
    return out


def tilted(problem: ForestProblem, tilts: Float64) -> tuple[ForestProblem, Float64]:
    """The same models with other rounding errors, and what was taken out of their log-weights, (B,).

    Weights get e^(s score) and tables e^(-s z) at the top-level sets. Tables are tilted around their highest place
    under the tilt, which becomes 0: a steep one is rounded at the size of what it says, not at that of its entries.
    """
    taken_out = np.zeros(len(tilts))
    if not tilts.any():
        return problem, taken_out
    leaf = problem.log_leaf + _vertex_tilt(problem, tilts)[:, :, None] * problem.score
    tables = problem.full_tables.copy()
    rows = np.arange(len(tilts))
    for s in np.flatnonzero(problem.program.set_top).tolist():
        cells = slice(problem.offset[s], problem.offset[s + 1])
        own, z, tilt = tables[:, cells], np.arange(problem.offset[s + 1] - problem.offset[s]), tilts[:, s]
        top = (own - tilt[:, None] * z).argmax(axis=1)
        height = np.where(own[rows, top] > -math.inf, own[rows, top], 0.0)
        tables[:, cells] = (own - height[:, None]) - tilt[:, None] * (z - top[:, None])
        taken_out += height - tilt * top
    return replace(problem, log_leaf=leaf, tables=tables), taken_out


def _rounded_at(problem: ForestProblem, tilts: Float64, found: Answer) -> Float64:
    """The size of the numbers at which tilted tables were rounded, where their entries can be heard, (B,).

    A count whose probability is e^-60 times that of the rarest state of any vertex is not heard in its log-odds.
    """
    size = np.zeros(len(tilts))
    if not tilts.any():
        return size
    with np.errstate(invalid="ignore", over="ignore"):  # messages of a failed pass may be any number
        belief = problem.log_leaf + found.messages
        log_prob = np.where(problem.log_leaf > -math.inf, belief - log_sum(belief, keepdims=True), 0.0)
    rarest = np.nan_to_num(log_prob, nan=-math.inf).min(axis=(1, 2), initial=0.0)
    for s in np.flatnonzero(problem.program.set_top & tilts.any(axis=0)).tolist():
        cells = slice(problem.offset[s], problem.offset[s + 1])
        own, heard = problem.tables[:, cells], found.log_beliefs[:, cells]
        z = np.arange(own.shape[1])
        moved = np.abs(tilts[:, s, None]) * np.abs(z - own.argmax(axis=1)[:, None])
        quiet = (heard - np.nan_to_num(heard, nan=-math.inf).max(axis=1, keepdims=True)) < rarest[
            :, None
        ] - 60.0
        entries = np.where(quiet | (own == -math.inf), 0.0, 2.0 * (np.abs(own) + moved))
        size += entries.max(axis=1, initial=0.0)
    return size
