"""One potential over a block of variables along a chain of partial sums (Barlow and Heidtmann 1984; Gail et al. 1981).

    prefix_{i+1}(c) = (1 - p_i) prefix_i(c) + p_i prefix_i(c - 1)
    suffix_i(c)     = (1 - p_i) suffix_{i+1}(c) + p_i suffix_{i+1}(c + 1),      suffix_n = f

O(n k) time and memory, where k is the largest possible count; when the smallest possible count is large, zeros are
counted instead. Sums of positive terms only. Plain numbers first; if they run out of range, logarithms. The compiled
engine has the found numbers in C++ (cpp/flat/chain.cpp).
"""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64
from ..answer import Answer
from ..arithmetic import UNIT_ROUNDOFF, Direct, LogSpace
from ..log_sums import anchor
from .tree_pass import leaf_values, resized


def solve_batch(nu: Float64, log_f: Float64) -> Answer:
    """Models (B, n) with tables (B, n + 1)."""
    n = nu.shape[-1]
    counts = np.flatnonzero((log_f > -math.inf).any(axis=0))
    if len(counts) == 0:
        return Answer(np.full(len(nu), -math.inf), np.zeros(nu.shape), None, np.zeros(len(nu)))
    lowest, highest = int(counts[0]), int(counts[-1])
    if n - lowest < highest:
        mirrored = _capped(-nu, log_f[:, ::-1], n - lowest)
        return Answer(mirrored.log_mean, -mirrored.messages, None, mirrored.bound)
    return _capped(nu, log_f, highest)


def _capped(nu: Float64, log_f: Float64, cap: int) -> Answer:
    table = log_f[:, : cap + 1]
    found = _direct(nu, table)
    return found if bool((found.bound < 1e-10).all()) else _logarithmic(nu, table)


def _direct(nu: Float64, log_f: Float64) -> Answer:
    top = anchor(log_f)
    log_mean, d0, d1, largest = _both_ways(Direct(), nu, np.exp(log_f - top))
    doubtful = ~(log_mean > -math.inf) | (np.isfinite(nu) & ((d0 <= 0.0) | (d1 <= 0.0))).any(axis=1)
    messages = np.log(d1) - np.log(d0)
    reach, finite = _farthest(messages), _farthest(nu)
    lost = nu.shape[1] * 1e-300 * largest * np.exp(np.clip(reach + finite, 0.0, 700.0))
    bound = lost + UNIT_ROUNDOFF * (16.0 * math.sqrt(nu.shape[1] + 1.0) + 4.0 * reach)
    bound = np.where(doubtful | np.isnan(bound), math.inf, bound)
    return Answer(log_mean + top[:, 0], messages, None, bound)


def _logarithmic(nu: Float64, log_f: Float64) -> Answer:
    log_mean, d0, d1, _ = _both_ways(LogSpace(), nu, log_f)
    same, impossible = d0 == d1, log_mean == -math.inf
    messages = np.where(same | impossible[:, None], 0.0, d1 - np.where(same, 0.0, d0))
    size = 1.0 + _farthest(log_f) + np.where(np.isfinite(nu), np.abs(nu), 0.0).sum(axis=1)
    bound = np.where(impossible, 0.0, 8.0 * UNIT_ROUNDOFF * math.sqrt(nu.shape[1] + 1.0) * size)
    return Answer(log_mean, messages, None, bound)


def _both_ways(ar: Direct, nu: Float64, f: Float64) -> tuple[Float64, Float64, Float64, Float64]:
    """Log E[f], E[f] given each variable off and on, (B, n) each, up to a factor, and the largest entry of a suffix."""
    n, width = nu.shape[1], f.shape[1]
    leaves = leaf_values(ar, nu.T)[None, None, None]  # messages have the axes of the arithmetic
    table = f.T[None, None, None]

    def inner(a: Float64, b: Float64) -> Float64:
        return np.asarray(ar.total(ar.times(a, b), 3)[0, 0, 0])

    start = np.full(table.shape, ar.zero)
    start[..., 0, :] = ar.one
    prefix = [start]
    for i in range(n):
        prefix.append(ar.product(leaves[..., i, :], prefix[-1])[..., :width, :])
    # Scaled to <prefix_i, suffix_i> = 1 at every i: then an entry of suffix above 1e290 could meet a lost prefix.
    log_mean = ar.log(inner(prefix[-1], table))
    suffix = ar.scale(table, np.where(np.isfinite(log_mean), log_mean, 0.0))
    largest = suffix.max(axis=3)[0, 0, 0]
    off, on = np.zeros((n, len(nu))), np.zeros((n, len(nu)))
    for i in range(n - 1, -1, -1):
        longer = resized(suffix, width + 1, ar.zero)
        off[i], on[i] = inner(prefix[i], suffix), inner(prefix[i], longer[..., 1:, :])
        suffix = ar.adjoint(longer, leaves[..., i, :], suffix)
        largest = np.maximum(largest, suffix.max(axis=3)[0, 0, 0])
    return log_mean, off.T, on.T, largest


def _farthest(values: Float64) -> Float64:
    """The largest finite size along the last axis, 0 if there is none."""
    return np.asarray(np.where(np.isfinite(values), np.abs(values), 0.0).max(axis=-1, initial=0.0))
