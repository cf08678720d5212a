"""Kernels for one huge flat model: Chebyshev sums of all variables, and the map from a series to marginals.

With x_i = tanh((theta_i + s) / 2), the sums C_j = sum_i T_j(x_i) say all that the solver needs of the variables.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .wave_kernels import _INF, _inverse

SUMS = 12  # C_1 to C_8, log(1 + e^t), forced and free variables, and one to spare
TERMS = 12  # of the series of the map
_SUMS = tl.constexpr(SUMS)
_TERMS = tl.constexpr(TERMS)


@triton.jit
def _tanh_half(t):
    """e^-|t| and tanh(t / 2)."""
    e = tl.exp(-tl.abs(t))
    u = (1.0 - e) * _inverse(1.0 + e)
    return e, tl.where(t < 0, -u, u)


@triton.jit(do_not_specialize=["programs", "per"])
def reduce(x, tilt, out, n, programs, per, BLOCK: tl.constexpr):
    """Sums of stretches, (B, programs, 12), under the rows' tilts."""
    row = (tl.program_id(0) // programs).to(tl.int64)
    own = (tl.program_id(0) % programs).to(tl.int64)
    s = tl.load(tilt + row)
    zero = tl.zeros((BLOCK,), tl.float64)
    s1, s2, s3, s4, s5, s6, s7, s8 = zero, zero, zero, zero, zero, zero, zero, zero
    above = zero
    product = zero + 1.0
    forced = tl.zeros((BLOCK,), tl.int32)
    free = tl.zeros((BLOCK,), tl.int32)
    for k in range(0, per):
        place = (own * per + k) * BLOCK + tl.arange(0, BLOCK)
        inside = place < n
        t = tl.load(x + row * n + place, mask=inside, other=0.0) + s
        e, u = _tanh_half(t)
        near = inside & (tl.abs(t) < _INF)
        forced += (inside & (t == _INF)).to(tl.int32)
        free += near.to(tl.int32)
        # Factors 1 + e lie between 1 and 2: their product over a few hundred steps is far from the end of the range.
        product *= tl.where(near, 1.0 + e, 1.0)
        above += tl.where(near, tl.maximum(t, 0.0), 0.0)
        u = tl.where(inside, u, 0.0)
        w = 2.0 * u
        one = tl.where(inside, 1.0, 0.0)
        s1 += u
        b = w * u - one
        s2 += b
        a = w * b - u
        s3 += a
        b = w * a - b
        s4 += b
        a = w * b - a
        s5 += a
        b = w * a - b
        s6 += b
        a = w * b - a
        s7 += a
        b = w * a - b
        s8 += b
    at = out + (row * programs + own) * _SUMS
    tl.store(at, tl.sum(s1, 0))
    tl.store(at + 1, tl.sum(s2, 0))
    tl.store(at + 2, tl.sum(s3, 0))
    tl.store(at + 3, tl.sum(s4, 0))
    tl.store(at + 4, tl.sum(s5, 0))
    tl.store(at + 5, tl.sum(s6, 0))
    tl.store(at + 6, tl.sum(s7, 0))
    tl.store(at + 7, tl.sum(s8, 0))
    tl.store(at + 8, tl.sum(above + tl.log(product), 0))
    tl.store(at + 9, tl.sum(forced, 0).to(tl.float64))
    tl.store(at + 10, tl.sum(free, 0).to(tl.float64))
    tl.store(at + 11, 0.0)


@triton.jit(do_not_specialize=["programs"])
def spread(x, tilt, series, out, n, programs, BLOCK: tl.constexpr):
    """Marginals from the series of the ratio r(x) = d(1) / d(0): p r / (p r + q)."""
    row = (tl.program_id(0) // programs).to(tl.int64)
    place = (tl.program_id(0) % programs).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(x + row * n + place, mask=place < n, other=0.0) + tl.load(tilt + row)
    e, u = _tanh_half(t)
    w = 2.0 * u
    at = series + row * _TERMS
    b1 = tl.zeros((BLOCK,), tl.float64)
    b2 = b1
    for j in tl.static_range(_TERMS - 1):
        b1, b2 = w * b1 + (tl.load(at + (_TERMS - 1 - j)) - b2), b1
    r = u * b1 + (tl.load(at) - b2)
    on = tl.where(t >= 0, 1.0, e) * r
    off = tl.where(t >= 0, e, 1.0)
    tl.store(out + row * n + place, on * _inverse(on + off), mask=place < n)
