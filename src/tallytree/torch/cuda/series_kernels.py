"""Kernels for one huge flat model: power sums of all variables, and the map from a short series to marginals.

With E_i = e^(theta_i + s) and v_i = 1 / (1 + E_i) - 1/2, the sums of v_i^j say all that the solver needs of the
variables. Both passes are bounded by memory only if a variable costs few operations in double precision: one
exponential without branches, one reciprocal, one multiplication for the logarithm of a product.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .flat_kernels import _INF, _corrected, _guess
from .launch import kernel

POWERS = 8
SUMS = POWERS + 2  # sums of v to v^8, of log(1 + E), and the number of variables that are near
TERMS = 12  # of the series of the map
_SUMS = tl.constexpr(SUMS)
_TERMS = tl.constexpr(TERMS)
_LOG2_E = tl.constexpr(1.4426950408889634)
_LOG_2 = tl.constexpr(0.6931471805599453)
_ROUNDER = tl.constexpr(
    6755399441055744.0
)  # 1.5 * 2^52: its sum with y ends in the bits of the integer nearest y


@triton.jit
def _upper(y):
    """The upper half of the bits of doubles."""
    return (y.to(tl.int64, bitcast=True) >> 32).to(tl.int32)


@triton.jit
def _is_near(upper):
    """Whether |y| < 1000, so that 2^y is far from the ends of the range; neither infinities nor NaN are."""
    return (upper & 0x7FFFFFFF) < 0x408F4000


@triton.jit
def _power_of_two(y):
    """2^y for |y| <= 1000, within 1e-15: a polynomial between -1/2 and 1/2, exact at 0, and the exponent's bits."""
    shifted = y + _ROUNDER
    f = y - (shifted - _ROUNDER)
    p = f * 7.070977866508138e-09 + 1.0205905413765595e-07
    p = p * f + 1.3215451633221434e-06
    p = p * f + 1.5252672924850737e-05
    p = p * f + 1.5403530424776529e-04
    p = p * f + 1.3333558200794592e-03
    p = p * f + 9.618129107618665e-03
    p = p * f + 5.550410866465167e-02
    p = p * f + 2.4022650695910075e-01
    p = p * f + 6.931471805599462e-01
    p = p * f + 1.0
    bits = p.to(tl.int64, bitcast=True) + (shifted.to(tl.int64, bitcast=True) << 52)
    return bits.to(tl.float64, bitcast=True)


@kernel("programs per")
def reduce(x, tilt, out, n, programs, per, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    """Sums of stretches, (B, programs, 10), under the rows' tilts; WHOLE where all stretches are full.

    What is not near counts as y = 0, where v is 0 and log2(1 + E) is 1.
    """
    row = (tl.program_id(0) // programs).to(tl.int64)
    own = (tl.program_id(0) % programs).to(tl.int64)
    shift = tl.load(tilt + row) * _LOG2_E
    zero = tl.zeros((BLOCK,), tl.float64)
    s1, s2, s3, s4, s5, s6, s7, s8 = zero, zero, zero, zero, zero, zero, zero, zero
    product = zero + 1.0
    exponents = tl.zeros((BLOCK,), tl.int32)
    number = tl.zeros((BLOCK,), tl.int32)
    for k in range(0, per):
        place = (own * per + k) * BLOCK + tl.arange(0, BLOCK)
        if WHOLE:
            y = tl.load(x + row * n + place) * _LOG2_E + shift
        else:
            y = tl.load(x + row * n + place, mask=place < n, other=-_INF) * _LOG2_E + shift
        near = _is_near(_upper(y))
        number += near.to(tl.int32)
        size = _power_of_two(tl.where(near, y, 0.0)) + 1.0
        # Exponents add up as integers; mantissas between 1 and 2 multiply, a few hundred of them at most.
        bits = size.to(tl.int64, bitcast=True)
        exponents += (bits >> 52).to(tl.int32)
        product *= ((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).to(tl.float64, bitcast=True)
        v = _corrected(_guess(size), size) - 0.5
        square = v * v
        cube = square * v
        fourth = square * square
        s1 += v
        s2 += square
        s3 += cube
        s4 += fourth
        s5 += square * cube
        s6 += cube * cube
        s7 += fourth * cube
        s8 += fourth * fourth
    at = out + (row * programs + own) * _SUMS
    tl.store(at, tl.sum(s1, 0))
    tl.store(at + 1, tl.sum(s2, 0))
    tl.store(at + 2, tl.sum(s3, 0))
    tl.store(at + 3, tl.sum(s4, 0))
    tl.store(at + 4, tl.sum(s5, 0))
    tl.store(at + 5, tl.sum(s6, 0))
    tl.store(at + 6, tl.sum(s7, 0))
    tl.store(at + 7, tl.sum(s8, 0))
    known = tl.sum(number, 0)
    # Exponents are stored with 1023 more, and those of what is not near are one.
    turns = tl.sum(exponents, 0) - 1024 * per * BLOCK + known
    tl.store(at + 8, turns.to(tl.float64) * _LOG_2 + tl.sum(tl.log(product), 0))
    tl.store(at + 9, known.to(tl.float64))


@kernel("programs per")
def infinities(x, out, n, programs, per, BLOCK: tl.constexpr):
    """Numbers of forced and of excluded variables of stretches, (B, programs, 2)."""
    row = (tl.program_id(0) // programs).to(tl.int64)
    own = (tl.program_id(0) % programs).to(tl.int64)
    forced = tl.zeros((BLOCK,), tl.int32)
    excluded = tl.zeros((BLOCK,), tl.int32)
    for k in range(0, per):
        place = (own * per + k) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + row * n + place, mask=place < n, other=0.0)
        forced += (value == _INF).to(tl.int32)
        excluded += (value == -_INF).to(tl.int32)
    at = out + (row * programs + own) * 2
    tl.store(at, tl.sum(forced, 0))
    tl.store(at + 1, tl.sum(excluded, 0))


@kernel("programs")
def spread(x, tilt, series, out, n, programs, SHORT: tl.constexpr, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    """Marginals E r / (1 + E r) from the ratio r = d(1) / d(0) of leave-one-out sums.

    Short series are r = a + b q + c q^2 with b and c so small that 20 bits of q = 1 / (1 + E) suffice; others are
    Chebyshev series in 1 - 2 q.
    """
    row = (tl.program_id(0) // programs).to(tl.int64)
    place = (tl.program_id(0) % programs).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    shift = tl.load(tilt + row) * _LOG2_E
    if WHOLE:
        y = tl.load(x + row * n + place) * _LOG2_E + shift
    else:
        y = tl.load(x + row * n + place, mask=place < n, other=0.0) * _LOG2_E + shift
    upper = _upper(y)
    near = _is_near(upper)
    power = _power_of_two(tl.where(near, y, 0.0))
    size = power + 1.0
    at = series + row * _TERMS
    if SHORT:
        q = _guess(size)
        r = (tl.load(at + 2) * q + tl.load(at + 1)) * q + tl.load(at)
    else:
        u = 1.0 - 2.0 * _corrected(_guess(size), size)
        w = 2.0 * u
        b1 = tl.zeros((BLOCK,), tl.float64)
        b2 = b1
        for j in tl.static_range(_TERMS - 1):
            b1, b2 = w * b1 + (tl.load(at + (_TERMS - 1 - j)) - b2), b1
        r = u * b1 + (tl.load(at) - b2)
    odds = power * r
    whole = odds + 1.0
    answer = odds * _corrected(_guess(whole), whole)
    answer = tl.where(near, answer, tl.where(upper > 0, 1.0, 0.0))
    if WHOLE:
        tl.store(out + row * n + place, answer)
    else:
        tl.store(out + row * n + place, answer, mask=place < n)
