"""Single probabilities of a long Poisson-binomial sum: the flat solver with one side of a count allowed.

``P(X <= k)`` is the expectation of the potential "at most k". The side that does not hold the mean is computed, so that
neither a probability nor its complement loses digits.
"""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64
from .. import far, native
from ..ladder import TOLERANCE
from ..problem import Rows

SHORTEST = 512  # variables up to which the table of all counts costs hardly more
MOST = 4  # points from which on it is worth its price


def log_probabilities(nu: Float64, mean: float, which: str, points: Float64) -> Float64 | None:
    """Log of P(X = x), P(X <= x) or P(X > x) for "at", "below" or "above"; None where they are not certified.

    Parameters
    ----------
    nu : (n,)
        Log-odds in [-inf, inf].
    mean : float
        Mean of X; it only decides which side is computed.
    points : array
        Any real numbers.
    """
    if not native.present():
        return None
    near = nu if far.all_near(nu) else far.near_logits(nu[None])[0][0]
    out = np.empty(points.shape)
    for place, x in np.ndenumerate(points):
        found = (
            _at(near, x)
            if which == "at"
            else _side(near, mean, which, math.floor(max(min(x, 2.0**60), -1.0)))
        )
        if found is None:
            return None
        out[place] = found
    return out


def _at(nu: Float64, x: float) -> float | None:
    if not 0.0 <= x <= len(nu) or x != math.floor(x):
        return -math.inf
    return _log_mean(nu, int(x), int(x))


def _side(nu: Float64, mean: float, which: str, k: int) -> float | None:
    n = len(nu)
    if k < 0 or k >= n:
        return 0.0 if (k >= n) == (which == "below") else -math.inf
    below = k < mean
    found = _log_mean(nu, 0, k) if below else _log_mean(nu, k + 1, n)
    if found is None or below == (which == "below"):
        return found
    return math.log1p(-math.exp(found)) if found < 0.0 else -math.inf


def _log_mean(nu: Float64, low: int, high: int) -> float | None:
    """Log P(low <= X <= high)."""
    table = np.full((1, len(nu) + 1), -math.inf)
    table[:, low : high + 1] = 0.0
    found = native.flat(Rows(nu[None], table), cavities=False)
    return min(float(found.log_mean[0]), 0.0) if found.bound[0] <= TOLERANCE / 10.0 else None
