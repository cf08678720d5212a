"""Escalation: a quick method for all models of a batch, the next one for those it could not certify."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64
from .solution import Solution

Rung = Callable[[Float64, Float64], Solution]

TOLERANCE = 1e-9  # what the accuracy contract grants to log-odds; bounds are far above the errors they bound


def climb(rungs: Iterable[Rung], nu: Float64, tables: Float64, *, tolerance: float = TOLERANCE) -> Solution:
    """The first answer for every model that is certified to `tolerance`; the last rung is trusted.

    A rung maps (B, n) log-odds and (1 or B, T) tables to a solution whose ``bound`` says which models it certifies.
    """
    ladder = iter(rungs)
    found = next(ladder)(nu, tables)
    if len(nu) == 1 and found.bound[0] <= tolerance:
        return found  # the usual case, kept short
    failed = np.flatnonzero(~(found.bound <= tolerance))
    further = list(ladder) if len(failed) else []
    if not further:
        return found
    everything = len(failed) == len(nu)
    shared = tables.shape[0] == 1
    again = climb(
        further,
        nu if everything else nu[failed],
        tables if everything or shared else tables[failed],
        tolerance=tolerance,
    )
    return again if everything else _patched(found, again, failed)


def _patched(first: Solution, second: Solution, rows: NDArray[np.int64]) -> Solution:
    log_mean, bound = first.log_mean.copy(), first.bound.copy()
    log_mean[rows], bound[rows] = second.log_mean, second.bound

    def messages() -> Float64:
        merged = first.messages().copy()
        merged[rows] = second.messages()
        return merged

    return Solution(log_mean, bound, messages)
