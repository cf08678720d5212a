"""Tables of single variables, multiplied into the variables themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...arrays import Float64


def fold_singletons(
    nu: Float64, variables: Sequence[int], tables: Sequence[Float64]
) -> tuple[Float64, Float64]:
    """Log-odds (B, D) with tables (1 or B, 2) of single variables in them, and what joins the constant, (B,).

    A leaf with weights u(0) = f(0), u(1) = f(1) e^theta has log-odds log u(1)/u(0). If only one of the two values is
    possible the log-odds are infinite, and its weight belongs to the constant because forced leaves count with
    weight one.
    """
    log0, log1 = np.zeros_like(nu), np.where(nu == math.inf, 0.0, nu)
    log0[nu == math.inf] = -math.inf
    for v, table in zip(variables, tables):
        log0[:, v] += table[:, 0]
        log1[:, v] += table[:, 1]
    touched = np.unique(np.asarray(variables, np.int64))
    a, b = log0[:, touched], log1[:, touched]
    both = (a > -math.inf) & (b > -math.inf)
    with np.errstate(invalid="ignore"):
        odds = np.where(both, b - a, np.where(b > -math.inf, math.inf, -math.inf))
    folded = nu.copy()
    folded[:, touched] = odds
    # -inf if neither value is possible
    return folded, np.where(both, a, np.maximum(a, b)).sum(1)
