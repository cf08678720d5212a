"""One potential over a block of variables, by sums of positive terms along a chain or as a mixture of exponentials.

Along a chain of partial sums (Barlow and Heidtmann 1984; Gail et al. 1981):

    prefix_{i+1}(c) = (1 - p_i) prefix_i(c) + p_i prefix_i(c - 1)
    suffix_i(c)     = (1 - p_i) suffix_{i+1}(c) + p_i suffix_{i+1}(c + 1),      suffix_n = f

O(n k) time and memory, where k is the largest possible count; when the smallest possible count is large, zeros are
counted instead. Plain numbers first; if they run out of range, logarithms. The compiled engine has the plain numbers in
C++ (cpp/flat/single_model.cpp).

A potential f(c) = sum_j a_j r_j^c needs no convolution at all:

    E f(z) = sum_j a_j prod_d (1 - p_d + p_d r_j),

and what the rest of the model says to variable d is the same sum without its factor. Cost O(n r) for r terms. Terms may
be negative or complex (parity, modulo), so the certificate is the cancellation in the sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Float64
from ..answer import Answer
from ..arithmetic import UNIT_ROUNDOFF, Direct, LogSpace
from ..log_sums import anchor
from .tree_pass import leaf_values, resized


@np.errstate(all="ignore")  # log 0 and inf - inf are meant; the certificate catches what matters
def by_chain(nu: Float64, log_f: Float64) -> Answer:
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


# -- mixtures -------------------------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def by_mixture(nu: Float64, coefficients: NDArray[Any], rates: NDArray[Any]) -> Answer:
    """Models (B, n) that share one mixture."""
    batch, n = nu.shape
    off, on = expit(-nu), expit(nu)
    factors = [off + on * (rate.real if rate.imag == 0.0 else rate) for rate in map(complex, rates.tolist())]
    blanks = [factor == 0.0 for factor in factors]
    phases = [np.angle(factor) for factor in factors]
    logs = [np.log(np.where(blank, 1.0, np.abs(factor))) for blank, factor in zip(blanks, factors)]
    totals, turns, holes = ([part.sum(axis=1) for part in parts] for parts in (logs, phases, blanks))
    top = np.max(totals, axis=0)

    value, spread = np.zeros(batch), np.zeros(batch)
    up, down, up_spread, down_spread = (np.zeros((batch, n)) for _ in range(4))
    for j, (a, rate) in enumerate(zip(coefficients.tolist(), rates.tolist())):
        a, rate = complex(a), complex(rate)
        whole = np.where(holes[j] == 0, np.exp(totals[j] - top), 0.0)
        value += whole * _real_part(a, turns[j])
        spread += abs(a) * whole
        others = holes[j][:, None] - blanks[j]
        size = np.exp(np.clip(totals[j][:, None] - top[:, None] - logs[j], -745.0, 700.0))
        rest = np.where(others == 0, size, 0.0)
        turn = turns[j][:, None] - phases[j]
        down += rest * _real_part(a, turn)
        up += rest * _real_part(a * rate, turn)
        down_spread += abs(a) * rest
        up_spread += abs(a * rate) * rest

    sound = (value > 0.0) & ((up > 0.0) & (down > 0.0)).all(axis=1)
    amp = spread / np.where(value > 0.0, value, 1.0)
    for sums, sizes in ((up, up_spread), (down, down_spread)):
        amp = np.maximum(amp, (sizes / np.where(sums > 0.0, sums, 1.0)).max(axis=1, initial=0.0))
    length = np.abs([top, *totals]).max(axis=0)
    bound = UNIT_ROUNDOFF * amp * (16.0 + 4.0 * math.sqrt(n) + 4.0 * length)
    log_mean = np.log(np.where(value > 0.0, value, 1.0)) + top
    messages = np.log(np.where(up > 0.0, up, 1.0)) - np.log(np.where(down > 0.0, down, 1.0))
    return Answer(log_mean, messages, None, np.where(sound, bound, math.inf))


def _real_part(a: complex, angle: Float64) -> Float64:
    """Real part of ``a e^(i angle)``; imaginary parts cancel between conjugate terms."""
    return np.asarray(a.real * np.cos(angle) - a.imag * np.sin(angle))
