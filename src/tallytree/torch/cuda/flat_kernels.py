"""Kernels for rows of flat models: everything about a row of variables stays on the chip.

With a tilt s, p_i = sigmoid(theta_i + s), q_i = 1 - p_i, and frequencies w_m = (2 m + 1) pi / N, half a step off zero,

    P_m = prod_i (q_i + p_i e^{i w_m}),    F_m = sum_k f(k) e^{-s k - i w_m k},    G_m = P_m F_m,

the sums ``(2 / N) sum_{m < N/2} Re G_m`` count ``f(k) e^{-s k} P(k)`` exactly up to counts N apart, so that N need only
cover the window that holds the tilted law, and only frequencies with ``var (1 - cos w) < B`` matter: 64 always do.
Half a step off zero no frequency meets pi, where ``q + p e^{iw}`` vanishes for p = 1/2. Leaving one variable out,

    d_i(0) = sum Re G_m / (q_i + p_i e^{i w_m}),    d_i(1) = sum Re G_m e^{i w_m} / (q_i + p_i e^{i w_m}),

its posterior odds are p_i d_i(1) / (q_i d_i(0)). Half a turn back a factor is ``c + i r s`` with c = cos(w / 2),
s = sin(w / 2) and r = p - q, so that both follow from one sum of real numbers:

    d(1) = Z + q D,    d(0) = Z - p D,    D = sum (r (1 - cos w) Re G - sin w Im G) / |c + i r s|^2.

See ALGORITHMS 3.5 for windows and the certificate.

Layout: `info` (B, 8) holds s, log scale, N, M, first count, tail, log of the largest weight, what is decided (-1: all
off, 1: all on, 0: nothing); `wave` (B, 12, W), W frequencies, holds 1 - cos w, sin w, F, H (F with f h in the place of
f), P_m and P_m (T_m - V), real and imaginary parts, 1 / cos(w / 2), the most by which a factor left out can enlarge
a term, and cos(w / 2)^2.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

from .launch import kernel

INFO, PLANES, FREQUENCIES = 8, 12, 64  # numbers of a row, planes of its wave, frequencies that always suffice
EXPONENT = tl.constexpr(30.0)  # nats: what windows and frequencies may leave out, 1e-13 of the largest weight
_INFO = tl.constexpr(INFO)
_PLANES = tl.constexpr(PLANES)
_PI = tl.constexpr(3.141592653589793)
_INF = tl.constexpr(float("inf"))
_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
_STEPS = tl.constexpr(48)  # of the search for a tilt; five are usual


@triton.jit
def _times(ar, ai, br, bi):
    return ar * br - ai * bi, ar * bi + ai * br


@triton.jit
def _guess(size):
    """1 / size to 20 bits."""
    if _INTERPRETED:
        return (1.0 / size).to(tl.float32).to(tl.float64)
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f64 $0, $1;", "=d,d", [size], dtype=tl.float64, is_pure=True, pack=1
        )


@triton.jit
def _corrected(guess, size):
    """1 / size to 53 bits: with e the relative error of the guess, 1 / (1 - e) = 1 + e + e^2."""
    e = 1.0 - size * guess
    return guess + guess * (e + e * e)


@triton.jit
def _inverse(size):
    """1 / size of positive doubles, to 53 bits."""
    return _corrected(_guess(size), size)


@triton.jit
def _probabilities(t):
    """p, q and 1 + e^-|t| of log-odds, infinite ones included."""
    e = tl.exp(-tl.abs(t))
    large = _inverse(1.0 + e)
    small = e * large
    return tl.where(t >= 0, large, small), tl.where(t >= 0, small, large), 1.0 + e


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def _log_norms(t, near, grown, R: tl.constexpr, BLOCK: tl.constexpr):
    """Sums (R,) of log(1 + e^t), `grown` being 1 + e^-|t|: one logarithm for 512 factors, which stay below 2^512."""
    PART: tl.constexpr = BLOCK if BLOCK < 512 else 512
    factors = tl.reshape(tl.where(near, grown, 1.0), (R, BLOCK // PART, PART))
    logs = tl.sum(tl.log(tl.reduce(factors, 2, _product)), 1)
    return logs + tl.sum(tl.where(near, tl.maximum(t, 0.0), 0.0), 1)


@triton.jit
def _turns(odd, angle):
    """1 - cos w, sin w and cos(w / 2) of w = odd angle, odd < 2 pi / angle: all of them accurate near 0 and pi."""
    s = tl.sin(odd.to(tl.float64) * (0.5 * angle))
    c = tl.cos(odd.to(tl.float64) * (0.5 * angle))
    return 2.0 * s * s, 2.0 * s * c, c


@triton.jit
def _load_rows(x, rows, count, n, R: tl.constexpr, BLOCK: tl.constexpr):
    """Log-odds (R, BLOCK); places beyond the row are excluded variables."""
    d = tl.arange(0, BLOCK)
    inside = (rows[:, None] < count) & (d[None, :] < n)
    return tl.load(x + rows[:, None].to(tl.int64) * n + d[None, :], mask=inside, other=-_INF)


@triton.jit
def _load_table(table, rows, count, stride, c, n):
    inside = (rows[:, None] < count) & (c[None, :] <= n)
    return tl.load(table + rows[:, None].to(tl.int64) * stride + c[None, :], mask=inside, other=-_INF)


@triton.jit
def _target(table, rows, count, stride, n, forced, free, s, mean, var, R: tl.constexpr, BLOCK: tl.constexpr):
    """Posterior mean of the count where the tilted law is taken as normal; in single precision."""
    top = tl.full((R,), -_INF, tl.float32)
    total = tl.zeros((R,), tl.float32)
    moment = tl.zeros((R,), tl.float32)
    for start in range(0, n + 1, BLOCK):
        c = start + tl.arange(0, BLOCK)
        away = c[None, :].to(tl.float32) - mean[:, None]
        score = _load_table(table, rows, count, stride, c, n).to(tl.float32)
        score = score - s[:, None] * away - 0.5 * away * away / var[:, None]
        reachable = (c[None, :] >= forced[:, None]) & (c[None, :] <= (forced + free)[:, None])
        score = tl.where(reachable, score, -_INF)
        best = tl.maximum(top, tl.max(score, 1))
        anchor = tl.where(best > -_INF, best, 0.0)
        weight = tl.exp(score - anchor[:, None])
        kept = tl.exp(top - anchor)
        total = total * kept + tl.sum(weight, 1)
        moment = moment * kept + tl.sum(weight * away, 1)
        top = best
    return mean + tl.where(total > 0.0, moment / tl.where(total > 0.0, total, 1.0), 0.0)


@triton.jit
def _newton(s, gap, var, reach, below, above):
    """A Newton step of tilts that miss their targets by `gap`, inside a bracket; and the narrower bracket."""
    below = tl.where(gap > 0, s, below)
    above = tl.where(gap > 0, above, s)
    new = s + tl.minimum(tl.maximum(gap / tl.maximum(var, 1e-30), -reach), reach)
    both = (below > -_INF) & (above < _INF)
    half = 0.5 * (tl.where(both, below, 0.0) + tl.where(both, above, 0.0))
    return tl.where(both & ((new <= below) | (new >= above)), half, new), below, above


@triton.jit
def _tilt(
    x, table, start, rows, count, stride, n, low, high, forced, free,
    STARTED: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A tilt (R,) under which the variables count about as many as the posterior; Newton inside a bracket."""
    near = tl.abs(x) < _INF
    # Far log-odds stay far when they are rounded; only s has to be found, to a fraction of a standard deviation.
    y = tl.where(near, x, 0.0).to(tl.float32)
    base = forced.to(tl.float32)
    room = free.to(tl.float32)
    one = high == low
    middle = 0.5 * (low + high).to(tl.float32)
    share = tl.minimum(tl.maximum(middle - base, 0.3), tl.maximum(room - 0.3, 0.3))
    many = tl.maximum(room, 1.0)
    s = tl.where(one, tl.log(share / tl.maximum(room - share, 0.3)) - tl.sum(y, 1) / many, 0.0)
    if STARTED:
        s = tl.load(start + rows, mask=rows < count, other=0.0).to(tl.float32)
    below = tl.full((R,), -_INF, tl.float32)
    above = tl.full((R,), _INF, tl.float32)
    step = 0
    apart = 1.0
    reach = 8.0
    while (step < _STEPS) & (apart > 0.5):
        e = tl.exp(-tl.abs(y + s[:, None]))
        large = tl.where(near, 1.0 / (1.0 + e), 0.0)
        small = e * large
        mean = base + tl.sum(tl.where(y + s[:, None] >= 0, large, small), 1)
        var = tl.sum(large * small, 1)
        wanted = middle
        if tl.max(high - low) > 0:
            wanted = _target(table, rows, count, stride, n, forced, free, s, mean, var + 0.01, R, BLOCK)
        wanted = base + tl.minimum(tl.maximum(wanted - base, 0.3), tl.maximum(room - 0.3, 0.3))
        gap = wanted - mean
        done = (tl.abs(gap) <= 0.25 * tl.sqrt(var) + 0.05) | (free == 0)
        new, below, above = _newton(s, gap, var, reach, below, above)
        s = tl.where(done, s, new)
        apart = tl.max(tl.where(done, 0.0, 1.0))
        reach = reach * 2.0
        step += 1
    return tl.where(free > 0, s, 0.0).to(tl.float64)


@triton.jit
def _hull(table, rows, count, stride, n, forced, free, R: tl.constexpr, BLOCK: tl.constexpr):
    """Least and largest count (R,) that is possible; the first is above the second if none is."""
    low = tl.full((R,), 1073741824, tl.int32)
    high = tl.full((R,), -1, tl.int32)
    for start in range(0, n + 1, BLOCK):
        c = start + tl.arange(0, BLOCK)
        f = _load_table(table, rows, count, stride, c, n)
        possible = (f > -_INF) & (c[None, :] >= forced[:, None]) & (c[None, :] <= (forced + free)[:, None])
        low = tl.minimum(low, tl.min(tl.where(possible, c[None, :], 1073741824), 1))
        high = tl.maximum(high, tl.max(tl.where(possible, c[None, :], -1), 1))
    return low, high


@triton.jit
def _tops(
    table, rows, count, stride, n, s, mean, var, first, last, low, high, R: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Largest ``g(c) = log f(c) - s (c - first)`` from first to last; log of the sum of e^g(c) P(c) over the others."""
    inner = tl.full((R,), -_INF, tl.float64)
    top = tl.full((R,), -_INF, tl.float64)
    total = tl.zeros((R,), tl.float64)
    for start in range(tl.min(low), tl.max(high) + 1, BLOCK):
        c = start + tl.arange(0, BLOCK)
        f = _load_table(table, rows, count, stride, c, n)
        f = f - s[:, None] * (c[None, :] - first[:, None]).to(tl.float64)
        f = tl.where((c[None, :] >= low[:, None]) & (c[None, :] <= high[:, None]), f, -_INF)
        kept = (c[None, :] >= first[:, None]) & (c[None, :] <= last[:, None])
        inner = tl.maximum(inner, tl.max(tl.where(kept, f, -_INF), 1))
        away = tl.abs(c[None, :].to(tl.float64) - mean[:, None])
        left = tl.where(kept, -_INF, _left_out(f, away, var[:, None]))
        best = tl.maximum(top, tl.max(left, 1))
        anchor = tl.where(best > -_INF, best, 0.0)
        total = total * tl.exp(top - anchor) + tl.sum(tl.exp(left - anchor[:, None]), 1)
        top = best
    return inner, tl.where(total > 0.0, top + tl.log(tl.where(total > 0.0, total, 1.0)), -_INF)


@triton.jit
def _bounded(number):
    """An integer from 0 to 2^30 of any double; 0 of NaN."""
    return tl.where(number > 0.0, tl.minimum(number, 1073741824.0), 0.0).to(tl.int32)


@triton.jit
def _frequencies(number, W: tl.constexpr):
    """How many frequencies a row uses, which bounds loops over its wave."""
    return tl.minimum(_bounded(number), W)


@triton.jit
def _left_out(f, distance, var):
    """Add to g(c) the most that log P(c) can be at this distance from the mean: Bernstein, with one variable less."""
    r = tl.maximum(distance - 1.0, 0.0)
    return f - 0.5 * r * r / tl.maximum(var + r * (1.0 / 3.0), 1e-300)


@triton.jit
def _window(mean, var, forced, free, exponent, W: tl.constexpr):
    """N, M and the first count (R,) of a window that holds all but e^-exponent of the tilted law.

    Mean and variance are NaN where a log-odds is, so every number that becomes an integer is bounded before.
    """
    third = exponent / 3.0
    radius = tl.sqrt(var * (2.0 * exponent) + third * third) + third
    full = free + 1
    length = tl.minimum(_bounded(2.0 * radius) + 3, full)
    length = (length + 1) // 2 * 2
    first = _bounded(tl.floor(mean)) - length // 2
    first = tl.minimum(tl.maximum(first, forced), forced + tl.maximum(full - length, 0))
    # var (1 - cos w) = B: sin(w / 2) = sqrt(B / 2 var). The series of asin, with a last term that is right at 1.
    y = tl.minimum(tl.sqrt((1.0 / tl.maximum(var, 1e-3)) * (0.5 * exponent)), 1.0)
    y2 = y * y
    highest = 2.0 * y * (1.0 + y2 * (1.0 / 6.0 + y2 * (0.075 + y2 * 0.32912966012823)))
    used = _bounded(length.to(tl.float64) * highest / (2.0 * _PI)) + 1
    return length, tl.minimum(tl.minimum(used, length // 2), W), first


@triton.jit
def _keep(
    at, plane, real, cells, s, scale, length, used, first, inner, low, high, forced, free, outside, total, exponent,
    vers, sw, half, fr, fi, W: tl.constexpr,
):  # fmt: skip
    """Store the numbers of rows and their waves; `outside` is the weight of the counts that the window leaves out."""
    # What the window and the frequencies leave out, in units of the sum over m.
    outside = tl.where(length > free, 0.0, 2.0 * tl.exp(-exponent) + outside)
    beyond = tl.where(used * 2 >= length, 0.0, 4.0 * total * tl.exp(-exponent))
    decided = tl.where((high == low) & (low == forced + free), 1.0, 0.0)
    decided = tl.where((high == low) & (low == forced), -1.0, decided)
    tl.store(at, s, mask=real)
    tl.store(at + 1, scale, mask=real)
    tl.store(at + 2, length.to(tl.float64), mask=real)
    tl.store(at + 3, used.to(tl.float64), mask=real)
    tl.store(at + 4, first.to(tl.float64), mask=real)
    tl.store(at + 5, 0.5 * length.to(tl.float64) * (outside + beyond), mask=real)
    tl.store(at + 6, inner, mask=real)
    tl.store(at + 7, decided, mask=real)
    tl.store(plane, vers, mask=cells)
    tl.store(plane + W, sw, mask=cells)
    tl.store(plane + 2 * W, fr, mask=cells)
    tl.store(plane + 3 * W, fi, mask=cells)
    tl.store(plane + 10 * W, 1.0 / half, mask=cells)
    tl.store(plane + 11 * W, half * half, mask=cells)


@kernel("count stride push_stride")
def prepare(
    x, table, push, start, info, wave, count, n, stride, push_stride,
    MOVED: tl.constexpr, WITH_PUSH: tl.constexpr, STARTED: tl.constexpr,
    W: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Tilt, window and the transforms F (and H) of every row."""
    rows = tl.program_id(0) * R + tl.arange(0, R)
    t = _load_rows(x, rows, count, n, R, BLOCK)
    near = tl.abs(t) < _INF
    forced = tl.sum((t == _INF).to(tl.int32), 1)
    free = tl.sum(near.to(tl.int32), 1)
    low, high = _hull(table, rows, count, stride, n, forced, free, R, BLOCK)
    s = _tilt(t, table, start, rows, count, stride, n, low, high, forced, free, STARTED, R, BLOCK)
    p, q, grown = _probabilities(t + s[:, None])
    mean = tl.sum(p, 1)
    var = tl.sum(p * q, 1)
    exponent = tl.full((R,), EXPONENT, tl.float64)
    if MOVED:  # of many counts frequencies leave out more, and motions are certified to more digits
        exponent += tl.log(tl.maximum((high - low).to(tl.float64), 1.0))
    length, used, begin = _window(mean, var, forced, free, exponent, W)
    first = tl.maximum(low, begin)
    last = tl.minimum(high, begin + length - 1)
    inner, outer = _tops(table, rows, count, stride, n, s, mean, var, first, last, low, high, R, BLOCK)
    norms = _log_norms(t + s[:, None], near, grown, R, BLOCK)
    scale = norms + s * (forced - first).to(tl.float64) + inner

    m = tl.arange(0, W)
    odd = 2 * m[None, :] + 1
    angle = (1.0 / length.to(tl.float64)) * _PI
    vers, sw, half = _turns(odd, angle[:, None])
    cw = 1.0 - vers
    # e^{-i w k} from the first count on: its angle is a multiple of pi / N, so that whole turns leave no error.
    place = (odd * first[:, None]) % (2 * length[:, None])
    zr = tl.cos(place.to(tl.float64) * angle[:, None])
    zi = -tl.sin(place.to(tl.float64) * angle[:, None])
    fr = tl.zeros((R, W), tl.float64)
    fi = tl.zeros((R, W), tl.float64)
    hr = tl.zeros((R, W), tl.float64)
    hi = tl.zeros((R, W), tl.float64)
    total = tl.zeros((R,), tl.float64)
    for j in range(0, tl.max(last - first) + 1):
        c = first + j
        inside = (rows < count) & (c <= last)
        at = rows.to(tl.int64) * stride + c
        log_f = tl.load(table + at, mask=inside, other=-_INF)
        weight = tl.exp(log_f - s * j - tl.where(inner > -_INF, inner, 0.0))
        total += weight
        fr += weight[:, None] * zr
        fi += weight[:, None] * zi
        if WITH_PUSH:
            h = tl.load(push + rows.to(tl.int64) * push_stride + c, mask=inside & (log_f > -_INF), other=0.0)
            hr += (weight * h)[:, None] * zr
            hi += (weight * h)[:, None] * zi
        turned = zr * cw + zi * sw
        zi = zi * cw - zr * sw
        zr = turned
    outside = tl.exp(tl.minimum(outer - tl.where(inner > -_INF, inner, 0.0), 600.0))
    kept = rows < count
    plane = wave + rows[:, None].to(tl.int64) * (_PLANES * W) + m[None, :]
    _keep(
        info + rows.to(tl.int64) * _INFO, plane, kept, kept[:, None], s, scale, length, used, first, inner,
        low, high, forced, free, outside, total, exponent, vers, sw, half, fr, fi, W,
    )  # fmt: skip
    if WITH_PUSH:
        tl.store(plane + 4 * W, hr, mask=kept[:, None])
        tl.store(plane + 5 * W, hi, mask=kept[:, None])


@triton.jit
def _leave_one_out(r, gr, gi, vers, sw, inverse):
    """A term of D, the difference of the sums without a variable, given whether it is on."""
    return (r * (gr * vers) - gi * sw) * inverse


@triton.jit
def _second(r, gr, gi, sw, squared, inverse):
    """A term of sum Re G a (1 - a) / (p q), see :func:`solve`."""
    return ((r * (gi * sw) + 2.0 * gr * squared) * inverse - gr) * inverse


@triton.jit
def _posterior(t, p, q, apart, z, decided):
    """Marginals, and the smaller of the two sums of every variable, to which errors are relative."""
    near = tl.abs(t) < _INF
    on, off = z + q * apart, z - p * apart
    marginal = tl.where(decided != 0.0, tl.where(decided > 0.0, 1.0, 0.0), p * on / z)
    marginal = tl.where(near, marginal, tl.where(t > 0, 1.0, 0.0))
    return marginal, tl.where(near, tl.where(decided == 0.0, tl.minimum(on, off), z), z)


@triton.jit
def _column(info, rows, count, place: tl.constexpr, other: tl.constexpr):
    return tl.load(info + rows.to(tl.int64) * _INFO + place, mask=rows < count, other=other)


@triton.jit
def _plane(wave, rows, kept, m, place: tl.constexpr, W: tl.constexpr):
    at = wave + rows.to(tl.int64) * (_PLANES * W) + place * W + m
    return tl.load(at, mask=kept, other=0.0)


@kernel("count")
def solve(
    x, v, info, wave, out, log_z, drifts, bound, count, n, rounding,
    MOVED: tl.constexpr, WITH_PUSH: tl.constexpr, KEEP: tl.constexpr,
    W: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Marginals (B, n), log Z (B,) and a bound on the error of the posterior log-odds (B,); or, with MOVED, motion.

    That are covariance products (B, n): how the marginals move when the log-odds move along v and the log-table along
    h. With a_im = p_i e^{iw} / (q_i + p_i e^{iw}), T_m = sum_j v_j (a_jm - p_j) and K_m = G_m T_m + P_m H_m,

        d mu_i = sum_m Re (K_m a_im + G_m v_i a_im (1 - a_im)) / Z - mu_i drift,    drift = sum_m Re K_m / Z.

    As G in D as above, K gives ``sum Re K a = p drift Z + p q D(K)``; and, with u = |c + i r s|^2,

        sum Re G a (1 - a) = p q sum ((2 c^2 Re G + r sin w Im G) / u - Re G) / u.
    """
    rows = tl.program_id(0) * R + tl.arange(0, R)
    t = _load_rows(x, rows, count, n, R, BLOCK)
    near = tl.abs(t) < _INF
    d = tl.arange(0, BLOCK)
    inside = (rows[:, None] < count) & (d[None, :] < n)
    place = rows[:, None].to(tl.int64) * n + d[None, :]
    s = _column(info, rows, count, 0, 0.0)
    length = _column(info, rows, count, 2, 2.0)
    used = _frequencies(_column(info, rows, count, 3, 0.0), W)
    p, q, _ = _probabilities(t + s[:, None])
    r = p - q
    pq = p * q
    weight = pq
    if MOVED:
        along = tl.where(near, tl.load(v + place, mask=inside, other=0.0), 0.0)
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
        pr, pi = tl.reduce((1.0 - p * vers[:, None], p * sw[:, None]), 1, _times)
        at = wave + rows.to(tl.int64) * (_PLANES * W) + 6 * W + m
        if KEEP:
            tl.store(at, pr, mask=kept)
            tl.store(at + W, pi, mask=kept)
        gr, gi = _times(pr, pi, _plane(wave, rows, kept, m, 2, W), _plane(wave, rows, kept, m, 3, W))
        squared = tl.where(kept, _plane(wave, rows, kept, m, 11, W), 1.0)
        inverse = _inverse(squared[:, None] + r * r * (0.5 * vers)[:, None])
        apart += _leave_one_out(r, gr[:, None], gi[:, None], vers[:, None], sw[:, None], inverse)
        z += gr
        size += (tl.abs(gr) + tl.abs(gi)) * _plane(wave, rows, kept, m, 10, W)
        if MOVED:
            tr = vers * tl.sum(weight * r * inverse, 1)
            ti = sw * tl.sum(weight * inverse, 1)
            if KEEP:
                moved_r, moved_i = _times(pr, pi, tr, ti)
                tl.store(at + 2 * W, moved_r, mask=kept)
                tl.store(at + 3 * W, moved_i, mask=kept)
            kr, ki = _times(gr, gi, tr, ti)
            if WITH_PUSH:
                hr, hi = _times(pr, pi, _plane(wave, rows, kept, m, 4, W), _plane(wave, rows, kept, m, 5, W))
                kr += hr
                ki += hi
            apart_moved += _leave_one_out(r, kr[:, None], ki[:, None], vers[:, None], sw[:, None], inverse)
            bent += _second(r, gr[:, None], gi[:, None], sw[:, None], squared[:, None], inverse)
            drift += kr
    decided = _column(info, rows, count, 7, 0.0)
    tail = _column(info, rows, count, 5, 0.0)
    safe = tl.where(z > 0.0, z, 1.0)
    if MOVED:
        change = (pq * (apart_moved - apart * (drift / safe)[:, None]) + weight * bent) / safe[:, None]
        answer = tl.where(near & (decided == 0.0)[:, None], change, 0.0)
        error = tl.where(z > 0.0, (2.0 * rounding * size + tail) / safe, _INF)
        tl.store(drifts + rows, drift / safe, mask=rows < count)
    else:
        answer, smaller = _posterior(t, p, q, apart, z[:, None], decided[:, None])
        least = tl.minimum(tl.min(smaller, 1), z)
        error = tl.where(
            least > 0.0, (2.0 * rounding * size + tail) / tl.where(least > 0.0, least, 1.0), _INF
        )
        # Tilted log-odds are rounded.
        farthest = tl.max(tl.where(near, tl.abs(t) + tl.abs(s)[:, None], 0.0), 1)
        error += farthest * 2.220446049250313e-16
    tl.store(out + place, answer, mask=inside)
    tl.store(
        log_z + rows, _column(info, rows, count, 1, 0.0) + tl.log(2.0 * safe / length), mask=rows < count
    )
    tl.store(bound + rows, error, mask=rows < count)


@kernel("stride push_stride")
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
