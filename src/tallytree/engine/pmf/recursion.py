"""The direct recursion for sums of independent Bernoulli variables, with relative accuracy at every count.

Gail, Lubin and Rubinstein (1981) and Barlow and Heidtmann (1984) add one variable at a time,
``P_j(k) = q_j P_{j-1}(k) + p_j P_{j-1}(k - 1)``. Only positive terms are added, so nothing cancels; what
fails at large n is the range of floating point. Two facts keep the numbers in range without a logarithm per
step.

*Order.* Variables are taken from log-odds 0 outwards: first the likely ones, as failures, then the unlikely
ones, as successes. Every earlier variable then has odds at least w_j, and counting subsets gives
``w_j P_{j-1}(k-1) <= P_{j-1}(k) k / (j - k)``: no entry grows by more than a factor j in a step.

*Frame.* Each entry carries its own logarithm, refreshed once per block of steps; a step is one multiplication
and one addition. Entry k stops changing once w_j is below exp(-60) / n^2 of the k-th largest odds: the band
stays narrow where the log-odds are spread widely.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ...arrays import Float64
from ..tilt import tilt_to_mean

BLOCK = 32  # steps between refreshed frames: entries grow by at most n**32, inside float64 up to n = 10**9
BLOCK_SPAN = 300.0  # largest fall of the log-odds inside one block
FREEZE = 60.0  # an entry is final when the remaining odds are below exp(-FREEZE) / n**2 of its own


def softplus(x: Float64) -> Float64:
    """Return ``log(1 + exp(x))``."""
    return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))


def log_mgf_terms(nu: Float64, s: Float64) -> Float64:
    """Return ``log(q + p exp(s))`` (B, n) for log-odds ``nu`` (B, n) and one tilt per row, ``s`` (B,)."""
    out = np.empty(nu.shape)
    small = np.abs(s) <= 1.0
    # log1p keeps the digits of a small tilt; with |s| <= 1 its argument stays above exp(-1)
    out[small] = np.log1p(expit(nu[small]) * np.expm1(s[small, None]))
    far, t = nu[~small], s[~small, None]
    finite = np.isfinite(far)
    v = np.where(finite, far, 0.0)
    out[~small] = np.where(finite, softplus(v + t) - softplus(v), np.where(far > 0, t, 0.0))
    return out


def log_mgf(nu: Float64, s: Float64) -> Float64:
    """Return ``log E exp(s X)`` per row for X the sum of the variables in ``nu`` (B, n), ``s`` (B,)."""
    return np.asarray(log_mgf_terms(nu, s).sum(axis=1))


def band_size(nu: Float64) -> float:
    """Return the number of entry updates of the direct recursion for one row, after freezing."""
    order = np.sort(nu)
    reach = FREEZE + 2.0 * np.log(max(nu.size, 2))
    return float(np.sum(np.searchsorted(order, order + reach, side="right") - np.arange(nu.size)))


def extend(log_p: Float64, ladder: Float64, nu: Float64, cap: int) -> tuple[Float64, Float64]:
    """Add variables of falling log-odds to a sum whose log pmf is known.

    Parameters
    ----------
    log_p : (B, T + 1)
        Log pmf so far; the last entry is the largest possible sum. Rows with fewer variables start with -inf.
    ladder : (B, T)
        Log-odds of the variables so far, falling; entry t - 1 is the step from sum t - 1 to sum t.
    nu : (B, m)
        Log-odds to add, falling, none above ``ladder`` by more than a few units; -inf (last) does nothing.
    cap : int
        Largest entry to keep.

    Returns
    -------
    log_p, ladder : (B, K + 1), (B, K)
        The same two arrays with the new variables, ``K = min(T + m, cap)``.
    """
    rows, m = nu.shape
    top = ladder.shape[1]
    size = min(top + m, cap)
    frame = np.full((rows, size + 1), -np.inf)
    frame[:, : min(top, size) + 1] = log_p[:, : size + 1]
    ladder = np.concatenate([ladder, nu], axis=1)[:, :size]
    lowest_rung = ladder.min(axis=0, initial=np.inf)
    reach = FREEZE + 2.0 * np.log(max(top + m, 2))
    left = np.cumsum(softplus(nu)[:, ::-1], axis=1)[:, ::-1]  # -log P(none of the variables from here on)
    start = frozen = 0
    while start < m:
        first = nu[:, start]
        stop = _block_end(nu, start, m)
        odds = np.exp(nu[:, start:stop] - np.where(np.isfinite(first), first, 0.0)[:, None])
        before = frozen
        frozen = int(np.searchsorted(-lowest_rung, -(first.max() + reach), side="left"))
        frame[:, before:frozen] -= left[:, start : start + 1]
        ceiling = min(top + stop, size)
        _advance(frame, ladder, odds, first, frozen, top + start, ceiling)
        log_q = softplus(nu[:, start:stop]).sum(axis=1)
        frame[:, frozen : ceiling + 1] -= log_q[:, None]
        start = stop
    return frame, ladder


def _block_end(nu: Float64, start: int, m: int) -> int:
    stop = min(start + BLOCK, m)
    block = nu[:, start:stop]
    finite = np.isfinite(block)
    fall = np.where(finite[:, :1], block[:, :1], 0.0) - np.where(finite, block, np.inf)
    wide = np.flatnonzero((fall > BLOCK_SPAN).any(axis=0))
    return start + int(wide[0]) if wide.size else stop


def _advance(
    frame: Float64, ladder: Float64, odds: Float64, first: Float64, frozen: int, top: int, ceiling: int
) -> None:
    """Multiply the pmf by ``prod (1 + odds_j exp(first) x)``; ``frame`` (its logarithm) changes in place."""
    log_p = frame[:, frozen : ceiling + 1]
    known = max(min(top, ceiling) - frozen, 0)
    if ceiling - frozen > known:  # the frame of a sum not reached before: the product of the largest odds
        rungs = np.cumsum(ladder[:, frozen + known : ceiling], axis=1)
        log_p[:, known + 1 :] = log_p[:, known : known + 1] + rungs
    mantissa = np.zeros_like(log_p)
    mantissa[:, : known + 1] = np.isfinite(log_p[:, : known + 1])
    with np.errstate(invalid="ignore"):
        ratio = first[:, None] + (log_p[:, :-1] - log_p[:, 1:])
    # an entry that cannot be reached has no frame: nothing flows into it
    ratio = np.exp(np.where(np.isfinite(log_p[:, 1:]), ratio, -np.inf))
    for j in range(odds.shape[1]):
        end = min(top + j + 1, ceiling) - frozen
        mantissa[:, 1 : end + 1] += (odds[:, j : j + 1] * ratio[:, :end]) * mantissa[:, :end]
    with np.errstate(divide="ignore"):
        log_p += np.log(mantissa)


def recursion_log_pmf(nu: Float64, cap: int | None = None) -> Float64:
    """Log pmf of a Poisson-binomial sum by the direct recursion.

    Parameters
    ----------
    nu : (B, n)
        Log-odds in [-inf, inf].
    cap : int, optional
        Largest count wanted; all counts if omitted.

    Returns
    -------
    (B, min(n, cap) + 1) array

    Notes
    -----
    Cost: O(n min(n, cap)) per row, less where the log-odds are spread over more than about 80 units.
    Accuracy: relative error of every probability below about n times the unit round-off.
    """
    rows, n = nu.shape
    top = n if cap is None else min(n, cap)
    if rows == 0 or n == 0:
        return np.zeros((rows, top + 1))
    if top == n:
        return _recursion(nu, n)
    # a tilt to mean `top` leaves at most 2 top likely variables, so the failures are few as well
    s = np.minimum(tilt_to_mean(nu, np.full(rows, top + 0.5)), 0.0)
    tilted = _recursion(nu + s[:, None], top)
    return np.asarray(tilted + log_mgf(nu, s)[:, None] - s[:, None] * np.arange(top + 1.0))


def _recursion(nu: Float64, cap: int) -> Float64:
    rows, n = nu.shape
    order = np.sort(nu, axis=1)
    likely = (order > 0).sum(axis=1)
    width = int(likely.max())
    # likely variables, counted as failures: rising |nu|, padded with -inf
    column = np.arange(width)[None, :]
    taken = column < likely[:, None]
    index = np.minimum(n - likely[:, None] + column, n - 1)
    failures = np.where(taken, -np.take_along_axis(order, index, axis=1), -np.inf)
    log_f, ladder = extend(np.zeros((rows, 1)), np.zeros((rows, 0)), failures, width)
    # unlikely variables, falling; entry t of the result is the sum t - width + likely
    rest = n - int(likely.min())
    column = np.arange(rest)[None, :]
    taken = column < (n - likely)[:, None]
    index = np.maximum(n - likely[:, None] - 1 - column, 0)
    successes = np.where(taken, np.take_along_axis(order, index, axis=1), -np.inf)
    log_p, _ = extend(log_f[:, ::-1], -ladder[:, ::-1], successes, width + max(cap - int(likely.min()), 0))
    shift = width - likely[:, None] + np.arange(cap + 1)[None, :]
    inside = shift < log_p.shape[1]
    picked = np.take_along_axis(log_p, np.minimum(shift, log_p.shape[1] - 1), axis=1)
    return np.where(inside, picked, -np.inf)
