"""Configurations of problems with edges, whatever the number of states: samples and best ones."""

from __future__ import annotations

import numpy as np

from ...arrays import Ints
from ..answer import Answer
from ..problem import ForestProblem
from .arithmetic import ARITHMETICS, Direct, Fourier, LogSpace
from .ladder import SMALL, tilted
from .maxima import best, max_beliefs, max_counts
from .plain import balanced
from .values import ForestValues
from .walk import Walk

__all__ = ["best", "draw", "max_beliefs", "max_counts"]

_CELLS = 1 << 24  # cells of states kept at a time


@np.errstate(all="ignore")
def draw(problem: ForestProblem, answer: Answer, size: int, rng: np.random.Generator) -> Ints:
    """Exact joint samples, (size, B, D), from passes like those that gave the answer."""
    out = np.zeros((size, len(problem), problem.program.n_variables), np.int64)
    for number, certified in enumerate(ARITHMETICS):
        rows = np.flatnonzero(answer.arithmetic == number)
        if not len(rows):
            continue
        kind = Direct if certified is Fourier and problem.longest <= 16 * SMALL else certified
        part = problem.take(rows)
        if kind is not LogSpace:
            part = balanced(tilted(part, answer.tilts[rows])[0])[0]
        passes = ForestValues(part, kind())
        passes.upward()
        room = max(1, _CELLS // max(1, len(rows) * problem.program.n_nodes))
        for i in range(0, size, room):
            count = min(room, size - i)
            out[i : i + count, rows] = Walk(passes, count, rng).run()
    return out
