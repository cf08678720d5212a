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

Tilts for forests: where the posterior mean of every top-level count lies.

Multiplying the weight of every state by e^(s score) and the table by e^(-s z) changes nothing but rounding. The
convolutions are accurate around the mean of the count under the forest alone, so s is chosen to put that mean at the
posterior mean. Means under the forest alone come from ordinary belief propagation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax

from ...arrays import Float64, Ints
from ...memo import cached
from .. import native, thresholds
from ..answer import Answer
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
from ..tilt import tilt_towards
from .certificate import certificate, rounding_error, table_tops
from .sum_product import ForestPass, bare_marginals, propagate, reparametrised
from .values import ForestValues


def both_passes(problem: ForestProblem, kind: type[Direct]) -> Answer:
    """Upwards and downwards, by the compiled engine where it has this arithmetic."""
    with np.errstate(all="ignore"):
        if kind.keep > 0.0 and native.present():
            edge_top, tops = anchor(problem.log_edge, (2, 3)), table_tops(problem)
            return _read(
                problem, native.cluster_pass(problem, edge_top, tops, kind.keep, kind is Fourier), kind
            )
        passes = ForestPass(problem, kind())
        passes.upward()
        return passes.downward()


def _read(problem: ForestProblem, found: Any, kind: type[Direct]) -> Answer:
    """What the compiled engine found, with its certificate."""
    log_z, messages, log_edges, log_counts, error, vanished, noise = found
    log_z = np.where(np.isnan(log_z), -math.inf, log_z)
    bound = certificate(problem, kind.keep, log_z, messages, error, vanished)
    noise = noise if problem.program.set_top.all() else error
    return Answer(log_z, messages, log_counts, bound, log_edges=log_edges, vanished=vanished, noise=noise)


def noisy_bound(problem: ForestProblem, found: Answer) -> Float64:
    """The bound on log-odds found by a pass with transforms, (B,), such that it holds for all states."""
    with np.errstate(all="ignore"):  # messages of a failed pass may be any number
        if problem.program.set_top.all():
            bound = found.bound + _transform_error(problem, found)
        else:  # an error of Z may be one of the rarest state
            bound = found.bound + 2.0 * found.noise * np.exp(-_log_rarest(problem, found))
    return np.where(np.isnan(bound), math.inf, bound)


def _transform_error(problem: ForestProblem, found: Answer) -> Float64:
    alone = problem.without_counts()
    free = propagate(alone) or both_passes(alone, Direct)
    excess = _state_weights(problem, free) - _state_weights(problem, found)
    # A state that the forest alone excludes has no weight, and no error.
    largest = np.where(free.messages == -math.inf, -math.inf, excess).max(axis=(1, 2), initial=-math.inf)
    amplified = np.exp(np.minimum(largest + _log_norm(problem), 700.0))
    return np.asarray(2.0 * found.noise * amplified)


def _state_weights(problem: ForestProblem, found: Answer) -> Float64:
    """Logarithms of the weight of all configurations with a vertex in a state but for its own weight, (B, D, K)."""
    own = log_sum(problem.log_leaf + found.messages, keepdims=True)
    return np.asarray(found.messages - own + found.log_mean[:, None, None])


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


_STEPS = 40


class Tilter:
    """Tilts (B, n_sets) for a batch of models; those of sets inside others are 0."""

    def __init__(self, problem: ForestProblem) -> None:
        self.problem, self.top = problem, problem.program.set_top
        self.size = np.diff(problem.offset) - 1

    def _moments(self, rows: Ints, tilts: Float64) -> tuple[Float64, Float64]:
        """Mean and a variance of the count of every set (row, set) under the tilted forest; 0 inside others."""
        weight, score = self._marginals(rows, tilts), self.problem.score
        weight = np.where(np.isfinite(weight), weight, 0.0)  # a tilt may be poor, the certificate tells
        mean = (weight * score).sum(2)
        variance = (weight * score**2).sum(2) - mean**2
        held = self.problem.top_set >= 0

        def sums(values: Float64) -> Float64:
            place = self.problem.top_set[held]
            return np.reshape(
                [np.bincount(place, row, len(self.top)) for row in values[:, held]], tilts.shape
            )

        return sums(mean), np.maximum(sums(variance), 1e-12)

    def _marginals(self, rows: Ints, tilts: Float64) -> Float64:
        """Marginals (row, D, K) of the forest alone under tilts (row, set)."""
        problem = self.problem
        log_edge = problem.log_edge if len(problem.log_edge) == 1 else problem.log_edge[rows]
        leaf = problem.log_leaf[rows] + _vertex_tilt(problem, tilts)[:, :, None] * problem.score
        quick = bare_marginals(problem.structure.rooting, leaf, log_edge)
        if quick is not None:
            return quick
        with np.errstate(all="ignore"):
            found = both_passes(replace(problem.without_counts(), log_leaf=leaf, log_edge=log_edge), Direct)
            return np.asarray(softmax(leaf + found.messages, axis=2))

    def first(self) -> Float64:
        """Tilts from the tables and a Gaussian law of the counts."""
        batch = len(self.problem)
        return self._search(np.arange(batch), None, np.zeros((batch, len(self.top))))

    def again(self, found: Answer, tilts: Float64, rows: Ints) -> Float64:
        """Tilts at the posterior means that an uncertain answer reports."""
        wanted = np.zeros((len(rows), len(self.top)))
        for s in np.flatnonzero(self.top).tolist():
            cells = found.log_beliefs[rows, self.problem.offset[s] : self.problem.offset[s + 1]]
            cells = np.where(np.isnan(cells), -np.inf, cells)
            with np.errstate(all="ignore"):  # an uncertain answer may be any number
                probs = np.exp(cells - cells.max(axis=1, keepdims=True))
                mean = (probs * np.arange(probs.shape[1])).sum(1) / probs.sum(1)
            wanted[:, s] = np.where(np.isfinite(mean), mean, 0.5 * self.size[s])
        return self._search(rows, wanted, tilts[rows])

    def _search(self, rows: Ints, wanted: Float64 | None, start: Float64) -> Float64:
        """Newton steps in s; without a wanted mean, towards that of table times a local Gaussian."""

        def target(tilts: Float64, mean: Float64, variance: Float64) -> Float64:
            aim = wanted if wanted is not None else self._aims(rows, tilts, mean, variance)
            return np.where(self.top, np.clip(aim, 0.02, self.size - 0.02), mean)

        moments = partial(self._moments, rows)
        return tilt_towards(moments, target, start, near=0.5, slack=0.5, steps=_STEPS, coupled=True)

    def _aims(self, rows: Ints, tilts: Float64, mean: Float64, variance: Float64) -> Float64:
        """Means, not modes, which noise has anywhere: a tilt that is not needed blows up the ends of long tables."""
        out = mean.copy()
        problem = self.problem
        for s in np.flatnonzero(self.top).tolist():
            table = problem.tables[:, problem.offset[s] : problem.offset[s + 1]]
            table = table if len(table) == 1 else table[rows]
            z = np.arange(table.shape[1])
            near = 0.5 * (z - mean[:, s : s + 1]) ** 2 / variance[:, s : s + 1]
            with np.errstate(invalid="ignore"):
                aim = softmax(table - tilts[:, s : s + 1] * z - near, axis=1) @ z
            out[:, s] = np.where(np.isnan(aim), out[:, s], aim)  # of a table that allows nothing
        return out


SMALL = 256  # up to this size logarithms take no longer than a search for tilts
LONG = 2048  # up to this size direct sums take no longer than transforms, and a search for tilts as long as they do
LOGS = 5e-9  # seconds per pair of counts of a pass in logarithms, measured on paths of 10^4
ROWS = 1e-9  # the same with an exponent for every count, of those that can matter
_ROUNDS = 3
_LITTLE = 3.0  # times the rounding that every rung has: the next one would gain no more, and takes longer
_COUNT_ERROR = 1e-210  # of the probability of a count; above 1e-200 it is relatively accurate

Rung = Callable[[ForestProblem], Answer]


def infer(problem: ForestProblem, known: Answer | None = None) -> Answer:
    """Answers for a batch, each with the tilts that gave it.

    `known` is the answer for the same models with other constants: what certified it is tried first.
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
    search = _UnderTilts(problem)
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
    with np.errstate(all="ignore"):  # messages of a failed pass may be any number
        everywhere = rounding_error(problem, found.log_mean, found.messages)
    failed = np.flatnonzero(~(found.bound <= np.fmax(TOLERANCE, _LITTLE * everywhere)))
    if not len(failed):
        return found
    return found.patched(climb(last, problem.take(failed)), failed)


def relative_counts(problem: ForestProblem, answer: Answer) -> Float64:
    """Log-probabilities of the counts of all sets with relative accuracy, (B, T), where `answer` has no better ones."""

    def certain(kind: type[Direct], part: ForestProblem) -> Answer:
        found = run(part, answer.tilts[part.rows], kind)
        # What may have vanished must not matter to the least probable counts that are promised.
        found.bound = np.where(found.vanished <= _COUNT_ERROR, found.bound, math.inf)
        return found

    if np.isin(answer.arithmetic, [ARITHMETICS.index(kind) for kind in (Wide, LogSpace)]).all():
        return np.asarray(answer.log_beliefs)
    rungs: list[Rung] = [partial(certain, kind) for kind in (Direct, _entrywise())]
    return np.asarray(climb(rungs, problem).log_beliefs)


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

    def __init__(self, problem: ForestProblem) -> None:
        self._tilter = Tilter(problem)

    @cached
    def _tilts(self) -> Float64:
        return self._tilter.first()

    def entrywise(self, problem: ForestProblem) -> Answer:
        return _certain(problem, self._tilts[problem.rows])

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
    number = np.full(len(problem), ARITHMETICS.index(kind))
    if kind is Wide and native.present():
        with np.errstate(all="ignore"):
            log_z, *others, power = native.row_pass(problem, tilts)
            log_z = power * LN2_HIGH + (power * LN2_LOW + log_z)
            found = _read(problem, (log_z, *others, np.zeros(len(problem))), kind)
        return replace(found, tilts=tilts, arithmetic=number)
    shifted, constant = tilted(problem, tilts)
    even, moved = (shifted, 0.0) if kind.keep == 0.0 else reparametrised(shifted)
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
