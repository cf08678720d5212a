"""(max, +) convolution of an arbitrary sequence with a concave one: the best column moves right with the row.

With c concave, ``b[j] + c[r - j]`` has the Monge property in (r, j), also where c is -inf outside an interval, so the
leftmost best j is monotone in r. Rows are solved in rounds, each halving the distance between solved rows; a row
searches only between the answers of its two solved neighbours. O(n) per round, O(n log n) in all, and every round is
array code (SMAWK would save the logarithm, but it is sequential).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64


def monotone_rows(b: Float64, c: Float64, support: tuple[int, int], start: int, stop: int) -> Float64:
    """``max_j b[j] + c[r - j]`` for ``start <= r < stop``, c finite and concave on ``support``, not used outside."""
    out = np.full(stop - start, -math.inf)
    columns = np.flatnonzero(b > -math.inf)
    if len(columns) == 0 or len(out) == 0:
        return out
    b = b[columns]
    row = np.arange(start, stop)
    low = np.searchsorted(columns, row - support[1], side="left")
    high = np.searchsorted(columns, row - support[0], side="right") - 1
    best = np.empty(len(out), np.int64)
    distance = 1 << max(len(out).bit_length() - 1, 0)
    while distance:
        now = np.arange(distance - 1, len(out), 2 * distance)
        _solve_between(now, distance, b, c, columns, row, low, high, best, out)
        distance //= 2
    return out


def _solve_between(
    now: NDArray[np.int64],
    distance: int,
    b: Float64,
    c: Float64,
    columns: NDArray[np.int64],
    row: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    best: NDArray[np.int64],
    out: Float64,
) -> None:
    """Solve the rows ``now``, whose neighbours at ``distance`` are solved."""
    first, last = low[now], high[now]
    if now[0] >= distance:
        first = np.maximum(first, best[now - distance])
    else:
        first[1:] = np.maximum(first[1:], best[now[1:] - distance])
    above = now + distance
    bounded = above < len(out)
    last[bounded] = np.minimum(last[bounded], best[above[bounded]])

    lengths = last - first + 1
    empty = lengths <= 0
    if empty.any():
        # No finite entry in this row. Rows below it start behind its band, rows above end before.
        best[now[empty]] = np.minimum(high[now[empty]] + 1, len(columns) - 1)
        kept = ~empty
        now, first, lengths = now[kept], first[kept], lengths[kept]
        if len(now) == 0:
            return
    begin = np.cumsum(lengths) - lengths
    entry = np.arange(int(begin[-1] + lengths[-1]))
    column = entry + np.repeat(first - begin, lengths)
    values = b[column] + c[np.repeat(row[now], lengths) - columns[column]]
    top = np.maximum.reduceat(values, begin)
    out[now] = top
    if distance > 1:
        hits = np.flatnonzero(values == np.repeat(top, lengths))
        best[now] = column[hits[np.searchsorted(hits, begin)]]
