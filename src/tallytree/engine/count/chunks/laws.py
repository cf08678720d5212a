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

from ....arrays import Float64, States
from ....errors import InfeasibleError
from ....structure.nested.count_tree import CountTree
from ... import native
from ...problem import Problem
from ...sample.sampler import Sampler
from .solution import Solution
from .solve import collected_problem
from .sums import ENOUGH, Request, Sums, reduce
from .table import Shifted

SMALL_VARIANCE = 50.5  # below 50 the compiled engine wants small deviations one by one


class CountLaw(NamedTuple):
    """``P(count = first + j)`` under a tilt, forced variables included; counts outside have less than exp(-42)."""

    first: int
    probs: Float64


def law_sums(logits: NDArray[Any], tilt: float) -> Sums:
    """What the law of a chunk's count under a tilt needs; sums of chunks add."""
    wide = Request("deviations", (tilt, ENOUGH))
    sums = reduce(logits, [wide])
    part = sums.parts[wide]
    variance = (part.sum[6] + part.carry[6]) / 8.0  # the second deviation sum stands after five totals
    if variance < SMALL_VARIANCE:
        sums = sums.joined(reduce(logits, [Request("small deviations", (tilt,))]))
    return sums


def law_of(sums: Sums, tilt: float) -> CountLaw:
    """The law of the count of the variables behind `sums`, which :func:`law_sums` took at this tilt."""
    if sums.n == 0:
        return CountLaw(sums.forced, np.ones(1))
    missing, law = native.flat_count_law(sums.n, list(sums.parts.items()), tilt, False)
    if law is None:
        raise ValueError(f"sums for the law of a count under tilt {tilt} lack {missing}")
    return CountLaw(int(law[0]) + sums.forced, np.maximum(law[1], 0.0))


def split(left: CountLaw, right: CountLaw, total: int, rng: np.random.Generator) -> int:
    """Draw the count of the left part given the total of both."""
    low = max(left.first, total - right.first - len(right.probs) + 1)
    high = min(left.first + len(left.probs) - 1, total - right.first)
    if low <= high:
        weights = left.probs[low - left.first : high - left.first + 1]
        weights = weights * right.probs[total - high - right.first : total - low - right.first + 1][::-1]
        if weights.max() > 0.0:
            return low + _draw(weights, rng)
    raise ValueError(f"a total of {total} lies outside the windows of its two parts")


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
    which = _draw(np.exp(np.array(shares)), rng)
    if which >= len(solution.parts):
        return Total(sums.forced + (0 if which == len(solution.parts) else sums.n), 0.0)
    part = solution.parts[which]
    missing, law = native.flat_count_law(sums.n, list(sums.parts.items()), part.tilt, False)
    if law is None:
        raise ValueError(f"the sums of a solution lack {missing}")
    low = max(int(law[0]), part.first)
    high = min(int(law[0]) + len(law[1]) - 1, part.last)
    log_f = seen.window(low, high) - part.tilt * np.arange(high - low + 1.0)
    weights = np.exp(log_f - log_f.max()) * np.maximum(law[1][low - law[0] : high - law[0] + 1], 0.0)
    return Total(sums.forced + low + _draw(weights, rng), part.tilt)


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


def _draw(weights: Float64, rng: np.random.Generator) -> int:
    """An index with probability proportional to its weight; never one of weight zero."""
    upto = np.cumsum(weights)
    place = int(np.searchsorted(upto, rng.random() * upto[-1], side="right"))
    return min(place, int(np.searchsorted(upto, upto[-1], side="left")))
