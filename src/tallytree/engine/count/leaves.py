"""Tables of single variables, multiplied into the variables themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Float64


class Folded(NamedTuple):
    """Log-odds (B, D), what joins the constant of log Z, (B,), and the log of the product of ``u(0) + u(1)``, (B,).

    The last is the constant plus the sum of ``log(1 + e^nu)``, without the large numbers that may cancel in it; None
    if no variable has a table.
    """

    nu: Float64
    constant: Any
    log_norm: Any


def fold_singletons(nu: Float64, variables: Sequence[int], tables: Sequence[Float64]) -> Folded:
    """Log-odds (B, D) with tables (1 or B, 2) of single variables in them.

    A leaf with weights u(0) = f(0), u(1) = f(1) e^theta has log-odds log u(1)/u(0). If only one of the two values is
    possible the log-odds are infinite, and its weight belongs to the constant because forced leaves count with
    weight one.
    """
    touched, place = np.unique(np.asarray(variables, np.int64), return_inverse=True)
    own = nu[:, touched]
    a, b = np.where(own == math.inf, -math.inf, 0.0), np.where(own == math.inf, 0.0, own)
    lost = np.zeros_like(a)  # what rounding has taken from b - a so far
    for at, table in zip(place.tolist(), tables):
        a[:, at], rounded_a = _add(a[:, at], table[:, 0])
        b[:, at], rounded_b = _add(b[:, at], table[:, 1])
        lost[:, at] += rounded_b - rounded_a
    both = (a > -math.inf) & (b > -math.inf)
    difference, rounded = _add(b, -a)
    odds = np.where(both, difference + (lost + rounded), np.where(b > -math.inf, math.inf, -math.inf))
    folded = nu.copy()
    folded[:, touched] = odds
    larger = np.maximum(a, b)  # -inf if neither value is possible
    weight = larger + np.where(both, np.log1p(np.exp(-np.abs(np.where(both, odds, 0.0)))), 0.0)
    rest = np.where(np.isfinite(folded), np.logaddexp(0.0, np.where(np.isfinite(folded), folded, 0.0)), 0.0)
    rest[:, touched] = 0.0
    return Folded(folded, np.where(both, a, larger).sum(1), rest.sum(1) + weight.sum(1))


def _add(x: Float64, y: Float64) -> tuple[Float64, Float64]:
    """A sum and its rounding error, which is exact (Knuth, 1969); 0 where the sum is infinite."""
    with np.errstate(invalid="ignore"):
        total = x + y
        part = total - x
        error = (x - (total - part)) + (y - part)
    return total, np.where(np.isfinite(total), error, 0.0)
