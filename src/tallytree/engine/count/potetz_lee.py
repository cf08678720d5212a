"""The elimination of Potetz and Lee (2008): every message afresh, one FFT convolution per eliminated variable.

O(n^2 W log W) for a sum up to W: n messages, each the sum over the n - 1 other variables, each sum a convolution. It
was made for potentials on a linear combination of the variables, on a grid; for counts W = n. Kept as a reference for
small n; the paper's section 2.3 describes it and improves on it.
"""

from __future__ import annotations

import math
from typing import Any

from ..answer import Answer
from .arithmetic import UNIT_ROUNDOFF, Direct

LARGEST = 512


def solve_batch(xp: Any, nu: Any, log_f: Any, weights: Any = None) -> Answer:
    """Models (B, n) with tables (B, W + 1) of the sum of the variables, with positive integer weights (n,) if given."""
    batch, n = nu.shape
    like = {"dtype": nu.dtype, "device": nu.device}
    leaves = Direct(xp).leaves(nu)
    reach = log_f.shape[-1] - 1
    length = 1 << reach.bit_length()  # the smallest power of two above the sum: no wrap-around
    spectra = xp.fft.rfft(_spread(xp, leaves, weights, length), n=length)

    # Row d of `rest` is the distribution of the sum of all variables but d.
    start = xp.concat([xp.ones((batch, n, 1), **like), xp.zeros((batch, n, length - 1), **like)], axis=-1)
    rest = start
    for e in range(n):
        summed = xp.fft.irfft(xp.fft.rfft(rest, n=length) * spectra[:, e, None, :], n=length)
        keep = xp.arange(n, device=nu.device)[:, None] == e
        rest = xp.where(keep, rest, summed)
    top = xp.max(log_f, axis=-1)
    f = xp.exp(log_f - xp.where(top == -math.inf, 0.0, top)[:, None])
    d0, d1 = _expectations(xp, rest, f, weights)
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


def _spread(xp: Any, leaves: Any, weights: Any, length: int) -> Any:
    """Weights of the two states at the values 0 and w of every variable, (B, n, length)."""
    if weights is None:
        return leaves
    value = xp.arange(length, device=leaves.device)
    off = xp.where(value == 0, leaves[..., :1], 0.0)
    return xp.where(value == weights[:, None], leaves[..., 1:], off)


def _expectations(xp: Any, rest: Any, f: Any, weights: Any) -> tuple[Any, Any]:
    """Sums of f over the rest with a variable off and on, (B, n) each."""
    n, reach = rest.shape[1], f.shape[-1] - 1
    if weights is None:
        return tuple(xp.sum(rest[..., :n] * f[:, None, i : i + n], axis=-1) for i in (0, 1))
    rest = rest[..., : reach + 1]
    padded = xp.concat([f, xp.zeros((f.shape[0], reach), dtype=f.dtype, device=f.device)], axis=-1)
    on = [
        xp.sum(rest[:, d] * padded[:, int(weights[d]) : int(weights[d]) + reach + 1], axis=-1)
        for d in range(n)
    ]
    return xp.sum(rest * f[:, None, :], axis=-1), xp.stack(on, axis=-1)
