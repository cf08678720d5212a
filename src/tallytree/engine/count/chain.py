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
    batch, n = nu.shape
    width = log_f.shape[-1]
    like = {"dtype": nu.dtype, "device": nu.device}
    leaves = Direct(xp).leaves(nu)
    off, on = leaves[..., 0], leaves[..., 1]
    gap = xp.zeros((batch, 1), **like)
    prefix = [xp.concat([gap + 1.0, xp.zeros((batch, width - 1), **like)], axis=-1)]
    for i in range(n):
        last = prefix[-1]
        shifted = xp.concat([gap, last[:, :-1]], axis=-1)
        prefix.append(off[:, i, None] * last + on[:, i, None] * shifted)
    top = xp.max(log_f, axis=-1)
    suffix = xp.exp(log_f - xp.where(top == -math.inf, 0.0, top)[:, None])
    value = xp.sum(prefix[-1] * suffix, axis=-1)
    log_mean = xp.log(value) + top
    # Scale so that <prefix_i, suffix_i> = 1 at every i: then an entry of suffix above 1e290 could meet a lost prefix.
    suffix = suffix / xp.where(value > 0.0, value, 1.0)[:, None]
    largest = xp.max(suffix, axis=-1)
    messages = [gap[:, 0]] * n
    doubtful = ~(value > 0.0)
    for i in range(n - 1, -1, -1):
        later = xp.concat([suffix[:, 1:], gap], axis=-1)
        d0 = xp.sum(prefix[i] * suffix, axis=-1)
        d1 = xp.sum(prefix[i] * later, axis=-1)
        messages[i] = xp.log(d1) - xp.log(d0)
        doubtful = doubtful | (xp.isfinite(nu[:, i]) & ((d0 <= 0.0) | (d1 <= 0.0)))
        suffix = off[:, i, None] * suffix + on[:, i, None] * later
        largest = xp.maximum(largest, xp.max(suffix, axis=-1))
    stacked = xp.stack(messages, axis=-1) if n else xp.zeros((batch, 0), **like)
    reach = xp.max(xp.where(xp.isfinite(stacked), xp.abs(stacked), 0.0), axis=-1) if n else gap[:, 0]
    finite = xp.max(xp.where(xp.isfinite(nu), xp.abs(nu), 0.0), axis=-1) if n else gap[:, 0]
    lost = n * 1e-300 * largest * xp.exp(xp.clip(reach + finite, 0.0, 700.0))
    bound = lost + UNIT_ROUNDOFF * (16.0 * math.sqrt(n + 1.0) + 4.0 * reach)
    return Answer(log_mean, stacked, None, xp.where(doubtful | xp.isnan(bound), math.inf, bound))


def _logarithmic(xp: Any, nu: Any, log_f: Any) -> Answer:
    batch, n = nu.shape
    width = log_f.shape[-1]
    like = {"dtype": nu.dtype, "device": nu.device}
    space = LogSpace(xp)
    leaves = space.leaves(nu)
    off, on = leaves[..., 0], leaves[..., 1]
    gap = xp.full((batch, 1), -math.inf, **like)
    prefix = [xp.concat([xp.zeros((batch, 1), **like), gap + xp.zeros((1, width - 1), **like)], axis=-1)]
    for i in range(n):
        last = prefix[-1]
        shifted = xp.concat([gap, last[:, :-1]], axis=-1)
        prefix.append(xp.logaddexp(off[:, i, None] + last, on[:, i, None] + shifted))
    log_mean = space.total(prefix[-1] + log_f)
    suffix, messages = log_f, [gap[:, 0]] * n
    for i in range(n - 1, -1, -1):
        later = xp.concat([suffix[:, 1:], gap], axis=-1)
        d0, d1 = space.total(prefix[i] + suffix), space.total(prefix[i] + later)
        same = d0 == d1
        messages[i] = xp.where(same, 0.0, d1 - xp.where(same, 0.0, d0))
        suffix = xp.logaddexp(off[:, i, None] + suffix, on[:, i, None] + later)
    stacked = xp.stack(messages, axis=-1) if n else xp.zeros((batch, 0), **like)
    impossible = log_mean == -math.inf
    size = 1.0 + xp.max(xp.where(xp.isfinite(log_f), xp.abs(log_f), 0.0), axis=-1)
    size = size + xp.sum(xp.where(xp.isfinite(nu), xp.abs(nu), 0.0), axis=-1)
    bound = xp.where(impossible, 0.0, 8.0 * UNIT_ROUNDOFF * math.sqrt(n + 1.0) * size)
    return Answer(log_mean, xp.where(impossible[:, None], 0.0, stacked), None, bound)
