"""(max, +) convolution of two messages, by what is known about their shape.

Concave with concave merges slopes in O(n); a few concave pieces are merged pair by pair; concave with arbitrary
uses the monotone argmax in O(n log n); two arbitrary sequences take O(n m), compiled where there is an engine. The last
case already contains the (min, +)-convolution problem (Cygan et al. 2017), so nothing much faster is known.
"""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64
from .. import native
from .concave import MOST_PIECES, Pieces, convolve_pieces, pieces
from .monotone import monotone_rows

_SHORT = 32  # up to this length a plain loop over the shorter side is quickest
_MERGE_COST = 40  # cost per entry of the methods against one entry of the plain loop, measured
_MONOTONE_COST = 20  # per entry and round
_COMPILED_COST = 0.2  # per entry of the compiled loop
_SPARSE = 10  # the plain loop skips what is impossible, and is quicker if one entry in so many is possible


def convolve(a: Float64, b: Float64) -> Float64:
    """``out[z] = max_i a[i] + b[z - i]``."""
    return rows(a, b, 0, len(a) + len(b) - 1)


def correlate(d: Float64, m: Float64) -> Float64:
    """``out[i] = max_j d[i + j] + m[j]``: the adjoint of :func:`convolve`, of length ``len(d) - len(m) + 1``."""
    return rows(d, m[::-1], len(m) - 1, len(d))


def rows(a: Float64, b: Float64, start: int, stop: int) -> Float64:
    """Entries ``start <= z < stop`` of the convolution of a and b."""
    if min(len(a), len(b), stop - start) <= _SHORT:
        return plain(a, b, start, stop)
    parts_a, parts_b = pieces(a), pieces(b)
    m, n = len(a), len(b)
    count_a = MOST_PIECES * n if parts_a is None else len(parts_a)
    count_b = MOST_PIECES * m if parts_b is None else len(parts_b)
    rounds = (stop - start).bit_length() * _MONOTONE_COST * (m + n)
    costs = {
        "plain": min(m, n, stop - start) * max(m, n) * (_COMPILED_COST if native.present() else 1.0),
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
    return plain(a, b, start, stop)


def _by_pieces(b: Float64, c: Float64, parts: Pieces, start: int, stop: int) -> Float64:
    out = np.full(stop - start, -math.inf)
    for part in parts:
        np.maximum(out, monotone_rows(b, c, part, start, stop), out=out)
    return out


def plain(a: Float64, b: Float64, start: int, stop: int) -> Float64:
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


def convolve_batch(a: Float64, b: Float64) -> Float64:
    """Convolution along the last axis of (..., m) and (..., n); short and dense."""
    if a.shape[-1] > b.shape[-1]:
        a, b = b, a
    n = b.shape[-1]
    out = np.full((*a.shape[:-1], a.shape[-1] + n - 1), -math.inf)
    for i in range(a.shape[-1]):
        window = out[..., i : i + n]
        np.maximum(window, a[..., i : i + 1] + b, out=window)
    return out


def correlate_batch(d: Float64, m: Float64) -> Float64:
    """:func:`correlate` along the last axis."""
    width = d.shape[-1] - m.shape[-1] + 1
    out = np.full((*d.shape[:-1], width), -math.inf)
    for j in range(m.shape[-1]):
        np.maximum(out, d[..., j : j + width] + m[..., j : j + 1], out=out)
    return out
