"""Forests with counts: the quickest pass that can be certified.

Rungs: direct sums of positive terms, where counts are short; FFT under a tilt that puts the mean of every top-level
count where its posterior lies; sums of positive terms, tile by tile, of numbers with an exponent each, under the same
tilt: they are relatively accurate whatever the rare states, hubs, tables and weights; logarithms, in quadratic time,
where there is no compiled engine.

Passes over cluster programs: by the compiled engine, or in array code.

What the noise of transforms may do to any state of any vertex, however rare.

A transform's errors are alike at all counts, about `u log n` of the mass of its cluster. Given a rare state of a far
vertex the count may lie where that is more than all there is. How much of it there is, the forest alone tells. Let T be
the table of the counts under the tilt, V(s, c) the weight of a cluster in state s of its boundary with count c, and
R_a(s, d) that of the rest of the forest with vertex v in state a and count d. An error e(s, c) of the cluster changes
the weight of that state, ``Z_a = sum V(s, c) R_a(s, d) T(c + d)``, by

    sum e(s, c) R_a(s, d) T(c + d)  <=  sum_s |e(s)|_2 |R_a(s)|_1 |T|_2,

and ``|e(s)|_2 <= noise |V(s)|_1``. Without tables the sum over s of ``|V(s)|_1 |R_a(s)|_1`` is M_a, the weight of the
state in the forest alone: the change is at most ``noise |T|_2 M_a``, for any cluster that the vertex is not in. Those
that it is in enter by their adjoints, to which the same applies with the roles of cluster and rest exchanged. So the
relative error of a state is large only where counts make it far less probable than the tilted forest does.

This needs all counts of transformed clusters, those below their noise as well: cut off, they would be missing where
they are all that a rare state has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64
from ...memo import cached
from .. import native, thresholds
from ..answer import Answer, stacked
from ..arithmetic import (
    ARITHMETICS,
    LN2_HIGH,
    LN2_LOW,
    UNIT_ROUNDOFF,
    Direct,
    Fourier,
    LogSpace,
    Wide,
)  # fmt: skip
from ..ladder import TOLERANCE, announce, climb
from ..log_sums import anchor, log_sum
from ..problem import ForestProblem
from .certificate import rounding_error
from .parts import find_windows, largest_gap, mixed, state_weights, without_far_states
from .sum_product import both_passes, propagate, read, reparametrised
from .tilts import Tilter, tilted, vertex_tilt
from .values import ForestValues


def noisy_bound(problem: ForestProblem, found: Answer) -> Float64:
    """The bound on log-odds found by a pass with transforms, (B,), such that it holds for all states."""
    with np.errstate(all="ignore"):  # messages of a failed pass may be any number
        if problem.program.set_top.all():
            bound = found.bound + transform_error(problem, found)
        else:  # an error of Z may be one of the rarest state
            bound = found.bound + 2.0 * found.noise * np.exp(-_log_rarest(problem, found))
    return np.where(np.isnan(bound), math.inf, bound)


def transform_error(problem: ForestProblem, found: Answer) -> Float64:
    """What noise that is a share of any state of the free forest may do to the states that were found, (B,)."""
    alone = problem.without_counts()
    free = propagate(alone) or both_passes(alone, Direct)
    excess = state_weights(problem, free) - state_weights(problem, found)
    # A state that the forest alone excludes has no weight, and no error.
    largest = np.where(free.messages == -math.inf, -math.inf, excess).max(axis=(1, 2), initial=-math.inf)
    amplified = np.exp(np.minimum(largest + _log_norm(problem), 700.0))
    return np.asarray(2.0 * found.noise * amplified)


def _log_norm(problem: ForestProblem) -> Float64:
    """Logarithm of the largest Euclidean norm of a table, the others taken at their largest entry, (1 or B,)."""
    tops, widest = np.zeros(len(problem.tables)), np.zeros(len(problem.tables))
    for start, stop in zip(problem.offset[:-1].tolist(), problem.offset[1:].tolist()):
        own = problem.tables[:, start:stop]
        top = anchor(own)
        tops += top[:, 0]
        widest = np.maximum(widest, 0.5 * log_sum(2.0 * (own - top)))
    return np.asarray(tops + widest)


def _log_rarest(problem: ForestProblem, found: Answer) -> Float64:
    """The logarithm of the least probability of a possible state, (B,); of a failed pass it may be -inf."""
    with np.errstate(invalid="ignore", over="ignore"):
        belief = problem.log_leaf + found.messages
        log_prob = np.where(problem.log_leaf > -math.inf, belief - log_sum(belief, keepdims=True), 0.0)
    return np.asarray(np.nan_to_num(log_prob, nan=-math.inf).min(axis=(1, 2), initial=0.0))


SMALL = 256  # up to this size logarithms take no longer than a search for tilts
LONG = 2048  # up to this size direct sums take no longer than transforms, and a search for tilts as long as they do
LOGS = 5e-9  # seconds per pair of counts of a pass in logarithms, measured on paths of 10^4
ROWS = 2.5e-10  # the same with an exponent for every count, of those that can matter, on paths of 10^5
_FEW = 4.0  # counts at an end of a table: transforms take as long as a pass with an exponent for each
_APART = 9.0  # nats that a table may rise above what a tilt reaches: noise rises by as much
_ROUNDS = 3
_LITTLE = 3.0  # times the rounding that every rung has: the next one would gain no more, and takes longer
_COUNT_ERROR = 1e-210  # of the probability of a count; above 1e-200 it is relatively accurate

Rung = Callable[[ForestProblem], Answer]


def infer(problem: ForestProblem, known: Answer | None = None, start: Float64 | None = None) -> Answer:
    """Answers for a batch, each with the tilts that gave it.

    `known` is the answer for the same models with other constants: what certified it is tried first. Tables
    for which there are tilts to `start` with are not cut into windows.
    """
    if len(problem.offset) == 1:
        found = propagate(problem)
        if found is not None:
            return found
    known_by = None if known is None else ARITHMETICS[known.arithmetic.max(initial=0)]
    if known_by in (Wide, LogSpace):
        assert known is not None
        rungs = [lambda part: run(part, known.tilts[part.rows], known_by), infer]
        return climb(rungs, replace(problem, origin=np.arange(len(problem))))
    problem = replace(problem, origin=None)  # a batch of its own
    plain: Rung = lambda part: run(part, _no_tilts(part), Direct)  # noqa: E731
    if problem.longest <= SMALL:
        return climb([plain, _certain], problem)
    if (
        native.present()
        and pairs_of_possible_counts(problem) <= _FEW * problem.log_leaf.size * problem.n_states**2
    ):
        return _certain(problem)
    search = _UnderTilts(problem, start)
    if start is None and problem.longest > LONG and search.far_apart():
        return _last_if_worth(search.by_windows, [search.entrywise], problem)
    # With an exponent for every count tilts change nothing but the place where these are exact.
    last: list[Rung] = [search.entrywise] if native.present() else [search.entrywise, _certain]
    quick = plain if problem.longest <= LONG else search.by_fourier
    return _last_if_worth(quick, last, problem)


def _last_if_worth(quick: Rung, last: list[Rung], problem: ForestProblem) -> Answer:
    """`climb`, without the last rungs where these could not certify much more.

    The rounding of sums over all variables is in the bound of every rung, and beyond a million of them, or where
    log-odds are large, most of it.
    """
    found = quick(problem)
    failed = np.flatnonzero(~_is_enough(problem, found))
    if not len(failed):
        return found
    return found.patched(climb(last, problem.take(failed)), failed)


def _is_enough(problem: ForestProblem, found: Answer) -> NDArray[np.bool_]:
    """Whether another pass could not certify much more, (B,)."""
    with np.errstate(all="ignore"):  # messages of a failed pass may be any number
        everywhere = rounding_error(problem, found.log_mean, found.messages)
    return np.asarray(found.bound <= np.fmax(TOLERANCE, _LITTLE * everywhere))


def relative_counts(problem: ForestProblem, answer: Answer) -> Float64:
    """Log-probabilities of the counts of all sets with relative accuracy, (B, T), where `answer` has no better ones."""

    def certain(kind: type[Direct], part: ForestProblem) -> Answer:
        found = run(part, answer.tilts[part.rows], kind)
        # What may have vanished must not matter to the least probable counts that are promised.
        found.bound = np.where(found.vanished <= _COUNT_ERROR, found.bound, math.inf)
        return found

    entrywise = np.isin(answer.arithmetic, [ARITHMETICS.index(kind) for kind in (Wide, LogSpace)])
    if (entrywise & (answer.vanished == 0.0)).all():
        return np.asarray(answer.log_beliefs)
    rungs: list[Rung] = [partial(certain, kind) for kind in (Direct, _entrywise())]
    own = replace(problem, origin=None)  # `answer` has as many rows as there are models
    return np.asarray(climb(rungs, own).log_beliefs)


def _entrywise() -> type[Direct]:
    """The arithmetic that no range is too much for."""
    return Wide if native.present() else LogSpace


def _certain(problem: ForestProblem, tilts: Float64 | None = None) -> Answer:
    """By the arithmetic that no range is too much for; announced where it takes long."""
    compiled = native.present()
    pairs = pairs_of_possible_counts(problem) if compiled else pairs_of_counts(problem)
    announce(pairs, ROWS if compiled else LOGS, "Inference with edges")
    tilts = _no_tilts(problem) if tilts is None else tilts
    return run(problem, tilts, _entrywise())


def _no_tilts(problem: ForestProblem) -> Float64:
    return np.zeros((len(problem), problem.program.set_node.size))


def pairs_of_counts(problem: ForestProblem) -> float:
    """About how many pairs of counts a pass in quadratic time adds up."""
    return float(problem.longest**2 * len(problem) * problem.n_states**3)


def pairs_of_possible_counts(problem: ForestProblem) -> float:
    """About how many pairs of counts a pass adds up that leaves out what cannot matter.

    Of k of n variables, or of all but k, at most k counts are met at once; of laws of n variables most often some
    square roots of n are within a hundred powers of two of the likeliest.
    """
    most = 0.0
    for start, stop in zip(problem.offset[:-1].tolist(), problem.offset[1:].tolist()):
        possible = np.flatnonzero((problem.tables[:, start:stop] > -math.inf).any(axis=0))
        if len(possible):
            n = stop - start
            most = max(most, n * min(1.0 + min(possible[-1], n - 1 - possible[0]), 20.0 * math.sqrt(n)))
    return most * len(problem) * problem.n_states**3


class _UnderTilts:
    """Rungs that share what is known about tilts, (B, n_sets) for the whole batch."""

    def __init__(self, problem: ForestProblem, start: Float64 | None = None) -> None:
        self._tilter, self._start = Tilter(problem), start

    @cached
    def _tilts(self) -> Float64:
        return self._tilter.first() if self._start is None else self._start

    def entrywise(self, problem: ForestProblem) -> Answer:
        return _certain(problem, self._tilts[problem.rows])

    def far_apart(self) -> bool:
        """Whether the table of every model is under its tilt largest where the tilted forest cannot come."""
        problem = self._tilter.problem
        if not native.present() or len(problem.offset) != 2:
            return False
        z = np.arange(problem.tables.shape[1])
        mean, variance = self._tilter.moments_at(self._tilts)
        own = problem.tables - self._tilts * z
        near = np.where(np.abs(z - mean) <= 8.0 * np.sqrt(variance) + 8.0, own, -math.inf)
        with np.errstate(invalid="ignore"):
            return bool((own.max(axis=1) - near.max(axis=1) > _APART).all())

    def by_windows(self, problem: ForestProblem) -> Answer:
        """The mixture over windows of a table that one tilt does not serve."""
        found = []
        for b in range(len(problem)):
            one = problem.take(np.array([b]))
            windows = find_windows(Tilter(one), self._tilts[one.rows])
            if windows is None:
                found.append(self.entrywise(one))
                continue
            parts = one.take(np.zeros(len(windows.tables), int))
            parts = replace(parts, tables=np.stack(windows.tables), origin=None)
            answer = mixed(one, infer(parts, start=np.concatenate(windows.tilts)))
            answer.bound = answer.bound + 2.0 * windows.share_outside(answer)
            found.append(answer)
        return stacked(found)

    def by_fourier(self, problem: ForestProblem) -> Answer:
        """FFT passes under better and better tilts, at most a few rounds."""
        found = run(problem, self._tilts[problem.rows], Fourier)
        for _ in range(_ROUNDS):
            failed = np.flatnonzero(~_is_enough(problem, found))
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
    number = np.full(len(problem), ARITHMETICS.index(kind))
    if kind is Wide and native.present():
        with np.errstate(all="ignore"):
            log_z, *others, power = native.row_pass(problem, tilts)
            log_z = power * LN2_HIGH + (power * LN2_LOW + log_z)
            found = read(problem, (log_z, *others, np.zeros(len(problem))), kind)
        return replace(found, tilts=tilts, arithmetic=number)
    full, constant = tilted(problem, tilts)
    shifted = full
    dropped: Float64 | float = 0.0
    if kind is Fourier and problem.program.set_top.all():
        shifted, dropped = without_far_states(full)
    even, moved = (shifted, 0.0) if kind.keep == 0.0 else reparametrised(shifted)
    found = both_passes(even, kind)
    found.noise = found.noise + dropped
    bound = noisy_bound(even, found) if kind is Fourier else found.bound
    shift = vertex_tilt(problem, tilts)[:, :, None] * problem.score + moved
    # Weights and tables were rounded where the tilt was added; vertices of one state move nothing but Z.
    undecided = (shifted.log_leaf > -math.inf).sum(axis=2) > 1
    reach = np.abs(tilts).max(axis=1, initial=0.0) * (1.0 + undecided @ problem.score.max(axis=1))
    if shifted is not full:  # far log-odds have the rounding of their own size
        reach = reach + 8.0 * (largest_gap(full) + np.abs(tilts).max(axis=1, initial=0.0))
    return Answer(
        found.log_mean + constant,
        found.messages + shift,
        found.log_beliefs,
        bound + UNIT_ROUNDOFF * (reach + 2.0 * _rounded_at(even, tilts, found)),
        log_edges=found.log_edges,
        vanished=found.vanished,
        tilts=tilts,
        arithmetic=number,
    )


def exact_log_norm(problem: ForestProblem, tilts: Float64, constants: Float64) -> Float64:
    """Log Z and the `constants` (B, m) that belong to it, (B,), from exponents that cancel exactly; NaN if unknown."""
    wide = Wide()
    with np.errstate(all="ignore"):
        if native.present():
            log_rest, *_, error, _, power = native.row_pass(problem, tilts)
            parts = np.concatenate([wide.enter(constants), 1.0 + 1j * power[:, None]], axis=1)
            return np.where(error < thresholds.LOG_NORM, wide.log_product(parts) + log_rest, math.nan)
        if problem.longest**2 * len(problem) > thresholds.LARGEST_WALK:
            return np.full(len(problem), math.nan)
        values = ForestValues(problem, wide)
        values.upward()
        return values.log_z(constants)


def _rounded_at(problem: ForestProblem, tilts: Float64, found: Answer) -> Float64:
    """The size of the numbers at which tilted tables were rounded, where their entries can be heard, (B,).

    A count whose probability is e^-60 times that of the rarest state of any vertex is not heard in its log-odds.
    """
    size = np.zeros(len(tilts))
    if not tilts.any():
        return size
    rarest = _log_rarest(problem, found)
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
