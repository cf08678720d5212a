"""Sums over discrete distributions from their log pmf, each with relative accuracy."""

from __future__ import annotations

import numpy as np

from ...arrays import Float64

LOG_HALF = float(np.log(0.5))


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
