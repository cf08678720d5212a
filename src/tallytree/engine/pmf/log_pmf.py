"""The Poisson-binomial pmf with relative accuracy at every count.

Single probabilities of a long Poisson-binomial sum: the flat solver with one side of a count allowed.

``P(X <= k)`` is the expectation of the potential "at most k". The side that does not hold the mean is computed, so that
neither a probability nor its complement loses digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...arrays import Float64
from ...structure.nested.count_tree import CountTree
from .. import masks, native, thresholds
from ..ladder import TOLERANCE
from ..problem import Rows
from .recursion import band_size, recursion_log_pmf
from .tilted import tilted_log_pmf

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
    near = nu if masks.absent(nu) else masks.resolve_logits(nu[None])[0][0]
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


DIRECT_LENGTH = 12_000  # up to here the O(n^2) recursion is the faster one
DIRECT_BAND = 4e8  # entry updates for which the recursion is still the faster one at any length
ROWS_AT_ONCE = 1 << 19  # entries of a batch that go through the recursion together


def log_pmf(nu: Float64) -> Float64:
    """Log pmf of sums of independent Bernoulli variables.

    Parameters
    ----------
    nu : (B, n)
        Log-odds in [-inf, inf].

    Returns
    -------
    (B, n + 1) array
        ``log P(sum = k)``; -inf exactly at impossible counts.

    Notes
    -----
    Cost: O(n^2) simple steps up to n of about 10^4, O(n^1.5) beyond.
    Accuracy: 1e-10, absolute or relative to the logarithm, at every count.
    """
    if not masks.absent(nu):
        nu = masks.resolve_logits(nu)[0]
    rows, n = nu.shape
    if native.present():
        if rows >= thresholds.SIDE_BY_SIDE and 2 <= n <= thresholds.COUNTED_IN_LANES:
            return _side_by_side(nu)
        return native.flat_log_pmf(nu)
    if n <= DIRECT_LENGTH:
        step = max(1, ROWS_AT_ONCE // (n + 1))
        parts = [recursion_log_pmf(nu[start : start + step]) for start in range(0, rows, step)]
        return np.concatenate(parts) if parts else np.zeros((0, n + 1))
    return np.stack([_free_part(row, _long_row) for row in nu]) if rows else np.zeros((0, n + 1))


def _side_by_side(nu: Float64) -> Float64:
    """Small rows by plain numbers in the lanes of registers; what may have underflowed by tilts, row by row."""
    n = nu.shape[1]
    program = CountTree.flat(n).program
    found, certain = native.root_counts(program, nu, np.zeros((1, n + 1)), int(program.set_node[0]))
    rest = np.flatnonzero(~certain)
    if len(rest):
        found[rest] = native.flat_log_pmf(nu[rest])
    return found


def tilted_rows_log_pmf(nu: Float64) -> Float64:
    """Like :func:`log_pmf`, always by tilted windows, whatever the length."""
    rows, n = nu.shape
    return np.stack([_free_part(row, tilted_log_pmf) for row in nu]) if rows else np.zeros((0, n + 1))


def _long_row(nu: Float64) -> Float64:
    if nu.size <= DIRECT_LENGTH or band_size(nu) <= DIRECT_BAND:
        return np.asarray(recursion_log_pmf(nu[None, :])[0])
    return tilted_log_pmf(nu)


def _free_part(nu: Float64, solve: Callable[[Float64], Float64]) -> Float64:
    """Log pmf of one row: variables that are certain only move the support of the others."""
    free = nu[np.isfinite(nu)]
    forced = int(np.sum(nu == np.inf))
    out = np.full(nu.size + 1, -np.inf)
    out[forced : forced + free.size + 1] = solve(free) if free.size else 0.0
    return out
