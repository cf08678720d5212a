"""Kernels for draws of counts, or the best counts, down a tree: one draw per lane, 53 random bits each."""

from __future__ import annotations

import triton
import triton.language as tl

from .launch import Launched

_INF = tl.constexpr(float("inf"))


@triton.jit
def _uniform(seed, lane, stream):
    """Uniform doubles in [0, 1): 53 random bits of Philox, counted by lane and stream."""
    place = lane.to(tl.uint32)
    zero = place * 0
    high, low, _, _ = tl.philox(seed, place, (lane >> 32).to(tl.uint32), zero + stream, zero)
    # 26 and 27 bits: every value is exact and below one.
    return (high >> 6).to(tl.float64) * 2.0**-26 + (low >> 5).to(tl.float64) * 2.0**-53


@Launched
@triton.jit(do_not_specialize=["draws", "count", "batch", "row_cells", "n_nodes", "stream"])
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
