"""Several potentials on the count of the same chunks, solved in the same passes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..engine.count import chunks as verbs
from ..engine.count.chunks.packed import unpacked
from ..engine.pmf.log_pmf import log_pmf
from ..potentials import Potential
from .count_potential import CountPotential
from .flat import Reductions


def solved_together(reductions: Reductions, potentials: Sequence[Potential], n: int) -> list[verbs.Solution]:
    """Solutions of several potentials on n variables; all ask at the same time, so that a pass serves them all."""
    talks = {i: verbs.solve(CountPotential(one, n)) for i, one in enumerate(potentials)}
    asked = {i: next(talk) for i, talk in talks.items()}
    found: dict[int, verbs.Solution] = {}
    while talks:
        union = tuple(dict.fromkeys(request for requests in asked.values() for request in requests))
        sums = reductions(union)
        for i in list(talks):
            try:
                asked[i] = talks[i].send(sums)
            except StopIteration as end:
                found[i] = end.value
                del talks[i], asked[i]
    return [found[i] for i in range(len(potentials))]


def log_mean(solution: verbs.Solution) -> float:
    """Log E f(X): the probability of an event, without the norm of the log-odds, beside which it would vanish."""
    if solution.impossible:
        return -math.inf
    if solution.gathered is not None:
        weights = log_pmf(solution.gathered[None])[0] + solution.table.window(0, len(solution.gathered))
        top = float(weights.max())
        return top + math.log(np.exp(weights - top).sum()) if top > -math.inf else top
    if solution.sums.n == 0:
        return solution.log_partition
    return unpacked(solution.mapping.series).log_mean
