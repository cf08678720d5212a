"""The elimination of Potetz and Lee (2008): every message afresh, one FFT convolution per eliminated variable.

O(n^3 log n): n messages, each the sum over the n - 1 other variables, each sum a convolution. Kept as a reference for
small n; the paper's section 2.3 describes it and improves on it.
"""

from __future__ import annotations

import math
from typing import Any

from ..answer import Answer
from .arithmetic import UNIT_ROUNDOFF, Direct

LARGEST = 512


def solve_batch(xp: Any, nu: Any, log_f: Any) -> Answer:
    """Models (B, n) with tables (B, n + 1)."""
    batch, n = nu.shape
    like = {"dtype": nu.dtype, "device": nu.device}
    leaves = Direct(xp).leaves(nu)
    length = 1 << n.bit_length()  # the smallest power of two above n: no wrap-around
    spectra = xp.fft.rfft(leaves, n=length)

    # Row d of `rest` is the count distribution of all variables but d.
    start = xp.concat([xp.ones((batch, n, 1), **like), xp.zeros((batch, n, length - 1), **like)], axis=-1)
    rest = start
    for e in range(n):
        summed = xp.fft.irfft(xp.fft.rfft(rest, n=length) * spectra[:, e, None, :], n=length)
        keep = xp.arange(n, device=nu.device)[:, None] == e
        rest = xp.where(keep, rest, summed)
    rest = rest[..., :n]
    top = xp.max(log_f, axis=-1)
    f = xp.exp(log_f - xp.where(top == -math.inf, 0.0, top)[:, None])
    d0 = xp.sum(rest * f[:, None, :n], axis=-1)
    d1 = xp.sum(rest * f[:, None, 1:], axis=-1)
    value = leaves[..., 0] * d0 + leaves[..., 1] * d1
    mean = xp.mean(value, axis=-1) if n else f[:, 0]
    sound = (mean > 0.0) & xp.all((d0 > 0.0) & (d1 > 0.0), axis=-1)

    # Each convolution adds a few units of round-off relative to the largest entry, which f may weigh up.
    weakest = xp.min(xp.minimum(d0, d1), axis=-1) if n else mean
    weight = xp.sqrt(xp.sum(f * f, axis=-1))
    step = 1.5 * math.log2(length + 1.0) * UNIT_ROUNDOFF
    bound = 4.0 * n * step * weight / xp.where(weakest > 0.0, weakest, 1.0) + UNIT_ROUNDOFF * (
        8.0 + xp.abs(top)
    )
    both = (d0 > 0.0) & (d1 > 0.0)
    messages = xp.log(xp.where(both, d1, 1.0)) - xp.log(xp.where(both, d0, 1.0))
    log_mean = xp.log(xp.where(mean > 0.0, mean, 1.0)) + top
    return Answer(log_mean, messages, None, xp.where(sound, bound, math.inf))
