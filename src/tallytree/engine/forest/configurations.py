"""Configurations of problems with edges, whatever the number of states: samples and best ones."""

from __future__ import annotations

import numpy as np

from ...arrays import Float64, Ints
from ..answer import Answer
from .arithmetic import ARITHMETICS, Direct, Fourier, LogSpace, MaxPlus
from .ladder import SMALL, tilted
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
                part = balanced(tilted(part, answer.tilts[rows]))[0]
            passes = ForestPass(part, kind())
            passes.upward()
            room = max(1, _CELLS // max(1, len(rows) * problem.program.n_nodes))
            for i in range(0, size, room):
                count = min(room, size - i)
                out[i : i + count, rows] = Walk(passes, count, rng).run()
    return out


def best(problem: ForestProblem) -> tuple[Ints, Float64]:
    """A best configuration of every model (B, D), and its log-weight (B,)."""
    if len(problem) == 0:  # a batch of no models
        return np.zeros(problem.log_leaf.shape[:2], np.int64), np.zeros(0)
    with np.errstate(all="ignore"):
        passes = ForestPass(problem, MaxPlus())
        log_weight = passes.upward()
        return Walk(passes, 1, None).run()[0], log_weight


def maxima(problem: ForestProblem) -> Answer:
    """Max-marginals in the place of marginals."""
    with np.errstate(all="ignore"):
        passes = ForestPass(problem, MaxPlus())
        passes.upward()
        return passes.downward()
