"""One potential whose counts are capped at a small number, for a batch of factors: sums along a chain of odds.

    prefix_{i+1}(c) = prefix_i(c) + w_i prefix_i(c - 1),      prefix_0 = [1, 0, ...]
    suffix_i(c)     = suffix_{i+1}(c) + w_i suffix_{i+1}(c + 1),      suffix_n = f
    message_i       = log sum_c prefix_i(c) suffix_{i+1}(c + 1) - log sum_c prefix_i(c) suffix_{i+1}(c)

with odds ``w = exp(nu + tilt)``. O(n K) per factor for counts up to K. Only positive terms are added, so the answer is
relatively accurate unless numbers leave the range of floating point, which is detected and reported per factor.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64
from ..engine.choose import CHAIN_COUNTS

LARGEST = CHAIN_COUNTS  # e^K times a few must stay far below overflow as well
_STRIDE = 32  # variables between kept prefixes
_WORKSPACE = 1 << 19  # numbers in each of the two tables of partial sums


def support(log_f: Float64) -> tuple[int, int]:
    """Smallest and largest count that any of the tables (B, n + 1) allows; (1, 0) if there is none."""
    counts = np.flatnonzero((log_f > -math.inf).any(0))
    return (int(counts[0]), int(counts[-1])) if len(counts) else (1, 0)


def cap(log_f: Float64) -> int:
    """Number of counts that a pass has to carry: ones or zeros, whichever are fewer."""
    lowest, highest = support(log_f)
    return max(0, min(highest, int(log_f.shape[1]) - 1 - lowest))


def solve(nu: Float64, log_f: Float64) -> tuple[Float64, Float64, NDArray[np.bool_]]:
    """Values log Z (B,), messages (B, n), and which factors are certain; nu (B, n), log_f (1 or B, n + 1).

    Forced variables (+inf) have weight one.
    """
    n = nu.shape[1]
    lowest, highest = support(log_f)
    if n - lowest < highest:
        # Count zeros: Z of the complement times the weight of "all on".
        log_z, messages, certain = _solve(-nu, log_f[:, ::-1], n - lowest)
        finite = np.isfinite(nu)
        return log_z + np.where(finite, nu, 0.0).sum(1), -messages, certain
    return _solve(nu, log_f, max(highest, 0))


def _solve(nu: Float64, log_f: Float64, k: int) -> tuple[Float64, Float64, NDArray[np.bool_]]:
    batch, n = nu.shape
    log_z, messages, certain = np.empty(batch), np.empty((batch, n)), np.empty(batch, bool)
    step = max(8, _WORKSPACE // (_STRIDE * (k + 1)))
    for start in range(0, batch, step):
        part = slice(start, start + step)
        table = log_f if log_f.shape[0] == 1 else log_f[part]
        log_z[part], messages[part], certain[part] = _block(nu[part], table[:, : k + 1])
    return log_z, messages, certain


def odds(nu: Float64, k: int) -> tuple[Float64, Float64, NDArray[np.bool_] | None]:
    """Tilted odds (n, B), the tilts (B,), and where variables are forced (n, B), if any are."""
    top = nu.max(1, initial=-math.inf)
    forced = None
    if (top == math.inf).any():
        forced = nu == math.inf
        nu = np.where(forced, -math.inf, nu)
        top = nu.max(1, initial=-math.inf)
    top = np.where(top == -math.inf, 0.0, top)
    # sum of odds = K: then every prefix entry is below K^c / c! <= e^K
    tilt = math.log(max(k, 1)) - top - np.log(np.maximum(np.exp(nu - top[:, None]).sum(1), 1.0))
    weights = np.array(
        nu.T, order="C"
    )  # a copy; variables lead: every step of a recursion is one contiguous row
    weights += tilt
    np.exp(weights, out=weights)
    if forced is not None:
        columns = np.ascontiguousarray(forced.T)
        weights = np.where(columns, np.exp(tilt), weights)
        return weights, tilt, columns
    return weights, tilt, None


def suffixes(weights: Float64, forced: NDArray[np.bool_] | None, last: Float64) -> Float64:
    """Weights of all completions: (n + 1, K + 1, B) from odds (n, B) and the table (K + 1, B)."""
    n, batch = weights.shape
    out = np.empty((n + 1, last.shape[0], batch))
    out[n] = last
    _backward(out, weights, forced, 0)
    return out


def scaled_table(log_f: Float64, tilt: Float64) -> tuple[Float64, Float64]:
    """``f(c) exp(-tilt c)`` with largest entry one, (K + 1, B), and the logarithm of its scale (B,)."""
    tilted = log_f.T - np.arange(log_f.shape[1])[:, None] * tilt
    top = tilted.max(0)
    return np.exp(tilted - np.where(top == -math.inf, 0.0, top)), top


def _block(nu: Float64, log_f: Float64) -> tuple[Float64, Float64, NDArray[np.bool_]]:
    """What :func:`solve` returns, of some factors.

    Prefixes are kept at every ``_STRIDE``-th variable and formed again on the way back: all stays in the cache. What
    leaves the range of floating point is not certain.
    """
    with np.errstate(all="ignore"):
        return _both_ways(nu, log_f)


def _both_ways(nu: Float64, log_f: Float64) -> tuple[Float64, Float64, NDArray[np.bool_]]:
    batch, n = nu.shape
    k = log_f.shape[1] - 1
    weights, tilt, forced = odds(nu, k)
    last, scale = scaled_table(log_f, tilt)
    suffix = np.empty((_STRIDE + 1, k + 1, batch))
    suffix[0] = last
    starts = range(0, n, _STRIDE)
    kept = np.zeros((len(starts) + 1, k + 1, batch))
    kept[0, 0] = 1.0
    prefix = np.empty((_STRIDE + 1, k + 1, batch))
    for s, i in enumerate(starts):
        kept[s + 1] = _forward(prefix, kept[s], weights[i : i + _STRIDE], forced, i)
    messages = np.empty((n, batch))
    least, largest = np.full(batch, math.inf), np.ones(batch)
    for s in range(len(starts) - 1, -1, -1):
        i = starts[s]
        part = weights[i : i + _STRIDE]
        m = len(part)
        _forward(prefix, kept[s], part, forced, i)
        suffix[m] = suffix[0]
        _backward(suffix, part, forced, i)
        off = np.einsum("icb,icb->ib", prefix[:m], suffix[1 : m + 1])
        on = np.einsum("icb,icb->ib", prefix[:m, :-1], suffix[1 : m + 1, 1:])
        least = np.minimum(least, np.minimum(on, off).min(0))
        largest = np.maximum(largest, suffix[: m + 1].max((0, 1)))
        np.log(np.divide(on, off, out=on), out=messages[i : i + m])
    total = suffix[0, 0]
    messages += tilt
    log_z = np.log(total) + scale
    finite = np.isfinite(messages.sum(0)) & np.isfinite(log_z)
    # What underflow can have lost is far below every sum that was formed.
    floor = 1e-280 * (n + 1) * largest
    certain = (np.minimum(least, total) > floor) & finite
    return log_z, messages.T, certain


def _forward(
    prefix: Float64, first: Float64, weights: Float64, forced: NDArray[np.bool_] | None, at: int
) -> Float64:
    """Fill ``prefix`` from its first entry along ``weights`` (m, B); returns the last one."""
    prefix[0] = first
    for i, w in enumerate(weights):
        np.multiply(prefix[i, :-1], w, out=prefix[i + 1, 1:])
        if forced is None:
            prefix[i + 1, 1:] += prefix[i, 1:]
            prefix[i + 1, 0] = prefix[i, 0]
        else:
            prefix[i + 1, 0] = 0.0
            prefix[i + 1] += np.where(forced[at + i], 0.0, prefix[i])
    return np.asarray(prefix[len(weights)])


def _backward(suffix: Float64, weights: Float64, forced: NDArray[np.bool_] | None, at: int) -> None:
    """Fill ``suffix`` from its entry m downwards along ``weights`` (m, B)."""
    for i in range(len(weights) - 1, -1, -1):
        np.multiply(suffix[i + 1, 1:], weights[i], out=suffix[i, :-1])
        if forced is None:
            suffix[i, :-1] += suffix[i + 1, :-1]
            suffix[i, -1] = suffix[i + 1, -1]
        else:
            suffix[i, -1] = 0.0
            suffix[i] += np.where(forced[at + i], 0.0, suffix[i + 1])
