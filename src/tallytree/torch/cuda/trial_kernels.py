"""A kernel that draws rows of flat models by trials: independent variables under the tilt, kept by their count.

With p_i = sigmoid(theta_i + s), a configuration of count c has the weight prod p^y q^(1-y) times f(c) e^{-s c} up to a
constant. So independent draws that are kept with probability g(c) = f(c) e^{-s c} / max g follow the law exactly. Under
a tilt that leads to the posterior a trial succeeds about once in 2.5 standard deviations of the count.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .launch import Launched
from .wave_kernels import _INF, _load_rows, _load_table


@triton.jit
def _bits(high, low):
    """53 random bits."""
    return ((high >> 6).to(tl.int64) << 27) | (low >> 5).to(tl.int64)


@triton.jit
def _kept(table, rows, stride, real, n, c, s, top, coin):
    """Whether trials of counts c (R,) are kept, by a coin of 53 bits."""
    c = tl.minimum(c, n)
    score = (
        tl.load(table + rows.to(tl.int64) * stride + c, mask=real, other=-_INF) - s * c.to(tl.float64) - top
    )
    return real & (coin.to(tl.float64) < tl.exp(score) * 9007199254740992.0)


@triton.jit
def _top(table, rows, batch, stride, n, s, R: tl.constexpr, BLOCK: tl.constexpr):
    """Largest log f(c) - s c over all counts; zero where no count is possible, and no trial is kept then."""
    top = tl.full((R,), -_INF, tl.float64)
    for start in range(0, n + 1, BLOCK):
        c = start + tl.arange(0, BLOCK)
        f = _load_table(table, rows, batch, stride, c, n) - s[:, None] * c[None, :].to(tl.float64)
        top = tl.maximum(top, tl.max(f, 1))
    return tl.where(top > -_INF, top, 0.0)


@Launched
@triton.jit(do_not_specialize=["draws", "batch", "stride", "rounds"])
def trials(
    x, table, tilt, seed, out, done, draws, batch, n, stride, rounds,
    R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Configurations (draws, n) of zeros and ones; draw number i belongs to row i % batch. Two trials a round."""
    copy = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    real = copy < draws
    rows = tl.where(real, copy % batch, batch).to(tl.int32)
    s = tl.load(tilt + rows, mask=real, other=0.0)
    t = _load_rows(x, rows, batch, n, R, BLOCK)
    e = tl.exp(-tl.abs(t + s[:, None]))
    p = tl.where(t + s[:, None] >= 0, 1.0, e) / (1.0 + e)
    # u < p for u of 53 bits; the scaling is exact, and what is certain stays so.
    limit = tl.ceil(p * 9007199254740992.0).to(tl.int64)
    top = _top(table, rows, batch, stride, n, s, R, BLOCK)
    place = tl.zeros((R, BLOCK), tl.uint32) + tl.arange(0, BLOCK)[None, :].to(tl.uint32)
    number = copy.to(tl.uint32)
    across = tl.zeros((R, BLOCK), tl.uint32) + number[:, None]
    key = tl.load(seed)
    chosen = tl.zeros((R, BLOCK), tl.int32)
    waiting = real
    step = 1
    while (step <= rounds) & (tl.max(waiting.to(tl.int32)) > 0):
        a, b, c, d = tl.philox(key, place, across, place * 0, place * 0 + step)
        one, other = (_bits(a, b) < limit).to(tl.int32), (_bits(c, d) < limit).to(tl.int32)
        a, b, c, d = tl.philox(key, number * 0, number, number * 0 + 1, number * 0 + step)
        take_one = waiting & _kept(table, rows, stride, real, n, tl.sum(one, 1), s, top, _bits(a, b))
        take_other = waiting & _kept(table, rows, stride, real, n, tl.sum(other, 1), s, top, _bits(c, d))
        found = tl.where(take_one[:, None], one, other)
        chosen = tl.where((take_one | take_other)[:, None], found, chosen)
        waiting = waiting & ~(take_one | take_other)
        step += 1
    d = tl.arange(0, BLOCK)
    inside = real[:, None] & (d[None, :] < n)
    tl.store(out + copy[:, None] * n + d[None, :], chosen.to(tl.uint8), mask=inside)
    tl.store(done + copy, (~waiting).to(tl.uint8), mask=real)
