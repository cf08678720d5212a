"""One potential over a block of variables along a chain of partial sums (Barlow and Heidtmann 1984; Gail et al. 1981).

    prefix_{i+1}(c) = (1 - p_i) prefix_i(c) + p_i prefix_i(c - 1)
    suffix_i(c)     = (1 - p_i) suffix_{i+1}(c) + p_i suffix_{i+1}(c + 1),      suffix_n = f

O(n k) time and memory, where k is the largest possible count; when the smallest possible count is large, zeros are
counted instead. Sums of positive terms only. Plain numbers first; if they run out of range, logarithms. The compiled
engine has the plain numbers in C++ (cpp/flat/chain.cpp).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..answer import Answer
from .arithmetic import UNIT_ROUNDOFF, Direct, LogSpace


def solve_batch(xp: Any, nu: Any, log_f: Any) -> Answer:
    """Models (B, n) with tables (B, n + 1)."""
    n = nu.shape[-1]
    alive = np.asarray(xp.any(log_f > -math.inf, axis=0))
    counts = np.flatnonzero(alive)
    if len(counts) == 0:
        like = {"dtype": nu.dtype, "device": nu.device}
        dead = xp.full((nu.shape[0],), -math.inf, **like)
        return Answer(dead, xp.zeros(nu.shape, **like), None, xp.zeros((nu.shape[0],), **like))
    lowest, highest = int(counts[0]), int(counts[-1])
    if n - lowest < highest:
        mirrored = _capped(xp, -nu, xp.flip(log_f, axis=-1), n - lowest)
        return Answer(mirrored.log_mean, -mirrored.messages, None, mirrored.bound)
    return _capped(xp, nu, log_f, highest)


def _capped(xp: Any, nu: Any, log_f: Any, cap: int) -> Answer:
    table = log_f[:, : cap + 1]
    plain = _plain(xp, nu, table)
    if bool(xp.all(plain.bound < 1e-10)):
        return plain
    return _logarithmic(xp, nu, table)


def _plain(xp: Any, nu: Any, log_f: Any) -> Answer:
    n, space = nu.shape[1], Direct(xp)
    weights, top = space.weigh(xp.ones_like(log_f), log_f)
    log_mean, d0, d1, largest = _both_ways(space, nu, weights)
    doubtful = ~(log_mean > -math.inf) | xp.any(xp.isfinite(nu) & ((d0 <= 0.0) | (d1 <= 0.0)), axis=-1)
    messages = xp.log(d1) - xp.log(d0)
    reach, finite = (_farthest(xp, x) for x in (messages, nu))
    lost = n * 1e-300 * largest * xp.exp(xp.clip(reach + finite, 0.0, 700.0))
    bound = lost + UNIT_ROUNDOFF * (16.0 * math.sqrt(n + 1.0) + 4.0 * reach)
    bound = xp.where(doubtful | xp.isnan(bound), math.inf, bound)
    return Answer(log_mean + top, messages, None, bound)


def _logarithmic(xp: Any, nu: Any, log_f: Any) -> Answer:
    log_mean, d0, d1, _ = _both_ways(LogSpace(xp), nu, log_f)
    same, impossible = d0 == d1, log_mean == -math.inf
    messages = xp.where(same | impossible[:, None], 0.0, d1 - xp.where(same, 0.0, d0))
    size = 1.0 + _farthest(xp, log_f) + xp.sum(xp.where(xp.isfinite(nu), xp.abs(nu), 0.0), axis=-1)
    bound = xp.where(impossible, 0.0, 8.0 * UNIT_ROUNDOFF * math.sqrt(nu.shape[1] + 1.0) * size)
    return Answer(log_mean, messages, None, bound)


def _both_ways(space: Direct, nu: Any, f: Any) -> tuple[Any, Any, Any, Any]:
    """Log E[f], E[f] given each variable off and on, (B, n) each, up to a factor, and the largest entry of a suffix."""
    xp, (batch, n) = space.xp, nu.shape
    leaves, width = space.leaves(nu), f.shape[-1]
    nothing = space.zero + xp.zeros((batch, width), dtype=nu.dtype, device=nu.device)
    start = xp.where(xp.arange(width, device=nu.device) == 0, 0.0 if space.zero else 1.0, nothing)
    prefix = [start]
    for i in range(n):
        prefix.append(space.merge(leaves[:, i, :], prefix[-1], width))
    # Scaled to <prefix_i, suffix_i> = 1 at every i: then an entry of suffix above 1e290 could meet a lost prefix.
    suffix, log_mean = space.against(prefix[-1], f)
    largest = xp.max(suffix, axis=-1)
    off, on = [log_mean] * n, [log_mean] * n
    for i in range(n - 1, -1, -1):
        later = xp.concat([suffix[:, 1:], nothing[:, :1]], axis=-1)
        off[i] = space.total(space.times(prefix[i], suffix))
        on[i] = space.total(space.times(prefix[i], later))
        suffix = space.correlate(suffix, leaves[:, i, :], width)
        largest = xp.maximum(largest, xp.max(suffix, axis=-1))
    d0, d1 = (xp.stack(x, axis=-1) if n else xp.zeros_like(nu) for x in (off, on))
    return log_mean, d0, d1, largest


def _farthest(xp: Any, values: Any) -> Any:
    """The largest finite size along the last axis, 0 if there is none."""
    sizes = xp.where(xp.isfinite(values), xp.abs(values), 0.0)
    return xp.max(sizes, axis=-1) if values.shape[-1] else xp.sum(sizes, axis=-1)
