"""Sums over discrete distributions from their log pmf, each with relative accuracy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LOG_HALF = float(np.log(0.5))


def log_sum(log_p: Array) -> Array:
    """``log sum exp`` along the last axis of (B, m); -inf for a sum of nothing."""
    if log_p.shape[1] == 0:
        return np.full(len(log_p), -np.inf)
    top = log_p.max(axis=1)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(log_p - shift[:, None]).sum(axis=1)) + shift)


def log_tails(log_p: Array) -> tuple[Array, Array]:
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
