"""Configurations of problems with edges, whatever the number of states: samples and best ones."""

from __future__ import annotations

import numpy as np

from ...arrays import Float64, Ints
from .. import native
from ..answer import Answer
from . import bounded
from .arithmetic import ARITHMETICS, Direct, Fourier, LogSpace, MaxPlus
from .ladder import SMALL, tilted
from .maxima import below_top
from .plain import balanced
from .problem import ForestProblem
from .sum_product import ForestPass
from .walk import Walk

_CELLS = 1 << 24  # cells of states kept at a time


def draw(problem: ForestProblem, answer: Answer, size: int, rng: np.random.Generator) -> Ints:
    """Exact joint samples, (size, B, D), from passes like those that gave the answer."""
    out = np.zeros((size, len(problem), problem.program.n_variables), np.int64)
    for number, certified in enumerate(ARITHMETICS):
        rows = np.flatnonzero(answer.arithmetic == number)
        if not len(rows):
            continue
        kind = Direct if certified is Fourier and problem.longest <= 16 * SMALL else certified
        with np.errstate(all="ignore"):
            part = problem.take(rows)
            if kind is not LogSpace:
                part = balanced(tilted(part, answer.tilts[rows])[0])[0]
            passes = ForestPass(part, kind())
            passes.upward()
            room = max(1, _CELLS // max(1, len(rows) * problem.program.n_nodes))
            for i in range(0, size, room):
                count = min(room, size - i)
                out[i : i + count, rows] = Walk(passes, count, rng).run()
    return out


def best(problem: ForestProblem) -> tuple[Ints, Float64]:
    """A best configuration of every model (B, D), and its log-weight (B,)."""
    with np.errstate(all="ignore"):
        if native.present():
            return bounded.best(problem)
        passes = ForestPass(problem, MaxPlus())
        log_weight = passes.upward()
        return Walk(passes, 1, None).run()[0], log_weight


def max_beliefs(problem: ForestProblem) -> Float64:
    """Best log-weight with every vertex in every state, (B, D, K)."""
    with np.errstate(all="ignore"):
        if native.present():
            return bounded.max_beliefs(problem)
        found = _maxima(problem)
        return np.asarray(below_top(problem.log_leaf + found.messages) + found.log_mean[:, None, None])


def max_counts(problem: ForestProblem) -> Float64:
    """Best log-weight for every count of every set, (B, T)."""
    with np.errstate(all="ignore"):
        if native.present():
            return bounded.max_counts(problem)
        found = _maxima(problem)
        sets = zip(problem.offset[:-1], problem.offset[1:])
        parts = [below_top(found.log_beliefs[:, a:b]) + found.log_mean[:, None] for a, b in sets]
        return np.concatenate(parts, axis=1)


def _maxima(problem: ForestProblem) -> Answer:
    """Max-marginals in the place of marginals."""
    passes = ForestPass(problem, MaxPlus())
    passes.upward()
    return passes.downward()
