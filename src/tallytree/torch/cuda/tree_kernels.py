"""Kernels for trees: merges of messages term by term, and the scaling that keeps them in the range of doubles.

Positive messages lose nothing to subtraction, so every entry keeps its relative accuracy as long as it does not
underflow; logarithms never do. A step of the schedule is a bucket of nodes; a pair is a node in a row of the batch.
`nodes` (count, 7) holds of every node where the messages a and b start and how long they are, where its table starts
(-1: none), its own length, and where its own upward message starts.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .flat_kernels import _INF
from .launch import kernel

_FIELDS = tl.constexpr(7)


@triton.jit
def _field(nodes, node, real, place: tl.constexpr):
    return tl.load(nodes + _FIELDS * node + place, mask=real, other=0)


@triton.jit
def _table_entries(table, first, c, kept, other: tl.constexpr):
    return tl.load(table + first[:, None] + c[None, :], mask=kept, other=other)


@kernel("pairs count a_row b_row out_row start width offset chunks")
def merge(
    a, b, out, nodes, pairs, count, a_row, b_row, out_row, start, width, offset, chunks,
    SIGN: tl.constexpr, ADD: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """``out[c] = sum_i a[i] b[c - SIGN i]`` from c = offset on: convolution for 1, correlation for -1.

    A program answers for C counts of P pairs. Both lie along the first axis of the grid, the only long one.
    """
    pair = (tl.program_id(0) // chunks).to(tl.int64) * P + tl.arange(0, P)
    begin = offset + tl.program_id(0) % chunks * C
    c = begin + tl.arange(0, C)
    real = pair < pairs
    row, node = pair // count, pair % count
    a_length = _field(nodes, node, real, 1).to(tl.int32)
    b_length = _field(nodes, node, real, 3).to(tl.int32)
    left = a + row * a_row + _field(nodes, node, real, 0)
    right = b + row * b_row + _field(nodes, node, real, 2)
    at = out + row * out_row + start + node * width
    total = tl.zeros((P, C), tl.float64)
    # Only terms that meet some of these counts.
    if SIGN > 0:
        low = tl.maximum(begin - tl.max(b_length) + 1, 0)
        high = tl.minimum(tl.max(a_length), begin + C)
    else:
        low = 0
        high = tl.minimum(tl.max(a_length), tl.max(b_length) - begin)
    for i in range(low, high):
        factor = tl.load(left + i, mask=real & (i < a_length), other=0.0)
        place = c[None, :] - SIGN * i
        inside = (place >= 0) & (place < b_length[:, None])
        total += factor[:, None] * tl.load(right[:, None] + place, mask=inside, other=0.0)
    own = _field(nodes, node, real, 5)
    total = tl.where(c[None, :] < own[:, None], total, 0.0)
    kept = real[:, None] & (c[None, :] < width)
    if ADD:
        total += tl.load(at[:, None] + c[None, :], mask=kept, other=0.0)
    tl.store(at[:, None] + c[None, :], total, mask=kept)


@kernel("pairs count a_row b_row table_row out_row start width chunks")
def log_merge(
    a, b, table, out, weighted, nodes, pairs, count, a_row, b_row, table_row, out_row, start, width, chunks,
    SIGN: tl.constexpr, UP: tl.constexpr, BEST: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """The same for logarithms, and the table: part of the answer on the way up, in `weighted` on the way down.

    With BEST the largest term stands for their sum.
    """
    pair = (tl.program_id(0) // chunks).to(tl.int64) * P + tl.arange(0, P)
    c = tl.program_id(0) % chunks * C + tl.arange(0, C)
    real = pair < pairs
    row, node = pair // count, pair % count
    a_length = _field(nodes, node, real, 1).to(tl.int32)
    b_length = _field(nodes, node, real, 3).to(tl.int32)
    left = a + row * a_row + _field(nodes, node, real, 0)
    right = b + row * b_row + _field(nodes, node, real, 2)
    longest = tl.max(a_length)
    top = tl.full((P, C), -_INF, tl.float64)
    for i in range(0, longest):
        top = tl.maximum(top, _log_term(left, right, a_length, b_length, c, i, real, SIGN))
    anchor = tl.where(top > -_INF, top, 0.0)
    total = tl.where(top > -_INF, 1.0, 0.0).to(tl.float64)
    if not BEST:
        total = tl.zeros((P, C), tl.float64)
        for i in range(0, longest):
            total += tl.exp(_log_term(left, right, a_length, b_length, c, i, real, SIGN) - anchor)
    own = _field(nodes, node, real, 5)
    possible = (total > 0.0) & (c[None, :] < own[:, None])
    answer = tl.where(possible, tl.log(tl.where(possible, total, 1.0)) + anchor, -_INF)
    first = _field(nodes, node, real, 4)
    holds = real[:, None] & (first >= 0)[:, None] & (c[None, :] < own[:, None])
    log_f = tl.load(table + (row * table_row + first)[:, None] + c[None, :], mask=holds, other=0.0)
    at = (row * out_row + start + node * width)[:, None] + c[None, :]
    kept = real[:, None] & (c[None, :] < width)
    if UP:
        tl.store(out + at, answer + log_f, mask=kept)
    else:
        tl.store(out + at, answer, mask=kept)
        tl.store(weighted + at, answer + log_f, mask=kept)


@triton.jit
def _log_term(left, right, a_length, b_length, c, i, real, SIGN: tl.constexpr):
    place = c[None, :] - SIGN * i
    inside = real[:, None] & (i < a_length)[:, None] & (place >= 0) & (place < b_length[:, None])
    first = tl.load(left + i, mask=real & (i < a_length), other=-_INF)
    return tl.where(inside, first[:, None] + tl.load(right[:, None] + place, mask=inside, other=-_INF), -_INF)


@kernel("pairs count out_row factor_row push_row start width mass_row mass_start")
def scale_up(
    out, motion, factor, push, nodes, log_mass, pairs, count, out_row, factor_row, push_row, start, width,
    mass_row, mass_start, MOTION: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Multiply upward messages by their tables and make them sum to one; the log of the sum is kept."""
    pair = tl.program_id(0).to(tl.int64) * P + tl.arange(0, P)
    real = pair < pairs
    row, node = pair // count, pair % count
    at = row * out_row + start + node * width
    first = _field(nodes, node, real, 4)
    own = _field(nodes, node, real, 5)
    mass = tl.zeros((P,), tl.float64)
    for begin in range(0, width, C):
        c = begin + tl.arange(0, C)
        kept = real[:, None] & (c[None, :] < own[:, None])
        f = _table_entries(factor, row * factor_row + first, c, kept & (first >= 0)[:, None], 1.0)
        mass += tl.sum(tl.load(out + at[:, None] + c[None, :], mask=kept, other=0.0) * f, 1)
    inverse = 1.0 / tl.where(mass > 0.0, mass, 1.0)
    for begin in range(0, width, C):
        c = begin + tl.arange(0, C)
        kept = real[:, None] & (c[None, :] < own[:, None])
        f = _table_entries(factor, row * factor_row + first, c, kept & (first >= 0)[:, None], 1.0)
        f = f * inverse[:, None]
        value = tl.load(out + at[:, None] + c[None, :], mask=kept, other=0.0) * f
        tl.store(out + at[:, None] + c[None, :], value, mask=kept)
        if MOTION:
            change = tl.load(motion + at[:, None] + c[None, :], mask=kept, other=0.0) * f
            h = _table_entries(push, row * push_row + first, c, kept & (first >= 0)[:, None], 0.0)
            tl.store(motion + at[:, None] + c[None, :], change + value * h, mask=kept)
    tl.store(log_mass + row * mass_row + mass_start + node, tl.log(mass), mask=real)


@kernel("pairs count up_row down_row factor_row push_row start width pair_row pair_start")
def scale_down(
    up, down, weighted, motion, weighted_motion, factor, push, nodes, pairing, reach,
    pairs, count, up_row, down_row, factor_row, push_row, start, width, pair_row, pair_start,
    MOTION: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Make downward messages have product one with the upward ones, and weight them with the tables for what is below.

    Kept are the log of the product, and the largest entry where the table allows a count.
    """
    pair = tl.program_id(0).to(tl.int64) * P + tl.arange(0, P)
    real = pair < pairs
    row, node = pair // count, pair % count
    at = row * down_row + start + node * width
    first = _field(nodes, node, real, 4)
    own = _field(nodes, node, real, 5)
    mine = row * up_row + _field(nodes, node, real, 6)
    product = tl.zeros((P,), tl.float64)
    largest = tl.zeros((P,), tl.float64)
    top = tl.zeros((P,), tl.float64)
    for begin in range(0, width, C):
        c = begin + tl.arange(0, C)
        kept = real[:, None] & (c[None, :] < own[:, None])
        f = _table_entries(factor, row * factor_row + first, c, kept & (first >= 0)[:, None], 1.0)
        d = tl.load(down + at[:, None] + c[None, :], mask=kept, other=0.0)
        product += tl.sum(d * tl.load(up + mine[:, None] + c[None, :], mask=kept, other=0.0), 1)
        largest = tl.maximum(largest, tl.max(tl.where(f > 0.0, d, 0.0), 1))
        top = tl.maximum(top, tl.max(d * f, 1))
    inverse = 1.0 / tl.where(product > 0.0, product, 1.0)
    above = 1.0 / tl.where(top > 0.0, top, 1.0)
    for begin in range(0, width, C):
        c = begin + tl.arange(0, C)
        kept = real[:, None] & (c[None, :] < own[:, None])
        f = _table_entries(factor, row * factor_row + first, c, kept & (first >= 0)[:, None], 1.0)
        d = tl.load(down + at[:, None] + c[None, :], mask=kept, other=0.0)
        tl.store(down + at[:, None] + c[None, :], d * inverse[:, None], mask=kept)
        value = d * f * above[:, None]
        tl.store(weighted + at[:, None] + c[None, :], value, mask=kept)
        if MOTION:
            change = tl.load(motion + at[:, None] + c[None, :], mask=kept, other=0.0)
            h = _table_entries(push, row * push_row + first, c, kept & (first >= 0)[:, None], 0.0)
            tl.store(motion + at[:, None] + c[None, :], change * inverse[:, None], mask=kept)
            tl.store(
                weighted_motion + at[:, None] + c[None, :], change * f * above[:, None] + value * h, mask=kept
            )
    place = row * pair_row + pair_start + node
    tl.store(pairing + place, tl.log(product), mask=real)
    tl.store(reach + place, largest * inverse, mask=real)
