"""Sums over discrete distributions from their log pmf, each with relative accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import Float64

LOG_HALF = float(np.log(0.5))
ACCURACY = 1e-10  # that tail probabilities have at least


def rounding(level: Any, n: int) -> Any:
    """Relative error that a tail probability of n variables may have: several times what was seen, up to 10^5."""
    with np.errstate(divide="ignore"):
        size = 16.0 + n - np.log(level)
    return np.minimum(4.0 * np.finfo(np.float64).eps * size, ACCURACY)


def least_reached(level: Any, n: int) -> Any:
    """The smallest computed P(X <= v) that may stand for a probability of at least `level`."""
    return level * (1.0 - rounding(level, n))


def most_left(level: Any, n: int) -> Any:
    """The largest computed P(X > v) that may stand for a probability of at most `level`."""
    return level * (1.0 + rounding(level, n))


def log_tails(log_p: Float64) -> tuple[Float64, Float64]:
    """Return ``log P(X <= v)`` and ``log P(X > v)`` along the last axis of ``log_p`` (B, m).

    Each is summed from its own small end; where one is above 1/2 it is the complement of the other, so that
    their sum is 1 to the last bit and the last ``P(X <= v)`` is exactly 1.
    """
    below = np.logaddexp.accumulate(log_p, axis=1)
    above = np.full_like(log_p, -np.inf)
    above[:, :-1] = np.logaddexp.accumulate(log_p[:, :0:-1], axis=1)[:, ::-1]
    log_cdf = np.where(above < LOG_HALF, np.log1p(-np.exp(np.minimum(above, LOG_HALF))), below)
    log_sf = np.where(below < LOG_HALF, np.log1p(-np.exp(np.minimum(below, LOG_HALF))), above)
    # rounding where the two sides meet must not break the order
    log_cdf = np.maximum.accumulate(log_cdf, axis=1)
    log_sf = np.maximum.accumulate(log_sf[:, ::-1], axis=1)[:, ::-1]
    return log_cdf, log_sf
