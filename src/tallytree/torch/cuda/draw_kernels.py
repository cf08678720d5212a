"""Kernels for draws: of counts, or the best counts, down a tree, one per lane; and of rows of flat models by trials.

Trials draw independent variables under the tilt s. With p_i = sigmoid(theta_i + s), a configuration of count c has the
weight prod p^y q^(1-y) times f(c) e^{-s c} up to a constant. So independent draws that are kept with probability
g(c) = f(c) e^{-s c} / max g follow the law exactly. Under a tilt that leads to the posterior a trial succeeds about
once in 2.5 standard deviations of the count.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .flat_kernels import _INF, _load_rows, _load_table
from .launch import kernel


@triton.jit
def _uniform(seed, lane, stream):
    """Uniform doubles in [0, 1): 53 random bits of Philox, counted by lane and stream."""
    place = lane.to(tl.uint32)
    zero = place * 0
    high, low, _, _ = tl.philox(seed, place, (lane >> 32).to(tl.uint32), zero + stream, zero)
    # 26 and 27 bits: every value is exact and below one.
    return (high >> 6).to(tl.float64) * 2.0**-26 + (low >> 5).to(tl.float64) * 2.0**-53


@kernel("draws count batch row_cells n_nodes stream")
def split(
    storage, z, children, seed, draws, count, batch, row_cells, n_nodes, stream,
    HEAD: tl.constexpr, BEST: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """Counts of the children of a bucket of nodes, given the nodes' own: P(i) ~ up_a(i) up_b(z - i), in logarithms.

    With BEST the likeliest instead of a draw. `children` (count, 7): node, child a, child b, where their messages start
    and how long they are. One draw per lane. With HEAD child a is a root, or a leaf without a parent, whose own message
    decides: it has no sibling.
    """
    lane = tl.program_id(0).to(tl.int64) * L + tl.arange(0, L)
    real = lane < draws
    node, copy = lane % count, lane // count
    row = copy % batch
    entry = children + 7 * node
    own = tl.load(entry, mask=real, other=0)
    a, b = tl.load(entry + 1, mask=real, other=0), tl.load(entry + 2, mask=real, other=0)
    a_at = storage + row * row_cells + tl.load(entry + 3, mask=real, other=0)
    a_length = tl.load(entry + 4, mask=real, other=0)
    b_at = storage + row * row_cells + tl.load(entry + 5, mask=real, other=0)
    b_length = tl.load(entry + 6, mask=real, other=0)
    total_count = a_length - 1
    if not HEAD:
        total_count = tl.load(z + copy * n_nodes + own, mask=real, other=0).to(tl.int64)
    low = tl.maximum(total_count - b_length + 1, 0)
    high = tl.minimum(total_count, a_length - 1)
    longest = tl.max(tl.where(real, high - low, 0)) + 1
    top = tl.full((L,), -_INF, tl.float64)
    best = low
    for j in range(0, longest):
        term = _log_term(a_at, b_at, low + j, high, total_count, real, HEAD)
        best = tl.where(term > top, low + j, best)
        top = tl.maximum(top, term)
    chosen = best
    if not BEST:
        top = tl.where(top > -_INF, top, 0.0)
        mass = tl.zeros((L,), tl.float64)
        for j in range(0, longest):
            mass += tl.exp(_log_term(a_at, b_at, low + j, high, total_count, real, HEAD) - top)
        aim = mass * _uniform(tl.load(seed), lane, stream)
        chosen = low
        passed = tl.zeros((L,), tl.float64)
        last = low
        for j in range(0, longest):
            weight = tl.exp(_log_term(a_at, b_at, low + j, high, total_count, real, HEAD) - top)
            passed += weight
            # The first place at which the sum exceeds the aim; round-off may leave none, then the last possible one.
            last = tl.where(weight > 0.0, low + j, last)
            chosen = tl.where(passed <= aim, low + j + 1, chosen)
        chosen = tl.minimum(chosen, last)
    tl.store(z + copy * n_nodes + a, chosen.to(tl.int32), mask=real)
    if not HEAD:
        tl.store(z + copy * n_nodes + b, (total_count - chosen).to(tl.int32), mask=real)


@triton.jit
def _log_term(a_at, b_at, i, high, total_count, real, HEAD: tl.constexpr):
    inside = real & (i <= high)
    term = tl.load(a_at + i, mask=inside, other=-_INF)
    if not HEAD:
        term += tl.load(b_at + total_count - i, mask=inside, other=-_INF)
    return term


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


@kernel("draws batch stride rounds")
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
