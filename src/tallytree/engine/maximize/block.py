"""A block of variables under one function of their count: sort, and everything is a prefix sum or prefix maximum.

Gupta, Diwan and Sarawagi (2007) for the best configuration; the max-marginals are those of HOP-MAP (Tarlow, Givoni and
Zemel, 2010). All functions work along the last axis.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64


def sorted_down(theta: Float64) -> Float64:
    """Log-odds in decreasing order."""
    return np.sort(theta, axis=-1)[..., ::-1]


def prefix_sums(t: Float64) -> Float64:
    """Best weight of every count 0..n from sorted log-odds: forced variables (inf) enter with weight one."""
    out = np.zeros((*t.shape[:-1], t.shape[-1] + 1))
    if t.size == 0:
        return out
    if not (t[..., 0] == math.inf).any():
        np.cumsum(t, axis=-1, out=out[..., 1:])
        return out
    forced = (t == math.inf).sum(-1, keepdims=True)
    np.cumsum(np.where(t == math.inf, 0.0, t), axis=-1, out=out[..., 1:])
    out[np.arange(out.shape[-1]) < forced] = -math.inf
    return out


def largest(theta: Float64, t: Float64, count: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which variables are the ``count`` largest; among equals the first ones. ``t``: theta in decreasing order."""
    if theta.shape[-1] == 0:
        return np.zeros(theta.shape, bool)
    at = np.maximum(count - 1, 0)[..., None]
    threshold = np.where(count[..., None] > 0, np.take_along_axis(t, at, -1), math.inf)
    on = theta > threshold
    missing = count - np.count_nonzero(on, axis=-1)
    ties = theta == threshold
    if np.array_equal(missing, np.count_nonzero(ties, axis=-1)):
        return np.asarray(on | ties)
    return np.asarray(on | (ties & (np.cumsum(ties, axis=-1) <= missing[..., None])))


def max_marginals(theta: Float64, g: Float64) -> Float64:
    """Best weight with each variable off and on, (..., n, 2).

    ``g`` (..., n + 1) is the best weight of every count. With log-odds sorted t_1 >= ... >= t_n, for rank r::

        M(1) = max( max_{k >= r} g(k),  t_r + max_{1 <= k < r} (g(k) - t_k) )
        M(0) = max( max_{k < r} g(k),  -t_r + max_{r <= k < n} (g(k) + t_{k+1}) )
    """
    order = np.argsort(-theta, axis=-1)
    t = np.take_along_axis(theta, order, -1)
    none = np.full((*t.shape[:-1], 1), -math.inf)
    with np.errstate(invalid="ignore"):
        # inf - inf arises only where a count is impossible, so it means -inf
        removed = _impossible(g[..., 1:] - t)
        added = _impossible(g[..., :-1] + t)
        swapped_in = np.concatenate([none, np.maximum.accumulate(removed, axis=-1)[..., :-1]], -1)
        swapped_out = np.concatenate([_from_right(added)[..., 1:], none], -1)
        on = np.maximum(_from_right(g)[..., 1:], _impossible(t + swapped_in))
        off = np.maximum(np.maximum.accumulate(g, axis=-1)[..., :-1], _impossible(swapped_out - t))
    out = np.empty((*theta.shape, 2))
    np.put_along_axis(out[..., 0], order, off, -1)
    np.put_along_axis(out[..., 1], order, on, -1)
    return out


def _from_right(values: Float64) -> Float64:
    return np.maximum.accumulate(values[..., ::-1], axis=-1)[..., ::-1]


def _impossible(values: Float64) -> Float64:
    values[np.isnan(values)] = -math.inf
    return values


def free_value(theta: Float64) -> Float64:
    """Best weight of variables without any table, (...,)."""
    return np.asarray(np.where(np.isfinite(theta), np.maximum(theta, 0.0), 0.0).sum(-1))


def free_max_marginals(theta: Float64) -> Float64:
    """What a free variable loses when off and when on against its better value, (..., n, 2)."""
    return np.stack([-np.maximum(theta, 0.0), np.minimum(theta, 0.0)], -1)
