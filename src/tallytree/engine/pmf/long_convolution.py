"""Convolution of long messages held as logarithms, by FFTs under several slopes.

The error of an FFT is relative to the largest entry of the result. Under a slope that puts the peak at k the entries
around k are within a few digits of it, so each slope certifies the entries around its own peak, and a few slopes cover
a window of many standard deviations. What they do not reach is left to
:func:`~tallytree.engine.pmf.log_convolution.log_convolve`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from ...arrays import Float64
from .log_convolution import _slope_through, log_convolve

LONG = 1 << 26  # products of entries from which FFTs are quicker
_DIGITS = 1e-11  # relative error that is accepted
_SLOPES = 64  # more than a window of 700 nats needs


def long_log_convolve(a: Float64, b: Float64) -> Float64:
    """``log sum_i exp(a[i] + b[k - i])`` for every k, to 1e-11."""
    size = len(a) + len(b) - 1
    if len(a) * len(b) <= LONG:
        return log_convolve(a, b, 0, size - 1)
    out = np.full(size, -math.inf)
    if a.max() == -math.inf or b.max() == -math.inf:
        return out
    todo, reach = np.ones(size, bool), 0
    slope = 0.0
    for _ in range(_SLOPES):
        covered = _under_slope(a, b, slope, out, todo)
        todo &= ~covered
        left = np.flatnonzero(todo)
        if not len(left):
            return out
        reach = max(reach, int(np.count_nonzero(covered)))
        if not covered.any():
            break
        # The next peak lies half a reach beyond the nearest entry that is left, on the side of the peak.
        peak = int(np.argmax(np.where(covered, out, -math.inf)))
        at = int(np.searchsorted(left, peak))
        k = (
            left[max(0, at - 1 - reach // 3)]
            if at and at == len(left)
            else left[min(len(left) - 1, at + reach // 3)]
        )
        slope = _slope_through(a, b, int(k))
    left = np.flatnonzero(todo)
    for first, last in _runs(left):
        out[first : last + 1] = log_convolve(a, b, first, last)
    return out


def _under_slope(
    a: Float64, b: Float64, slope: float, out: Float64, todo: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    x, top_a = _plain(a, slope)
    y, top_b = _plain(b, slope)
    n = next_fast_len(len(out), real=True)
    found = irfft(rfft(x, n) * rfft(y, n), n)[: len(out)]
    # Error of an FFT product: a few units in the last place of the product of the norms.
    error = (
        4 * np.finfo(np.float64).eps * math.sqrt(math.log2(n)) * float(np.linalg.norm(x) * np.linalg.norm(y))
    )
    covered: NDArray[np.bool_] = todo & (found > error / _DIGITS)
    k = np.flatnonzero(covered)
    out[k] = np.log(found[k]) + (top_a + top_b) + slope * k
    return covered


def _plain(values: Float64, slope: float) -> tuple[Float64, float]:
    tilted = values - slope * np.arange(len(values)) if slope else values
    top = float(tilted.max())
    return np.exp(tilted - top), top


def _runs(numbers: NDArray[np.int64]) -> list[tuple[int, int]]:
    if not len(numbers):
        return []
    cuts = np.flatnonzero(np.diff(numbers) > 1)
    firsts, lasts = numbers[np.append(0, cuts + 1)], numbers[np.append(cuts, len(numbers) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist()))
