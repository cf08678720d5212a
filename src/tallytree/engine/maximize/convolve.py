"""(max, +) convolution of two messages, by what is known about their shape.

Concave with concave merges slopes in O(n); a few concave pieces are merged pair by pair; concave with arbitrary
uses the monotone argmax in O(n log n); two arbitrary sequences take O(n m), compiled where there is an engine. The last
case already contains the (min, +)-convolution problem (Cygan et al. 2017), so nothing much faster is known.

(max, +) convolution of an arbitrary sequence with a concave one: the best column moves right with the row.

With c concave, ``b[j] + c[r - j]`` has the Monge property in (r, j), also where c is -inf outside an interval, so the
leftmost best j is monotone in r. Rows are solved in rounds, each halving the distance between solved rows; a row
searches only between the answers of its two solved neighbours. O(n) per round, O(n log n) in all, and every round is
array code (SMAWK would save the logarithm, but it is sequential).

Concave pieces of a message, and the merge of slopes that convolves two of them in linear time.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64
from .. import native


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


_SHORT = 32  # up to this length a direct loop over the shorter side is quickest
_MERGE_COST = 40  # cost per entry of the methods against one entry of the direct loop, measured
_MONOTONE_COST = 20  # per entry and round
_COMPILED_COST = 0.2  # per entry of the compiled loop
_SPARSE = 10  # the direct loop skips what is impossible, and is quicker if one entry in so many is possible


def convolve(a: Float64, b: Float64) -> Float64:
    """``out[z] = max_i a[i] + b[z - i]``."""
    return convolve_range(a, b, 0, len(a) + len(b) - 1)


def correlate(d: Float64, m: Float64) -> Float64:
    """``out[i] = max_j d[i + j] + m[j]``: the adjoint of :func:`convolve`, of length ``len(d) - len(m) + 1``."""
    return convolve_range(d, m[::-1], len(m) - 1, len(d))


def convolve_range(a: Float64, b: Float64, start: int, stop: int) -> Float64:
    """Entries ``start <= z < stop`` of the convolution of a and b."""
    if min(len(a), len(b), stop - start) <= _SHORT:
        return direct(a, b, start, stop)
    parts_a, parts_b = pieces(a), pieces(b)
    m, n = len(a), len(b)
    count_a = MOST_PIECES * n if parts_a is None else len(parts_a)
    count_b = MOST_PIECES * m if parts_b is None else len(parts_b)
    rounds = (stop - start).bit_length() * _MONOTONE_COST * (m + n)
    costs = {
        "direct": min(m, n, stop - start) * max(m, n) * (_COMPILED_COST if native.present() else 1.0),
        "merge": _MERGE_COST * (count_a * n + count_b * m),
        "a": count_a * rounds,
        "b": count_b * rounds,
    }
    method = min(costs, key=lambda name: costs[name])
    if method == "merge" and parts_a is not None and parts_b is not None:
        return convolve_pieces(a, b, parts_a, parts_b)[start:stop]
    if method == "a" and parts_a is not None:
        return _by_pieces(b, a, parts_a, start, stop)
    if method == "b" and parts_b is not None:
        return _by_pieces(a, b, parts_b, start, stop)
    return direct(a, b, start, stop)


def _by_pieces(b: Float64, c: Float64, parts: Pieces, start: int, stop: int) -> Float64:
    out = np.full(stop - start, -math.inf)
    for part in parts:
        np.maximum(out, monotone_rows(b, c, part, start, stop), out=out)
    return out


def direct(a: Float64, b: Float64, start: int, stop: int) -> Float64:
    """The definition, compiled, or vectorised along the longer side."""
    if len(b) > len(a):
        a, b = b, a
    if native.present() and len(b) > 1 and _SPARSE * np.count_nonzero(b > -math.inf) > len(b):
        return np.asarray(native.max_plus(b[None], a[None], start, stop - start)[0])
    if stop - start < min(len(a), len(b)):
        return _row_by_row(a, b, start, stop)
    out = np.full(stop - start, -math.inf)
    scratch = np.empty(len(out))
    for j in np.flatnonzero(b > -math.inf).tolist():
        first, last = max(start, j), min(stop, j + len(a))
        if first < last:
            shifted = np.add(a[first - j : last - j], b[j], out=scratch[: last - first])
            window = out[first - start : last - start]
            np.maximum(window, shifted, out=window)
    return out


def _row_by_row(a: Float64, b: Float64, start: int, stop: int) -> Float64:
    backwards = b[::-1]
    out = np.full(stop - start, -math.inf)
    for r in range(start, stop):
        first, last = max(0, r - len(b) + 1), min(len(a), r + 1)
        if first < last:
            shift = len(b) - 1 - r
            out[r - start] = (a[first:last] + backwards[first + shift : last + shift]).max()
    return out


def convolve_rows(a: Float64, b: Float64) -> Float64:
    """:func:`convolve` of (B, m) and (B, n), row by row; long, and each may have its own shape."""
    return np.stack([convolve(x, y) for x, y in zip(a, b)])


def correlate_rows(d: Float64, m: Float64) -> Float64:
    """:func:`correlate` row by row."""
    return np.stack([correlate(x, y) for x, y in zip(d, m)])


def convolve_batch(a: Float64, b: Float64, add: np.ufunc = np.maximum) -> Float64:
    """Convolution along the last axis of (..., m) and (..., n), short and dense, of logarithms that `add` adds up."""
    if a.shape[-1] > b.shape[-1]:
        a, b = b, a
    n = b.shape[-1]
    out = np.full((*a.shape[:-1], a.shape[-1] + n - 1), -math.inf)
    for i in range(a.shape[-1]):
        window = out[..., i : i + n]
        add(window, a[..., i : i + 1] + b, out=window)
    return out


def correlate_batch(d: Float64, m: Float64, add: np.ufunc = np.maximum) -> Float64:
    """:func:`correlate` along the last axis."""
    width = d.shape[-1] - m.shape[-1] + 1
    out = np.full((*d.shape[:-1], width), -math.inf)
    for j in range(m.shape[-1]):
        add(out, d[..., j : j + width] + m[..., j : j + 1], out=out)
    return out
