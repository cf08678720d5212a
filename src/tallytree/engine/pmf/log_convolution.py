"""Convolution of messages held as logarithms, with relative accuracy in every entry and at the speed of plain sums.

Multiplying entry i of both messages by ``exp(-s i)`` multiplies entry k of their convolution by ``exp(-s k)``. Under
a slope s at which both peaks add up to k, the entries around k are sums of plain positive numbers far from underflow,
so a few slopes serve all k. What lies in a hole that no slope reaches (tables with gaps of hundreds of nats) is summed
by itself, relative to its own largest term. FFTs are of no use here: their error is relative to the largest entry.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64

REACH = 340.0  # nats below the peak that are kept: a product of two such numbers is a normal float64
FLOOR = math.exp(
    -290.0
)  # what the cut loses is below exp(-340) per term, so entries above this lose under 2^-60


def log_convolve(a: Float64, b: Float64, first: int, last: int) -> Float64:
    """``log sum_i exp(a[i] + b[k - i])`` for k in ``first..last``, which lies in ``0..len(a) + len(b) - 2``."""
    if len(a) < len(b):
        a, b = b, a
    out = np.full(last - first + 1, -math.inf)
    if a.max() == -math.inf or b.max() == -math.inf:
        return out
    todo = np.ones(len(out), bool)
    impossible = bool(np.isneginf(a).any() or np.isneginf(b).any())
    slope: float | None = 0.0
    while slope is not None:
        covered, cost = _under_slope(a, b, slope, first, out, todo)
        todo &= ~covered
        if impossible and todo.any():  # tell impossible counts from those that the cut has lost
            reachable = np.convolve((a > -math.inf).astype(float), (b > -math.inf).astype(float))
            todo &= reachable[first : last + 1] > 0.5
            impossible = False
        left = np.flatnonzero(todo)
        # Going on must be cheaper than summing what this slope has covered entry by entry.
        worth = 8 * int(covered.sum()) * len(b) >= cost
        slope = _slope_through(a, b, first + int(left[len(left) // 2])) if len(left) and worth else None
    for k in (np.flatnonzero(todo) + first).tolist():
        low, high = max(0, k - len(b) + 1), min(len(a) - 1, k)
        terms = a[low : high + 1] + b[k - high : k - low + 1][::-1]
        top = terms.max()
        out[k - first] = top + math.log(np.exp(terms - top).sum())
    return out


def _under_slope(
    a: Float64, b: Float64, slope: float, first: int, out: Float64, todo: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], int]:
    start_a, x, top_a = _scaled(a, slope)
    start_b, y, top_b = _scaled(b, slope)
    found = np.zeros(len(out))
    c = np.convolve(x, y)
    offset = start_a + start_b - first
    low, high = max(0, offset), min(len(out), offset + len(c))
    if low < high:
        found[low:high] = c[low - offset : high - offset]
    covered: NDArray[np.bool_] = todo & (found > FLOOR)
    k = np.flatnonzero(covered)
    out[k] = np.log(found[k]) + (top_a + top_b) + slope * (first + k)
    return covered, len(x) * len(y)


def _scaled(values: Float64, slope: float) -> tuple[int, Float64, float]:
    """Where the kept part starts, the part as plain numbers with largest entry 1, and the logarithm of that entry."""
    tilted = values - slope * np.arange(len(values)) if slope else values
    top = float(tilted.max())
    below = tilted - top  # not `top - REACH`: beside a large peak the reach would vanish
    kept = np.flatnonzero(below > -REACH)
    part = below[kept[0] : kept[-1] + 1]
    return int(kept[0]), np.where(part > -REACH, np.exp(part), 0.0), top


def _slope_through(a: Float64, b: Float64, k: int) -> float:
    """Slope at which the peaks of both messages add up to k, or jump over it."""
    i, j = np.arange(len(a)), np.arange(len(b))

    def peaks(s: float) -> int:
        return int(np.argmax(a - s * i)) + int(np.argmax(b - s * j))

    low, high = -1.0, 1.0
    while peaks(low) < k and low > -1e300:
        low *= 4.0
    while peaks(high) > k and high < 1e300:
        high *= 4.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        at = peaks(middle)
        if at == k or middle in (low, high):
            return middle
        low, high = (low, middle) if at < k else (middle, high)
    return 0.5 * (low + high)
