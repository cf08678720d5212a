"""Concave pieces of a message, and the merge of slopes that convolves two of them in linear time."""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64

Pieces = list[tuple[int, int]]

MOST_PIECES = 8
_ROUNDING = 4 * np.finfo(np.float64).eps


def pieces(values: Float64) -> Pieces | None:
    """Intervals ``(first, last)`` on which a message is finite and concave, or None if it takes too many.

    Together they cover every finite entry; neighbours share an end. One interval means a concave message, two or
    three a spike and slab or an all-or-none table; a message without finite entries has none. Slopes may rise by the
    rounding of the values.
    """
    finite = np.flatnonzero(values > -math.inf)
    if len(finite) == 0:
        return []
    holes = finite[-1] - finite[0] >= len(finite)
    runs = np.split(finite, np.flatnonzero(np.diff(finite) > 1) + 1) if holes else [finite]
    if len(runs) > MOST_PIECES:
        return None
    slack = _ROUNDING * float(np.abs(values[finite]).max())
    found: Pieces = []
    for run in runs:
        slopes = np.diff(values[run[0] : run[-1] + 1])
        if np.count_nonzero(slopes[1:] > slopes[:-1] + slack) > 2 * MOST_PIECES:
            return None
        start, last = 0, len(slopes)
        while True:
            rest = slopes[start:]
            rises = rest > np.minimum.accumulate(rest) + slack
            stop = start + int(np.argmax(rises)) if rises.any() else last
            found.append((int(run[0]) + start, int(run[0]) + stop))
            if stop == last:
                break
            if len(found) >= MOST_PIECES:
                return None
            start = stop
    return found


def merge_slopes(a: Float64, b: Float64) -> Float64:
    """``max_i a[i] + b[z - i]`` of two finite concave sequences: always take the larger next slope.

    The merge decides how many steps come from each side; values are then looked up, so no rounding builds up.
    """
    falls = np.concatenate([-np.diff(a), -np.diff(b)])
    taken = np.argsort(falls, kind="stable")  # two sorted runs: the stable sort merges them in linear time
    from_a = np.zeros(len(falls) + 1, np.int64)
    np.cumsum(taken < len(a) - 1, out=from_a[1:])
    merged: Float64 = a[from_a] + b[np.arange(len(from_a)) - from_a]
    return merged


def convolve_pieces(a: Float64, b: Float64, parts_a: Pieces, parts_b: Pieces) -> Float64:
    """(max, +) convolution as the maximum over pairs of concave pieces."""
    out = np.full(len(a) + len(b) - 1, -math.inf)
    for s, e in parts_a:
        for t, f in parts_b:
            window = out[s + t : e + f + 1]
            np.maximum(window, merge_slopes(a[s : e + 1], b[t : f + 1]), out=window)
    return out
