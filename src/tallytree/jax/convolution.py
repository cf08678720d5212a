"""Convolution and correlation of plain non-negative numbers: nothing is subtracted, nothing cancels.

    convolve(a, b)[k]  = sum_j a[j] b[k - j]
    correlate(p, s)[i] = sum_j p[i + j] s[j]

Both work on the last axis, by array code term by term, or by kernels on CUDA devices. They are linear in either
argument, which is all that derivatives need, and kernels of each transpose those of the other:

    convolve(., b)^T = correlate(., b),    correlate(., s)^T = convolve(., s),    correlate(p, .)^T = correlate(p, .)

A backward pass is traced when the caller's flag, not ours, says which floats there are; transposed dynamic slices and
gathers then make 32-bit zeros. So loops compute values by slices at running places, and tangents by shifting one place
at a time. Short operands need no loop: their products are laid out in an array and summed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .stages import dispatched, on_cpu, solved

FEWEST = 16  # terms that a kernel is worth; fewer are one expression for XLA


def convolve(a: Any, b: Any) -> Any:
    """All sums ``a[j] b[k - j]``."""
    if on_cpu() or min(a.shape[-1], b.shape[-1]) < FEWEST:
        return direct_convolve(a, b)
    return _by_rows(_convolve, a, b)


def correlate(p: Any, s: Any) -> Any:
    """All sums ``p[i + j] s[j]``, i from 0 to ``len(p) - len(s)``."""
    if on_cpu() or s.shape[-1] < FEWEST:
        return direct_correlate(p, s)
    return _by_rows(_correlate, p, s)


def _by_rows(merge: Any, a: Any, b: Any) -> Any:
    """`merge` of matrices of messages."""
    lead = common(a, b)
    rows = math.prod(lead)
    found = merge(*(jnp.broadcast_to(x, (*lead, x.shape[-1])).reshape(rows, x.shape[-1]) for x in (a, b)))
    return found.reshape(*lead, found.shape[-1])


@jax.custom_jvp
def _convolve(a: Any, b: Any) -> Any:
    return dispatched(lambda k: k.convolve, direct_convolve, a, b)


@_convolve.defjvp
def _convolve_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a, b), (da, db) = primals, tangents
    return _convolve(a, b), _convolve_with(b, da) + _convolve_with(a, db)


def _convolve_with(b: Any, x: Any) -> Any:
    """``convolve(x, b)``, linear in x."""
    return _linear(direct_convolve, _convolve, _correlate, b, x, x.shape[-1] + b.shape[-1] - 1)


@jax.custom_jvp
def _correlate(p: Any, s: Any) -> Any:
    return dispatched(lambda k: k.correlate, direct_correlate, p, s)


@_correlate.defjvp
def _correlate_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (p, s), (dp, ds) = primals, tangents
    width = p.shape[-1] - s.shape[-1] + 1
    in_p = _linear(direct_correlate, _correlate, _convolve, s, dp, width)

    def backwards(merge: Any) -> Any:
        return lambda x, p: merge(p, x)

    plain, forth = backwards(direct_correlate), backwards(_correlate)
    in_s = _linear(plain, forth, forth, p, ds, width)
    return _correlate(p, s), in_p + in_s


def _linear(plain: Any, forth: Any, back: Any, fixed: Any, x: Any, width: int) -> Any:
    """``plain(x, fixed)``, (P, width), which `forth` computes and `back` transposes."""

    def alone(merge: Any) -> Any:
        return lambda given: (merge(given[0], fixed),)

    return solved(alone(plain), alone(forth), alone(back), fixed, (x,), (x.shape[0], width))[0]


FEW_TERMS = 4  # so few answers are written out; more are a loop, which compiles once
MOST_CELLS = 1 << 22  # products that are laid out in an array rather than looped over: 32 MB
MOST_ELSEWHERE = 1 << 28  # not on a CPU: where every step of a loop costs a launch


def over_terms(step: Callable[..., Any], start: Any, *terms: Any, reverse: bool = False) -> Any:
    """``start = step(start, j, *(t[..., j] for t in terms))`` for every j; the terms travel as scanned inputs."""

    def body(carry: Any, item: Any) -> tuple[Any, None]:
        return step(carry, item[0], *(t[..., None] for t in item[1:])), None

    items = (jnp.arange(terms[0].shape[-1], dtype=jnp.int32), *(jnp.moveaxis(t, -1, 0) for t in terms))
    return lax.scan(body, start, items, reverse=reverse)[0]


def slice_at(array: Any, j: Any, width: int) -> Any:
    """``array[..., j : j + width]``."""
    return lax.dynamic_slice_in_dim(array, j, width, -1)


def put_at(array: Any, part: Any, j: Any) -> Any:
    """`array` with `part` from j on."""
    return lax.dynamic_update_slice_in_dim(array, part, j, -1)


def moved_up(x: Any) -> Any:
    """Every entry one place on; the last is lost."""
    return jnp.concatenate([jnp.zeros((*x.shape[:-1], 1), x.dtype), lax.slice_in_dim(x, 0, -1, axis=-1)], -1)


def moved_down(x: Any) -> Any:
    """Every entry one place back; the first is lost."""
    return jnp.concatenate(
        [lax.slice_in_dim(x, 1, None, axis=-1), jnp.zeros((*x.shape[:-1], 1), x.dtype)], -1
    )


def widened(x: Any, width: int, fill: float = 0.0) -> Any:
    """`x` with `fill` up to `width` entries on the last axis."""
    more = width - x.shape[-1]
    return x if more <= 0 else jnp.concatenate([x, jnp.full((*x.shape[:-1], more), fill, x.dtype)], -1)


def shifted(p: Any, width: int) -> list[Any]:
    """The parts of `p` that a filter of `width` entries meets, place by place."""
    return [lax.slice_in_dim(p, i, i + width, axis=-1) for i in range(p.shape[-1] - width + 1)]


def common(a: Any, b: Any) -> tuple[int, ...]:
    """The leading axes that two operands share."""
    return jnp.broadcast_shapes(a.shape[:-1], b.shape[:-1])


def laid_out(rows: int, columns: int, lead: tuple[int, ...]) -> bool:
    """Whether all products of two messages fit an array: no loop then, which compiles and runs sooner."""
    known = math.prod(size for size in lead if isinstance(size, int))
    return rows * columns * known <= (MOST_CELLS if on_cpu() else MOST_ELSEWHERE)


def toeplitz(b: Any, rows: int, fill: float) -> Any:
    """``b[k - j]`` for j below `rows` and every k, `fill` where there is no such entry, (..., rows, columns)."""
    columns = rows + b.shape[-1] - 1
    # Rows of one cell less than the period of the repeated message: each starts one cell earlier than the last.
    return _cut(widened(b, columns + 1, fill), rows, columns)


def hankel(p: Any, rows: int) -> Any:
    """``p[i + j]`` for j below `rows`, (..., rows, len(p) - rows + 1)."""
    size = p.shape[-1]
    return lax.slice_in_dim(_cut(p, rows, size + 1), 0, size - rows + 1, axis=-1)


def _cut(period: Any, rows: int, columns: int) -> Any:
    """The message repeated without end, cut into rows."""
    size, lead = period.shape[-1], period.shape[:-1]
    times = -(-rows * columns // size)
    endless = jnp.broadcast_to(period[..., None, :], (*lead, times, size)).reshape(*lead, times * size)
    return lax.slice_in_dim(endless, 0, rows * columns, axis=-1).reshape(*lead, rows, columns)


def direct_convolve(a: Any, b: Any) -> Any:
    """All sums ``a[j] b[k - j]``."""
    if a.shape[-1] > b.shape[-1]:
        a, b = b, a
    if laid_out(a.shape[-1], a.shape[-1] + b.shape[-1], common(a, b)):
        return jnp.sum(a[..., None] * toeplitz(b, a.shape[-1], 0.0), -2)
    return _long_convolve(a, b)


def direct_correlate(p: Any, s: Any) -> Any:
    """All sums ``p[i + j] s[j]``, i from 0 to ``len(p) - len(s)``."""
    if laid_out(s.shape[-1], p.shape[-1] + 1, common(p, s)):
        return jnp.sum(hankel(p, s.shape[-1]) * s[..., None], -2)
    if p.shape[-1] - s.shape[-1] < FEW_TERMS:
        return jnp.stack([jnp.sum(part * s, -1) for part in shifted(p, s.shape[-1])], -1)
    return _long_correlate(p, s)


@jax.custom_jvp
def _long_convolve(a: Any, b: Any) -> Any:
    wa, wb = a.shape[-1], b.shape[-1]
    out = jnp.zeros((*common(a, b), wa + wb - 1), b.dtype)

    def step(out: Any, j: Any, a_j: Any) -> Any:
        return put_at(out, slice_at(out, j, wb) + a_j * b, j)

    return over_terms(step, out, a)


@_long_convolve.defjvp
def _long_convolve_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a, b), (da, db) = primals, tangents
    return _long_convolve(a, b), _convolve_by_shifts(da, b) + _convolve_by_shifts(db, a)


def _convolve_by_shifts(a: Any, b: Any) -> Any:
    """Horner's scheme, over the shorter operand."""
    if a.shape[-1] > b.shape[-1]:
        a, b = b, a
    wide = widened(b, a.shape[-1] + b.shape[-1] - 1)
    out = jnp.zeros((*common(a, b), wide.shape[-1]), b.dtype)
    return over_terms(lambda out, _, a_j: moved_up(out) + a_j * wide, out, a, reverse=True)


@jax.custom_jvp
def _long_correlate(p: Any, s: Any) -> Any:
    width = p.shape[-1] - s.shape[-1] + 1
    out = jnp.zeros((*common(p, s), width), p.dtype)
    return over_terms(lambda out, j, s_j: out + slice_at(p, j, width) * s_j, out, s)


@_long_correlate.defjvp
def _long_correlate_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (p, s), (dp, ds) = primals, tangents
    return _long_correlate(p, s), _correlate_by_shifts(dp, s) + _correlate_by_shifts(p, ds)


def _correlate_by_shifts(p: Any, s: Any) -> Any:
    width = p.shape[-1] - s.shape[-1] + 1

    def step(state: Any, _: Any, s_j: Any) -> Any:
        out, p = state
        return out + lax.slice_in_dim(p, 0, width, axis=-1) * s_j, moved_down(p)

    out = jnp.zeros((*common(p, s), width), p.dtype)
    return over_terms(step, (out, p), s)[0]
