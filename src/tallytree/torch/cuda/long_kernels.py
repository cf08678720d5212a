"""Kernels for flat models too long for one program: the passes of :mod:`.flat_kernels` in stretches of variables.

`info` and `wave` are laid out as there. A stretch of variables reduces to its moments and to its products over all
frequencies; products multiply, so that the stretches of a row are independent until the map at the end.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .flat_kernels import (
    _INF,
    _INFO,
    _PI,
    _PLANES,
    EXPONENT,
    _bounded,
    _frequencies,
    _inverse,
    _keep,
    _leave_one_out,
    _left_out,
    _newton,
    _posterior,
    _probabilities,
    _second,
    _times,
    _turns,
    _window,
)
from .launch import kernel

MOMENTS = 5  # sums of p, of p q, of log(1 + e^t), forced and free variables
_MOMENTS = tl.constexpr(MOMENTS)
_STEPS = tl.constexpr(64)


@triton.jit
def _variables(x, row, place, n):
    return tl.load(x + row * n + place, mask=place < n, other=-_INF)


@kernel("stride")
def start(x, low, high, out, n, stride, SAMPLE: tl.constexpr):
    """A first tilt (B,) from a sample of the variables, towards the middle of the possible counts nearest the mean."""
    row = tl.program_id(0).to(tl.int64)
    t = _variables(x, row, tl.arange(0, SAMPLE).to(tl.int64) * stride, n)
    near = tl.abs(t) < _INF
    y = tl.where(near, t, 0.0).to(tl.float32)
    taken = tl.sum((tl.arange(0, SAMPLE).to(tl.int64) * stride < n).to(tl.float32), 0)
    weight = n.to(tl.float32) / taken
    base = weight * tl.sum((t == _INF).to(tl.float32), 0)
    room = tl.maximum(weight * tl.sum(near.to(tl.float32), 0), 1.0)
    least, most = tl.load(low + row).to(tl.float32), tl.load(high + row).to(tl.float32)
    s = tl.full((), 0.0, tl.float32)
    below = tl.full((), -_INF, tl.float32)
    above = tl.full((), _INF, tl.float32)
    reach = 8.0
    going = 1
    step = 0
    while (step < _STEPS) & (going > 0):
        e = tl.exp(-tl.abs(y + s))
        p = tl.where(near, tl.where(y + s >= 0, 1.0, e) / (1.0 + e), 0.0)
        mean = base + weight * tl.sum(p, 0)
        var = weight * tl.sum(tl.where(near, e / ((1.0 + e) * (1.0 + e)), 0.0), 0)
        # The nearest possible count, kept inside the variables that the sample has seen.
        wanted = tl.minimum(tl.maximum(mean, least), most)
        wanted = base + tl.minimum(tl.maximum(wanted - base, 0.3), tl.maximum(room - 0.3, 0.3))
        gap = wanted - mean
        going = (tl.abs(gap) > 0.1 * tl.sqrt(var) + 0.02).to(tl.int32)
        new, below, above = _newton(s, gap, var, reach, below, above)
        s = tl.where(going > 0, new, s)
        reach = reach * 2.0
        step += 1
    tl.store(out + row, s.to(tl.float64))


@kernel("programs per")
def moments(x, tilt, out, n, programs, per, BLOCK: tl.constexpr):
    """Moments of stretches, (B, programs, 5), under the rows' tilts."""
    row = (tl.program_id(0) // programs).to(tl.int64)
    own = (tl.program_id(0) % programs).to(tl.int64)
    s = tl.load(tilt + row)
    mean = tl.zeros((BLOCK,), tl.float64)
    var = tl.zeros((BLOCK,), tl.float64)
    norm = tl.zeros((BLOCK,), tl.float64)
    forced = tl.zeros((BLOCK,), tl.float64)
    free = tl.zeros((BLOCK,), tl.float64)
    for k in range(0, per):
        t = _variables(x, row, (own * per + k) * BLOCK + tl.arange(0, BLOCK), n)
        near = tl.abs(t) < _INF
        p, q, grown = _probabilities(t + s)
        mean += p
        var += p * q
        norm += tl.where(near, tl.maximum(t + s, 0.0) + tl.log(grown), 0.0)
        forced += (t == _INF).to(tl.float64)
        free += near.to(tl.float64)
    at = out + (row * programs + own) * _MOMENTS
    tl.store(at, tl.sum(mean, 0))
    tl.store(at + 1, tl.sum(var, 0))
    tl.store(at + 2, tl.sum(norm, 0))
    tl.store(at + 3, tl.sum(forced, 0))
    tl.store(at + 4, tl.sum(free, 0))


@triton.jit
def _total(part, row, programs, place: tl.constexpr, BLOCK: tl.constexpr):
    """Sum of one moment over the stretches of a row."""
    total = tl.zeros((BLOCK,), tl.float64)
    for begin in range(0, programs, BLOCK):
        own = begin + tl.arange(0, BLOCK)
        total += tl.load(part + (row * programs + own) * _MOMENTS + place, mask=own < programs, other=0.0)
    return tl.sum(total, 0)


@kernel("programs")
def settle(part, tilt, low, high, programs, BLOCK: tl.constexpr):
    """A Newton step of every tilt towards the nearest possible count."""
    row = tl.program_id(0).to(tl.int64)
    mean = _total(part, row, programs, 0, BLOCK)
    var = _total(part, row, programs, 1, BLOCK)
    forced = _total(part, row, programs, 3, BLOCK)
    free = _total(part, row, programs, 4, BLOCK)
    wanted = tl.minimum(tl.maximum(mean, tl.load(low + row)), tl.load(high + row))
    wanted = tl.minimum(tl.maximum(wanted, forced + 0.3), tl.maximum(forced + free - 0.3, forced + 0.3))
    step = tl.minimum(tl.maximum((wanted - mean) / tl.maximum(var, 1e-30), -8.0), 8.0)
    tl.store(tilt + row, tl.load(tilt + row) + tl.where(free > 0.0, step, 0.0))


@kernel("programs")
def gather(parts, info, wave, log_z, total, error, programs, rounding, W: tl.constexpr, BLOCK: tl.constexpr):
    """Products of all stretches, G into planes 4 and 5, log Z, the sum of Re G and the error of any sum like it."""
    row = tl.program_id(0).to(tl.int64)
    m = tl.arange(0, W)
    pr = tl.full((W,), 1.0, tl.float64)
    pi = tl.zeros((W,), tl.float64)
    for begin in range(0, programs, BLOCK):
        own = begin + tl.arange(0, BLOCK)
        at = parts + (row * programs + own)[:, None] * (2 * W) + 2 * m[None, :]
        inside = (own < programs)[:, None]
        re = tl.load(at, mask=inside, other=1.0)
        im = tl.load(at + 1, mask=inside, other=0.0)
        qr, qi = tl.reduce((re, im), 0, _times)
        pr, pi = _times(pr, pi, qr, qi)
    at = info + row * _INFO
    plane = wave + row * (_PLANES * W) + m
    kept = m < _frequencies(tl.load(at + 3), W)
    gr, gi = _times(pr, pi, tl.load(plane + 2 * W), tl.load(plane + 3 * W))
    gr = tl.where(kept, gr, 0.0)
    gi = tl.where(kept, gi, 0.0)
    tl.store(plane + 4 * W, gr)
    tl.store(plane + 5 * W, gi)
    z = tl.sum(gr, 0)
    size = tl.sum(tl.where(kept, (tl.abs(gr) + tl.abs(gi)) * tl.load(plane + 10 * W), 0.0), 0)
    tl.store(total + row, z)
    tl.store(error + row, 2.0 * rounding * size + tl.load(at + 5))
    positive = tl.where(z > 0.0, z, 1.0)
    tl.store(log_z + row, tl.load(at + 1) + tl.log(2.0 * positive / tl.load(at + 2)))


@triton.jit
def _place(part, low, high, row, programs, W: tl.constexpr, BLOCK: tl.constexpr):
    """Window of a row from its moments: mean, variance, log norm, forced, free, exponent, N, M, and four counts."""
    mean = _total(part, row, programs, 0, BLOCK)
    var = _total(part, row, programs, 1, BLOCK)
    norm = _total(part, row, programs, 2, BLOCK)
    forced = _bounded(_total(part, row, programs, 3, BLOCK))
    free = _bounded(_total(part, row, programs, 4, BLOCK))
    # One count has a probability of about 1 / sd, so that what is left out has to be smaller by that.
    exponent = tl.log(1.0 + var) * 0.5 + 2.0 + EXPONENT
    length, used, start = _window(mean, var, forced, free, exponent, W)
    least = tl.maximum(_bounded(tl.load(low + row)), forced)
    most = tl.minimum(tl.load(high + row).to(tl.int32), forced + free)
    first = tl.maximum(least, start)
    last = tl.minimum(most, start + length - 1)
    return mean, var, norm, forced, free, exponent, length, used, least, most, first, last


@kernel("programs stride stretches")
def tops(
    table, part, tilt, low, high, out, n, programs, stride, stretches,
    TABLE: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What the window keeps and leaves out of every stretch of counts, (B, stretches, 3).

    With ``g(c) = log f(c) - s (c - first)``: the largest g(c) inside, the largest g(c) + log P(c) outside, and the sum
    of their exponentials relative to that.
    """
    row = (tl.program_id(0) // stretches).to(tl.int64)
    own = tl.program_id(0) % stretches
    mean, var, _, _, _, _, _, _, least, most, first, last = _place(part, low, high, row, programs, W, BLOCK)
    c = own * BLOCK + tl.arange(0, BLOCK)
    possible = (c >= least) & (c <= most) & (c <= n)
    f = tl.zeros((BLOCK,), tl.float64)
    if TABLE:
        f = tl.load(table + row * stride + c, mask=possible, other=0.0)
    f = tl.where(possible, f - tl.load(tilt + row) * (c - first).to(tl.float64), -_INF)
    kept = (c >= first) & (c <= last)
    left = tl.where(kept, -_INF, _left_out(f, tl.abs(c.to(tl.float64) - mean), var))
    top = tl.max(left, 0)
    at = out + (row * stretches + own) * 3
    tl.store(at, tl.max(tl.where(kept, f, -_INF), 0))
    tl.store(at + 1, top)
    tl.store(at + 2, tl.sum(tl.exp(left - tl.where(top > -_INF, top, 0.0)), 0))


@kernel("programs stride stretches")
def waves(
    table, part, top, tilt, low, high, info, wave, n, programs, stride, stretches,
    TABLE: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Window and transform F of every row from its moments and :func:`tops`. Without a table f is 1."""
    row = tl.program_id(0).to(tl.int64)
    place = _place(part, low, high, row, programs, W, BLOCK)
    _, _, norm, forced, free, exponent, length, used, least, most, first, last = place
    s = tl.load(tilt + row)
    inner = tl.full((), -_INF, tl.float64)
    outer = tl.full((), -_INF, tl.float64)
    weight_out = tl.full((), 0.0, tl.float64)
    for begin in range(0, stretches, BLOCK):
        own = begin + tl.arange(0, BLOCK)
        at = top + (row * stretches + own) * 3
        inner = tl.maximum(inner, tl.max(tl.load(at, mask=own < stretches, other=-_INF), 0))
        highest = tl.load(at + 1, mask=own < stretches, other=-_INF)
        best = tl.maximum(outer, tl.max(highest, 0))
        base = tl.where(best > -_INF, best, 0.0)
        sums = tl.load(at + 2, mask=own < stretches, other=0.0)
        weight_out = weight_out * tl.exp(outer - base) + tl.sum(sums * tl.exp(highest - base), 0)
        outer = best
    m = tl.arange(0, W)
    odd = 2 * m + 1
    angle = (1.0 / length.to(tl.float64)) * _PI
    vers, sw, half = _turns(odd, angle)
    cw = 1.0 - vers
    turns = ((odd.to(tl.int64) * first) % (2 * length)).to(tl.float64)
    zr = tl.cos(turns * angle)
    zi = -tl.sin(turns * angle)
    fr = tl.zeros((W,), tl.float64)
    fi = tl.zeros((W,), tl.float64)
    total = tl.full((), 0.0, tl.float64)
    anchor = tl.where(inner > -_INF, inner, 0.0)
    for j in range(0, last - first + 1):
        log_f = tl.full((), 0.0, tl.float64)
        if TABLE:
            log_f = tl.load(table + row * stride + first + j)
        weight = tl.exp(log_f - s * j - anchor)
        total += weight
        fr += weight * zr
        fi += weight * zi
        zr, zi = _times(zr, zi, cw, -sw)
    outside = weight_out * tl.exp(tl.minimum(tl.where(weight_out > 0.0, outer, -_INF) - anchor, 600.0))
    scale = norm + s * (forced - first).to(tl.float64) + inner
    _keep(
        info + row * _INFO, wave + row * (_PLANES * W) + m, row >= 0, m >= 0, s, scale, length, used, first, inner,
        least, most, forced, free, outside, total, exponent, vers, sw, half, fr, fi, W,
    )  # fmt: skip


@kernel("programs")
def products(
    x, v, info, wave, out, n, programs,
    MOVED: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Products over a stretch for every frequency, (B, programs, W, 2); or with MOVED sums of v_i a_im instead."""
    row = (tl.program_id(0) // programs).to(tl.int64)
    own = (tl.program_id(0) % programs).to(tl.int64)
    place = own * BLOCK + tl.arange(0, BLOCK)
    t = _variables(x, row, place, n)
    p, q, _ = _probabilities(t + tl.load(info + row * _INFO))
    along = tl.zeros((BLOCK,), tl.float64)
    if MOVED:
        along = tl.load(v + row * n + place, mask=(place < n) & (tl.abs(t) < _INF), other=0.0)
    plane = wave + row * (_PLANES * W)
    at = out + (row * programs + own) * (2 * W)
    r = p - q
    along *= p * q
    for m in range(0, _frequencies(tl.load(info + row * _INFO + 3), W)):
        vers, sw = tl.load(plane + m), tl.load(plane + W + m)
        if MOVED:
            # a - p: the sums of v p are the same for all frequencies and cancel.
            inverse = _inverse(tl.load(plane + 11 * W + m) + r * r * (0.5 * vers))
            answer_r = vers * tl.sum(along * r * inverse, 0)
            answer_i = sw * tl.sum(along * inverse, 0)
        else:
            answer_r, answer_i = tl.reduce((1.0 - p * vers, p * sw), 0, _times)
        tl.store(at + 2 * m, answer_r)
        tl.store(at + 2 * m + 1, answer_i)


@kernel("programs")
def spread(
    x, v, info, wave, total, out, least, n, programs, drift,
    MOVED: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Marginals of a stretch from G in planes 4 and 5, and the least leave-one-out sum; or with MOVED their motion.

    `total` (B,) is the sum of Re G. Planes 6 and 7 hold T_m less the sum of v p for the motion.
    """
    row = (tl.program_id(0) // programs).to(tl.int64)
    own = (tl.program_id(0) % programs).to(tl.int64)
    place = own * BLOCK + tl.arange(0, BLOCK)
    t = _variables(x, row, place, n)
    near = tl.abs(t) < _INF
    at = info + row * _INFO
    p, q, _ = _probabilities(t + tl.load(at))
    decided = tl.load(at + 7)
    z = tl.load(total + row)
    plane = wave + row * (_PLANES * W)
    r = p - q
    apart = tl.zeros((BLOCK,), tl.float64)
    apart_moved = tl.zeros((BLOCK,), tl.float64)
    bent = tl.zeros((BLOCK,), tl.float64)
    for m in range(0, _frequencies(tl.load(at + 3), W)):
        vers, sw, squared = tl.load(plane + m), tl.load(plane + W + m), tl.load(plane + 11 * W + m)
        gr, gi = tl.load(plane + 4 * W + m), tl.load(plane + 5 * W + m)
        inverse = _inverse(squared + r * r * (0.5 * vers))
        apart += _leave_one_out(r, gr, gi, vers, sw, inverse)
        if MOVED:
            kr, ki = _times(gr, gi, tl.load(plane + 6 * W + m), tl.load(plane + 7 * W + m))
            apart_moved += _leave_one_out(r, kr, ki, vers, sw, inverse)
            bent += _second(r, gr, gi, sw, squared, inverse)
    if MOVED:
        along = tl.load(v + row * n + place, mask=(place < n) & near, other=0.0)
        answer = p * q * (apart_moved - apart * tl.load(drift + row) + along * bent) / z
        answer = tl.where(near, tl.where(decided == 0.0, answer, 0.0), 0.0)
    else:
        answer, smaller = _posterior(t, p, q, apart, z, decided)
        tl.store(least + row * programs + own, tl.min(smaller, 0))
    tl.store(out + row * n + place, answer, mask=place < n)


@kernel("programs")
def certify(least, total, error, bound, programs, BLOCK: tl.constexpr):
    """Error over the least of the leave-one-out sums (B, programs) and of Z; infinite where that is not positive."""
    row = tl.program_id(0).to(tl.int64)
    z = tl.load(total + row)
    smallest = tl.zeros((BLOCK,), tl.float64) + z
    for first in range(0, programs, BLOCK):
        place = first + tl.arange(0, BLOCK)
        part = tl.load(least + row * programs + place, mask=place < programs, other=_INF)
        smallest = tl.minimum(smallest, part)
    side = tl.min(smallest, 0)
    sound = (side > 0.0) & (z > 0.0)
    found = tl.where(sound, tl.load(error + row) / tl.where(sound, side, 1.0), _INF)
    tl.store(bound + row, found)
