"""Kernels that answer for rows of flat models, from the waves that :mod:`.wave_kernels` prepares."""

from __future__ import annotations

import triton
import triton.language as tl

from .launch import Launched
from .wave_kernels import (
    _INF,
    _INFO,
    _PI,
    _PLANES,
    _frequencies,
    _inverse,
    _load_rows,
    _probabilities,
    _times,
)


@triton.jit
def _column(info, rows, count, place: tl.constexpr, other: tl.constexpr):
    return tl.load(info + rows.to(tl.int64) * _INFO + place, mask=rows < count, other=other)


@triton.jit
def _plane(wave, rows, kept, m, place: tl.constexpr, W: tl.constexpr):
    at = wave + rows.to(tl.int64) * (_PLANES * W) + place * W + m
    return tl.load(at, mask=kept, other=0.0)


@Launched
@triton.jit(do_not_specialize=["count"])
def solve(
    x, info, wave, out, log_z, bound, count, n, rounding,
    KEEP: tl.constexpr, W: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Marginals (B, n), log Z (B,) and a bound on the error of the posterior log-odds (B,)."""
    rows = tl.program_id(0) * R + tl.arange(0, R)
    t = _load_rows(x, rows, count, n, R, BLOCK)
    s = _column(info, rows, count, 0, 0.0)
    length = _column(info, rows, count, 2, 2.0)
    used = _frequencies(_column(info, rows, count, 3, 0.0), W)
    p, q, _ = _probabilities(t + s[:, None])
    r = p - q
    apart = tl.zeros((R, BLOCK), tl.float64)
    z = tl.zeros((R,), tl.float64)
    size = tl.zeros((R,), tl.float64)
    for m in range(0, tl.max(used)):
        kept = (rows < count) & (m < used)
        vers = _plane(wave, rows, kept, m, 0, W)
        sw = _plane(wave, rows, kept, m, 1, W)
        pr, pi = tl.reduce((1.0 - p * vers[:, None], p * sw[:, None]), 1, _times)
        if KEEP:
            at = wave + rows.to(tl.int64) * (_PLANES * W) + 6 * W + m
            tl.store(at, pr, mask=kept)
            tl.store(at + W, pi, mask=kept)
        gr, gi = _times(pr, pi, _plane(wave, rows, kept, m, 2, W), _plane(wave, rows, kept, m, 3, W))
        squared = tl.where(kept, _plane(wave, rows, kept, m, 11, W), 1.0)
        inverse = _inverse(squared[:, None] + r * r * (0.5 * vers)[:, None])
        apart += (r * (gr * vers)[:, None] - (gi * sw)[:, None]) * inverse
        z += gr
        size += (tl.abs(gr) + tl.abs(gi)) * _plane(wave, rows, kept, m, 10, W)
    near = tl.abs(t) < _INF
    on, off = z[:, None] + q * apart, z[:, None] - p * apart
    marginal = p * on / z[:, None]
    decided = _column(info, rows, count, 7, 0.0)
    marginal = tl.where(decided[:, None] != 0.0, tl.where(decided[:, None] > 0.0, 1.0, 0.0), marginal)
    marginal = tl.where(near, marginal, tl.where(t > 0, 1.0, 0.0))
    # Errors are relative to the smaller of the two sums of every variable.
    least = tl.min(tl.where(near & (decided[:, None] == 0.0), tl.minimum(on, off), z[:, None]), 1)
    least = tl.minimum(least, z)
    tail = _column(info, rows, count, 5, 0.0)
    error = tl.where(least > 0.0, (2.0 * rounding * size + tail) / tl.where(least > 0.0, least, 1.0), _INF)
    # Tilted log-odds are rounded.
    farthest = tl.max(tl.where(near, tl.abs(t) + tl.abs(s)[:, None], 0.0), 1)
    error += farthest * 2.220446049250313e-16
    d = tl.arange(0, BLOCK)
    inside = (rows[:, None] < count) & (d[None, :] < n)
    tl.store(out + rows[:, None].to(tl.int64) * n + d[None, :], marginal, mask=inside)
    positive = tl.where(z > 0.0, z, 1.0)
    tl.store(
        log_z + rows, _column(info, rows, count, 1, 0.0) + tl.log(2.0 * positive / length), mask=rows < count
    )
    tl.store(bound + rows, error, mask=rows < count)


@Launched
@triton.jit(do_not_specialize=["stride", "push_stride"])
def counts(
    table, push, info, wave, log_z, drift, out, n, stride, push_stride,
    MOVED: tl.constexpr, WITH_PUSH: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Probabilities of the counts (B, n + 1), or how they move; one program per row and stretch of counts.

    With g(c) = f(c) e^{-s c},

        b(c) = g(c) (2 / N) sum Re P_m e^{-i w c} / Z,
        b'(c) = b(c) (h(c) - drift) + g(c) (2 / N) sum Re P_m (T_m - V) e^{-i w c} / Z.
    """
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = info + row * _INFO
    s = tl.load(at)
    length = tl.load(at + 2)
    used = _frequencies(tl.load(at + 3), W)
    first = tl.load(at + 4).to(tl.int32)
    mass = tl.exp(tl.load(log_z + row) - tl.load(at + 1))
    period = 2 * length.to(tl.int32)
    angle = (1.0 / length) * _PI
    zr = tl.cos((c % period).to(tl.float64) * angle)
    zi = -tl.sin((c % period).to(tl.float64) * angle)
    tr = tl.cos((2 * c % period).to(tl.float64) * angle)
    ti = -tl.sin((2 * c % period).to(tl.float64) * angle)
    total = tl.zeros((BLOCK,), tl.float64)
    change = tl.zeros((BLOCK,), tl.float64)
    plane = wave + row * (_PLANES * W) + 6 * W
    for m in range(0, used):
        total += tl.load(plane + m) * zr - tl.load(plane + W + m) * zi
        if MOVED:
            change += tl.load(plane + 2 * W + m) * zr - tl.load(plane + 3 * W + m) * zi
        zr, zi = _times(zr, zi, tr, ti)
    log_f = tl.load(table + row * stride + c, mask=c <= n, other=-_INF)
    kept = (c >= first) & (c < first + length.to(tl.int32)) & (log_f > -_INF)
    exponent = tl.where(kept, log_f, 0.0) - s * (c - first).to(tl.float64) - tl.load(at + 6)
    weight = tl.where(kept, tl.exp(tl.where(kept, exponent, 0.0)), 0.0) * (2.0 / length) / mass
    answer = tl.maximum(weight * total, 0.0)
    if MOVED:
        moved = tl.zeros((BLOCK,), tl.float64) - tl.load(drift + row)
        if WITH_PUSH:
            moved += tl.load(push + row * push_stride + c, mask=kept & (c <= n), other=0.0)
        answer = answer * moved + weight * change
    tl.store(out + row * (n + 1) + c, answer, mask=c <= n)


@Launched
@triton.jit(do_not_specialize=["count"])
def tangent(
    x, v, info, wave, out, log_z, moved, bound, count, n, rounding,
    WITH_PUSH: tl.constexpr, KEEP: tl.constexpr, W: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Covariance products (B, n): how the marginals move when the log-odds move along v and the log-table along h.

    With a_im = p_i e^{iw} / (q_i + p_i e^{iw}), T_m = sum_j v_j (a_jm - p_j) and K_m = G_m T_m + P_m H_m,

        d mu_i = sum_m Re (K_m a_im + G_m v_i a_im (1 - a_im)) / Z - mu_i drift,    drift = sum_m Re K_m / Z.

    As G in D (see :mod:`.wave_kernels`), K gives ``sum Re K a = p drift Z + p q D(K)``; and, with u = |c + i r s|^2,

        sum Re G a (1 - a) = p q sum ((2 c^2 Re G + r sin w Im G) / u - Re G) / u.
    """
    rows = tl.program_id(0) * R + tl.arange(0, R)
    t = _load_rows(x, rows, count, n, R, BLOCK)
    near = tl.abs(t) < _INF
    d = tl.arange(0, BLOCK)
    inside = (rows[:, None] < count) & (d[None, :] < n)
    along = tl.load(v + rows[:, None].to(tl.int64) * n + d[None, :], mask=inside, other=0.0)
    along = tl.where(near, along, 0.0)
    s = _column(info, rows, count, 0, 0.0)
    used = _frequencies(_column(info, rows, count, 3, 0.0), W)
    p, q, _ = _probabilities(t + s[:, None])
    r = p - q
    pq = p * q
    weight = along * pq
    apart = tl.zeros((R, BLOCK), tl.float64)
    apart_moved = tl.zeros((R, BLOCK), tl.float64)
    bent = tl.zeros((R, BLOCK), tl.float64)
    z = tl.zeros((R,), tl.float64)
    drift = tl.zeros((R,), tl.float64)
    size = tl.zeros((R,), tl.float64)
    for m in range(0, tl.max(used)):
        kept = (rows < count) & (m < used)
        vers = _plane(wave, rows, kept, m, 0, W)
        sw = _plane(wave, rows, kept, m, 1, W)
        squared = tl.where(kept, _plane(wave, rows, kept, m, 11, W), 1.0)
        pr, pi = tl.reduce((1.0 - p * vers[:, None], p * sw[:, None]), 1, _times)
        gr, gi = _times(pr, pi, _plane(wave, rows, kept, m, 2, W), _plane(wave, rows, kept, m, 3, W))
        inverse = _inverse(squared[:, None] + r * r * (0.5 * vers)[:, None])
        tr = vers * tl.sum(weight * r * inverse, 1)
        ti = sw * tl.sum(weight * inverse, 1)
        if KEEP:
            moved_r, moved_i = _times(pr, pi, tr, ti)
            at = wave + rows.to(tl.int64) * (_PLANES * W) + 6 * W + m
            tl.store(at, pr, mask=kept)
            tl.store(at + W, pi, mask=kept)
            tl.store(at + 2 * W, moved_r, mask=kept)
            tl.store(at + 3 * W, moved_i, mask=kept)
        kr, ki = _times(gr, gi, tr, ti)
        if WITH_PUSH:
            hr, hi = _times(pr, pi, _plane(wave, rows, kept, m, 4, W), _plane(wave, rows, kept, m, 5, W))
            kr += hr
            ki += hi
        swing = r * (gi * sw)[:, None] + (2.0 * gr * squared)[:, None]
        apart += (r * (gr * vers)[:, None] - (gi * sw)[:, None]) * inverse
        apart_moved += (r * (kr * vers)[:, None] - (ki * sw)[:, None]) * inverse
        bent += (swing * inverse - gr[:, None]) * inverse
        drift += kr
        z += gr
        size += (tl.abs(gr) + tl.abs(gi)) * _plane(wave, rows, kept, m, 10, W)
    safe = tl.where(z > 0.0, z, 1.0)
    change = (pq * (apart_moved - apart * (drift / safe)[:, None]) + weight * bent) / safe[:, None]
    moves = near & (_column(info, rows, count, 7, 0.0) == 0.0)[:, None]
    tl.store(out + rows[:, None].to(tl.int64) * n + d[None, :], tl.where(moves, change, 0.0), mask=inside)
    tail = _column(info, rows, count, 5, 0.0)
    length = _column(info, rows, count, 2, 2.0)
    tl.store(
        log_z + rows, _column(info, rows, count, 1, 0.0) + tl.log(2.0 * safe / length), mask=rows < count
    )
    tl.store(moved + rows, drift / safe, mask=rows < count)
    tl.store(bound + rows, tl.where(z > 0.0, (2.0 * rounding * size + tail) / safe, _INF), mask=rows < count)
