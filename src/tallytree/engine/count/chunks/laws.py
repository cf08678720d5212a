"""The law of a count on a window, from sums: what exact joint draws over chunks are made of.

Given the total, a tilt common to all variables changes nothing: ``P(counts of chunks | total)`` is proportional to the
product of the laws of the chunks under any tilt. So the total is drawn from the posterior and split top-down over
a tree of chunks, each node of which has the merged sums of its chunks; then every chunk is drawn given its count.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ....arrays import States
from ....errors import InfeasibleError
from ....structure.nested.count_tree import CountTree
from ...law import Law, draw_index
from ...problem import Problem
from ...sample.sampler import Sampler
from .solution import Shifted, Solution
from .solve import collected_problem
from .sums import ENOUGH, Request, Sums, count_law, reduce

SMALL_VARIANCE = 50.5  # below 50 the compiled engine wants small deviations one by one


def law_sums(logits: NDArray[Any], tilt: float) -> Sums:
    """What the law of a chunk's count under a tilt needs; sums of chunks add."""
    wide = Request("deviations", (tilt, ENOUGH))
    sums = reduce(logits, [wide])
    part = sums.parts[wide]
    variance = (part.sum[6] + part.carry[6]) / 8.0  # the second deviation sum stands after five totals
    if variance < SMALL_VARIANCE:
        sums = sums.joined(reduce(logits, [Request("small deviations", (tilt,))]))
    return sums


def law_of(sums: Sums, tilt: float) -> Law:
    """The law under a tilt of the count of the variables behind `sums`, which :func:`law_sums` took at this tilt.

    Counts outside its window have less than exp(-42).
    """
    if sums.n == 0:
        return Law(sums.forced, np.zeros(1))
    first, probs = count_law(sums, tilt)[:2]
    with np.errstate(divide="ignore"):
        return Law(int(first) + sums.forced, np.log(np.maximum(probs, 0.0)))


class Total(NamedTuple):
    """How many of all variables are on, and a tilt under which that is not rare."""

    on: int
    tilt: float


def draw_total(solution: Solution, rng: np.random.Generator) -> Total:
    """Draw the count of all variables from the posterior; for solutions made of parts."""
    sums, seen = solution.sums, Shifted(solution.table, solution.sums.forced, solution.sums.excluded)
    if solution.impossible:
        raise InfeasibleError("an impossible model has no samples")
    if sums.n == 0:
        return Total(sums.forced, 0.0)
    shares = [*(part.log_share for part in solution.parts), solution.log_all_off, solution.log_all_on]
    which = draw_index(np.array(shares), rng)
    if which >= len(solution.parts):
        return Total(sums.forced + (0 if which == len(solution.parts) else sums.n), 0.0)
    part = solution.parts[which]
    law = law_of(sums, part.tilt).shifted(-sums.forced).within(part.first, part.last)
    log_f = seen.window(law.first, law.last) - part.tilt * np.arange(len(law.log_weights))
    weighed = law._replace(log_weights=law.log_weights + log_f)
    return Total(sums.forced + weighed.draw(rng), part.tilt)


def draw_given_count(logits: NDArray[Any], count: int, rng: np.random.Generator) -> States:
    """Draw a chunk (m,) given how many of its variables are on."""
    nu = np.array(logits, np.float64)
    if len(nu) <= 1:
        return np.full(len(nu), count, np.uint8)
    log_f = np.full(len(nu) + 1, -math.inf)
    log_f[count] = 0.0
    return _drawn(Problem(CountTree.flat(len(nu)), nu[None], log_f[None]), rng)


def draw_gathered(solution: Solution, rng: np.random.Generator) -> States:
    """Draw all variables of a solution that has them at hand, in order."""
    assert solution.gathered is not None
    if len(solution.gathered) == 1:
        odds = solution.mapping.look_up(solution.gathered)
        return (rng.random(1) < expit(odds)).astype(np.uint8)
    return _drawn(collected_problem(solution.gathered, solution.table), rng)


def _drawn(problem: Problem, rng: np.random.Generator) -> States:
    sampler = Sampler(problem)
    if sampler.impossible.any():
        raise InfeasibleError("an impossible model has no samples")
    return np.asarray(sampler.draw(1, rng)[0, 0])
