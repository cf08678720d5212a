"""Merges of messages on CUDA devices, in Pallas: one message slides along another.

    slide(x, f)[c]     = sum_j f[j] x[c + j]
    convolve(a, b)     = slide(b between zeros, a backwards),     correlate(p, s) = slide(p, s)

A program holds a stretch of the answers of a few pairs of messages and runs over the terms; XLA would lay the pairs out
or start a kernel per term. Messages are padded with zeros, so that nothing has to be masked.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

_ENTRIES = 128  # answers that a program holds

_array: Any = jax.ShapeDtypeStruct  # untyped in JAX


def programs(
    kernel: Any, grid: Any, inputs: Any, outputs: Any, shapes: Any, warps: int, interpret: bool
) -> Any:
    """A kernel, run by a grid of programs."""
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=inputs,
        out_specs=outputs,
        out_shape=shapes,
        compiler_params=pltriton.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
    )


def convolve(a: Any, b: Any, *, interpret: bool = False) -> Any:
    """All sums ``a[j] b[k - j]``, (P, wa + wb - 1) from (P, wa) and (P, wb)."""
    if a.shape[1] > b.shape[1]:
        a, b = b, a
    terms = a.shape[1]
    beside = jnp.pad(b, ((0, 0), (terms - 1, terms - 1)))
    return _slide(beside, a[:, ::-1], (terms - 1, terms - 1 + b.shape[1]), interpret)


def correlate(p: Any, s: Any, *, interpret: bool = False) -> Any:
    """All sums ``p[i + j] s[j]``, (P, wp - ws + 1) from (P, wp) and (P, ws)."""
    return _slide(p, s, (0, p.shape[1]), interpret)


def _slide(x: Any, f: Any, inside: tuple[int, int], interpret: bool) -> Any:
    """`inside` says where x may differ from 0."""
    (rows, length), terms = x.shape, f.shape[1]
    width = length - terms + 1
    across = _across(width)
    together = _ENTRIES // across
    chunks = -(-width // across)
    more = -rows % together
    x = jnp.pad(x, ((0, more), (0, chunks * across - width)))
    f = jnp.pad(f, ((0, more), (0, 0)))

    def kernel(x_ref: Any, f_ref: Any, out_ref: Any) -> None:
        first = pl.program_id(1) * jnp.int32(across)

        def step(j: Any, total: Any) -> Any:
            return total + f_ref[:, j][:, None] * x_ref[:, pl.ds(first + j, across)]

        # Only terms that meet an entry that is not padding.
        low = lax.max(jnp.int32(inside[0] - across + 1) - first, jnp.int32(0))
        high = lax.min(jnp.int32(inside[1]) - first, jnp.int32(terms))
        out_ref[...] = lax.fori_loop(low, high, step, jnp.zeros((together, across), x.dtype))

    inputs = [pl.BlockSpec((together, size), lambda i, c: (i, 0)) for size in (x.shape[1], terms)]
    answer = pl.BlockSpec((together, across), lambda i, c: (i, c))
    shape = _array((rows + more, chunks * across), x.dtype)
    call = programs(kernel, ((rows + more) // together, chunks), inputs, answer, shape, 2, interpret)
    return call(x, f)[:rows, :width]


def _across(width: int) -> int:
    """Answers of one pair in a program: the fewest idle lanes, and the longest stretches among those."""
    return min((64, 32, 16, 8), key=lambda size: -(-width // size) * size)
