"""Forests with counts: the quickest pass that can be certified.

Rungs: FFT with a tilt that puts the mean of every top-level count where its posterior lies; direct sums of positive
terms, relatively accurate until they underflow; logarithms, which always work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64, Ints
from ..ladder import TOLERANCE
from .arithmetic import UNIT_ROUNDOFF, Direct, Fourier, LogSpace, MaxPlus
from .passes import both_passes
from .plain import balanced
from .problem import ForestAnswer, ForestProblem
from .sum_product import ForestPass
from .tilt import Tilter
from .walk import Walk

_SMALL = 256  # counts up to this size are convolved directly
_ROUNDS = 3
_LEVERAGE = 0.5  # standard deviations of a count that one vertex may move it by
_COUNT_ERROR = 1e-210  # of the probability of a count; above 1e-200 it is relatively accurate
_CELLS = 1 << 24  # cells of states kept at a time by the sampler


def infer(problem: ForestProblem) -> tuple[ForestAnswer, list[str], Float64]:
    """Answers for a batch, with the rung and the tilts (B, n_sets) that gave them."""
    batch = len(problem.log_leaf)
    tilts = np.zeros((batch, problem.program.set_node.size))
    rungs = ["direct"] * batch
    if int(np.diff(problem.offset).max(initial=0)) <= _SMALL:
        found = _run(problem, tilts, Direct)
    else:
        tilter = Tilter(problem)
        tilts = tilter.first()
        found = _cautious(problem, tilter, tilts, _run(problem, tilts, Fourier), np.arange(batch))
        rungs = ["fft"] * batch
        for _ in range(_ROUNDS):
            failed = _failed(found)
            if not len(failed):
                break
            better = tilter.again(found, tilts, failed)
            again = _run(take(problem, failed), better, Fourier)
            again = _cautious(take(problem, failed), tilter, better, again, failed)
            improved = again.bound < found.bound[failed]
            tilts[failed[improved]] = better[improved]
            found = _patched(found, take_answer(again, improved), failed[improved])
            if not improved.any():
                break
        found, failed = _climb(problem, found, tilts, Direct)
        for b in failed.tolist():
            rungs[b] = "direct"
        tilts[_failed(found)] = 0.0  # a tilt may be at fault
        found, _ = _climb(problem, found, tilts, Direct)
    found, failed = _climb(problem, found, tilts, LogSpace)
    for b in failed.tolist():
        rungs[b] = "log"
    return found, rungs, tilts


def take(problem: ForestProblem, rows: Ints) -> ForestProblem:
    """Some models of a batch."""
    pick: Callable[[Float64], Float64] = lambda x: x if len(x) == 1 else x[rows]  # noqa: E731
    return replace(
        problem, log_leaf=problem.log_leaf[rows], log_edge=pick(problem.log_edge), tables=pick(problem.tables)
    )


def take_answer(answer: ForestAnswer, rows: NDArray[np.generic]) -> ForestAnswer:
    return ForestAnswer(*(getattr(answer, column.name)[rows] for column in fields(answer)))


def _failed(found: ForestAnswer) -> Ints:
    return np.flatnonzero(~(found.bound <= TOLERANCE))


def _cautious(
    problem: ForestProblem, tilter: Tilter, tilts: Float64, found: ForestAnswer, rows: Ints
) -> ForestAnswer:
    """The certificate of an FFT where a vertex may move the counts.

    It weighs errors against the mass of each cluster's states. Given an improbable state of a far vertex that moves the
    count by much, other errors matter: they are bounded only by the error of Z over the probability of that state.
    """
    calm = np.zeros(len(rows), bool)
    good = np.flatnonzero(found.bound <= TOLERANCE)
    if not len(good):
        return found
    if problem.program.set_top.all():
        calm[good] = tilter.leverage(rows[good], tilts[good]) <= _LEVERAGE
    belief = problem.log_leaf + found.messages
    with np.errstate(invalid="ignore"):
        log_prob = belief - log_sum(belief)[..., None]
    floor = np.where(problem.log_leaf > -math.inf, log_prob, 0.0).min(axis=(1, 2), initial=0.0)
    rarest = np.exp(np.minimum(-np.nan_to_num(floor, nan=-math.inf), 700.0))
    return replace(found, bound=np.where(calm, found.bound, found.bound * rarest))


def _climb(
    problem: ForestProblem, found: ForestAnswer, tilts: Float64, kind: type[Direct]
) -> tuple[ForestAnswer, Ints]:
    failed = _failed(found)
    if not len(failed):
        return found, failed
    if kind is LogSpace:
        tilts = np.zeros_like(tilts)
    again = _run(take(problem, failed), tilts[failed], kind)
    return _patched(found, again, failed), failed


def _run(problem: ForestProblem, tilts: Float64, kind: type[Direct]) -> ForestAnswer:
    even, moved = balanced(tilted(problem, tilts)) if kind is not LogSpace else (tilted(problem, tilts), 0.0)
    found = both_passes(even, kind)
    shift = _vertex_tilt(problem, tilts)[:, :, None] * problem.score + moved
    # Weights and tables were rounded where the tilt was added.
    reach = np.abs(tilts).max(axis=1, initial=0.0) * float(problem.score.max(axis=1).sum())
    return replace(found, messages=found.messages + shift, bound=found.bound + UNIT_ROUNDOFF * reach)


def _vertex_tilt(problem: ForestProblem, tilts: Float64) -> Float64:
    """The tilt of every vertex, (B, D): that of its top-level set."""
    out = np.zeros((len(tilts), problem.program.n_variables))
    inside = problem.top_set >= 0
    out[:, inside] = tilts[:, problem.top_set[inside]]
    return out


def tilted(problem: ForestProblem, tilts: Float64) -> ForestProblem:
    """The same models with other rounding errors: weights e^(s score), tables e^(-s z) at the top-level sets."""
    if not tilts.any():
        return problem
    leaf = problem.log_leaf + _vertex_tilt(problem, tilts)[:, :, None] * problem.score
    tables = np.broadcast_to(problem.tables, (len(tilts), problem.tables.shape[1])).copy()
    for s in np.flatnonzero(problem.program.set_top).tolist():
        cells = slice(problem.offset[s], problem.offset[s + 1])
        z = np.arange(problem.offset[s + 1] - problem.offset[s])
        tables[:, cells] -= tilts[:, s : s + 1] * z
    return replace(problem, log_leaf=leaf, tables=tables)


def _patched(first: ForestAnswer, second: ForestAnswer, rows: Ints) -> ForestAnswer:
    columns = []
    for column in fields(first):
        values = getattr(first, column.name).copy()
        values[rows] = getattr(second, column.name)
        columns.append(values)
    return ForestAnswer(*columns)


def relative_counts(problem: ForestProblem, tilts: Float64) -> Float64:
    """Log-probabilities of the counts of all sets with relative accuracy, (B, T)."""
    found = _run(problem, tilts, Direct)
    # What may have vanished must not matter to the least probable counts that are promised.
    unsafe = np.where(found.vanished <= _COUNT_ERROR, found.bound, math.inf)
    found, _ = _climb(problem, replace(found, bound=unsafe), tilts, LogSpace)
    return found.log_counts


def draw(
    problem: ForestProblem, rungs: list[str], tilts: Float64, size: int, rng: np.random.Generator
) -> Ints:
    """Exact joint samples, (size, B, D)."""
    out = np.zeros((size, len(problem.log_leaf), problem.program.n_variables), np.int64)
    small = int(np.diff(problem.offset).max(initial=0)) <= 16 * _SMALL
    for rung in ("fft", "direct", "log"):
        rows = np.array([b for b, r in enumerate(rungs) if r == rung], np.int64)
        if not len(rows):
            continue
        kind = {"fft": Direct if small else Fourier, "direct": Direct, "log": LogSpace}[rung]
        with np.errstate(all="ignore"):
            part = take(problem, rows)
            passes = ForestPass(part if rung == "log" else balanced(tilted(part, tilts[rows]))[0], kind())
            passes.upward()
            room = max(1, _CELLS // max(1, len(rows) * problem.program.n_nodes))
            for i in range(0, size, room):
                count = min(room, size - i)
                out[i : i + count, rows] = Walk(passes, count, rng).run()
    return out


def best(problem: ForestProblem) -> tuple[Ints, Float64]:
    """A best configuration of every model (B, D), and its log-weight (B,)."""
    if len(problem.log_leaf) == 0:  # a batch of no models
        return np.zeros(problem.log_leaf.shape[:2], np.int64), np.zeros(0)
    with np.errstate(all="ignore"):
        passes = ForestPass(problem, MaxPlus())
        log_weight = passes.upward()
        return Walk(passes, 1, None).run()[0], log_weight


def max_answer(problem: ForestProblem) -> ForestAnswer:
    """Max-marginals in the place of marginals."""
    with np.errstate(all="ignore"):
        passes = ForestPass(problem, MaxPlus())
        passes.upward()
        return passes.downward()


def log_sum(values: Float64, axis: int = -1) -> Float64:
    top = values.max(axis=axis, keepdims=True)
    anchor = np.where(top == -math.inf, 0.0, top)
    with np.errstate(divide="ignore"):
        return np.asarray(np.squeeze(anchor, axis) + np.log(np.exp(values - anchor).sum(axis=axis)))
