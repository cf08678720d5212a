"""The Poisson-binomial pmf with relative accuracy at every count, and what is read off it.

All probabilities come from the compiled engine, or in array code from the tree of sums of events (`sums.py`).

Single probabilities of a long sum come from the flat solver with one side of a count allowed: ``P(X <= k)`` is the
expectation of the potential "at most k". The side that does not hold the mean is computed, so that neither a
probability nor its complement loses digits.
"""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64
from ...structure.nested.count_tree import CountTree
from .. import masks, native, thresholds
from ..count import infer
from ..ladder import TOLERANCE
from ..law import log_side
from ..log_sums import softplus
from ..problem import Problem, Rows
from .events import Events, log_outcomes
from .sums import log_table

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
    near, n = nu if masks.absent(nu) else masks.resolve_logits(nu[None])[0][0], len(nu)

    def ask(side: str, counts: Float64) -> Float64:
        ends = [(0, k) if side == "below" else (k + 1, n) for k in counts.astype(int).tolist()]
        return np.array([_log_mean(near, *each) for each in ends])

    if which == "at":
        possible = (points >= 0.0) & (points <= n) & (points == np.floor(points))
        out = np.full(points.shape, -math.inf)
        out[possible] = [_log_mean(near, k, k) for k in points[possible].astype(int).tolist()]
    else:
        counts = np.clip(np.floor(points), -1.0, n)
        inside = (counts >= 0.0) & (counts < n)
        out = np.where((counts >= n) == (which == "below"), 0.0, -math.inf)
        out[inside] = log_side(ask, which, counts[inside], mean)
    return None if np.isnan(out).any() else out


def _log_mean(nu: Float64, low: int, high: int) -> float:
    """Log P(low <= X <= high); NaN where it is not certified."""
    table = np.full((1, len(nu) + 1), -math.inf)
    table[:, low : high + 1] = 0.0
    found = native.flat(Rows(nu[None], table), cavities=False)
    return min(float(found.log_mean[0]), 0.0) if found.bound[0] <= TOLERANCE / 10.0 else math.nan


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
    Cost: O(n^1.5) for log-odds of moderate spread, O(n^2) at most.
    Accuracy: 1e-10, absolute or relative to the logarithm, at every count.
    """
    if not masks.absent(nu):
        nu = masks.resolve_logits(nu)[0]
    rows, n = nu.shape
    if not native.present():
        return direct_log_pmf(nu)
    if rows >= thresholds.SIDE_BY_SIDE and 2 <= n <= thresholds.COUNTED_IN_LANES:
        return _side_by_side(nu)
    return native.flat_log_pmf(nu)


def _side_by_side(nu: Float64) -> Float64:
    """Small rows by plain numbers in the lanes of registers; what may have underflowed by tilts, row by row."""
    n = nu.shape[1]
    program = CountTree.flat(n).program
    found, certain = native.root_counts(program, nu, np.zeros((1, n + 1)), int(program.set_node[0]))
    rest = np.flatnonzero(~certain)
    if len(rest):
        found[rest] = native.flat_log_pmf(nu[rest])
    return found


def direct_log_pmf(nu: Float64) -> Float64:
    """:func:`log_pmf` in array code, as the sum of events of weight one."""
    # neighbours in a sorted list have laws that a few tilts serve
    order = np.sort(nu, axis=1)
    return log_table(Events(log_outcomes(order), np.tile([0, 1], (nu.shape[1], 1))))


def leave_one_out_log_pmf(nu: Float64, log_p: Float64, k: int) -> Float64:
    """``log P(sum of the others = k)`` for each of n variables, ``0 <= k < n``, from the log pmf of all, (n + 1,).

    What "exactly k + 1" says of a variable is the ratio of P(others = k) and P(others = k + 1), and
    ``P(all = k + 1) = p P(others = k) + q P(others = k + 1)``.
    """
    n = len(nu)
    if n == 1:
        return np.zeros(1)
    out = np.full(n, -math.inf)
    if log_p[k + 1] > -math.inf:
        table = np.full((1, n + 1), -math.inf)
        table[0, k + 1] = 0.0
        message = infer.infer(Problem(CountTree.flat(n), nu[None], table)).messages[0]
        out = log_p[k + 1] - np.logaddexp(-softplus(-nu), -softplus(nu) - message)
    return np.where(nu == -math.inf, log_p[k], out)
