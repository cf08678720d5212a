"""Kernels for CUDA devices, in Pallas: sums and products over pairs that stay in registers.

XLA makes kernels of these reductions that take up to fifteen times as long. A program holds a few models (or stretches
of one model) and eight frequencies, and runs over the variables; or it holds variables of one model and runs over its
frequencies. Nothing is reduced across lanes. All sizes are powers of two but the number of frequencies, a multiple of
eight, and the number of models: programs share models only as far as their number divides.

Two constants under one `select` do not survive the lowering to Triton, so bounds of loops are products.

Merges of messages are sums in which one message slides along another; XLA would lay the pairs out or start a kernel per
term. A program holds a stretch of the answers of a few pairs of messages and runs over the terms. Messages are padded
with zeros, so that nothing has to be masked.

    slide(x, f)[c]     = sum_j f[j] x[c + j]
    convolve(a, b)     = slide(b between zeros, a backwards),     correlate(p, s) = slide(p, s)
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

from .frequencies import times

_LANES = 8  # frequencies of a program
_STREAMS = 16  # models or stretches of a program
_STRETCH = 1024  # variables that one program runs over
_ACROSS = 512  # variables that a program holds


_array: Any = jax.ShapeDtypeStruct  # untyped in JAX


def _cut(rows: int, n: int) -> tuple[int, int, int]:
    """Models of a program, stretches of a program and stretches of a model."""
    models = math.gcd(rows, _STREAMS)
    stretches = min(max(_STREAMS // models, n // _STRETCH), n)
    return models, min(_STREAMS // models, stretches), stretches


def _steps(used: Any, count: int) -> Any:
    """`count` for a program with frequencies that count, else 0."""
    first = pl.program_id(2) * jnp.int32(_LANES)
    return (first < jnp.max(used)).astype(jnp.int32) * jnp.int32(count)


def products(p: Any, versine: Any, sine: Any, needed: Any, *, interpret: bool = False) -> tuple[Any, Any]:
    """``prod_i (1 - p_i + p_i e^{iw})``, real and imaginary parts (B, M), from (B, n), (B, M) and (B,)."""
    (rows, n), width = p.shape, versine.shape[-1]
    models, stretches, cut = _cut(rows, n)
    length = n // cut
    at_once = min(8, length)

    def kernel(p_ref: Any, y_ref: Any, s_ref: Any, used_ref: Any, re_ref: Any, im_ref: Any) -> None:
        y, s = y_ref[...][:, None, :], s_ref[...][:, None, :]

        def factor(i: Any) -> tuple[Any, Any]:
            own = p_ref[:, :, i][:, :, None]
            return 1.0 - own * y, own * s

        def step(i: Any, state: Any) -> Any:
            product: Any = factor(i * jnp.int32(at_once))
            for j in range(1, at_once):
                re, im = factor(i * jnp.int32(at_once) + jnp.int32(j))
                product = times(product[0], product[1], re, im)
            re, im = state
            return times(re, im, product[0], product[1])

        shape = (models, stretches, _LANES)
        start = jnp.ones(shape, p.dtype), jnp.zeros(shape, p.dtype)
        count = _steps(used_ref[...], length // at_once)
        re_ref[...], im_ref[...] = lax.fori_loop(jnp.int32(0), count, step, start)

    variables, wave, number, answer = _streams(models, stretches, length)
    shape = _array((rows, cut, width), p.dtype)
    grid = rows // models, cut // stretches, width // _LANES
    call = programs(kernel, grid, [variables, wave, wave, number], [answer] * 2, [shape] * 2, 4, interpret)
    parts = call(p.reshape(rows, cut, length), versine, sine, needed)
    return _product(*parts)


def _streams(models: int, stretches: int, length: int) -> tuple[Any, ...]:
    """Blocks of variables, of frequencies, of numbers per model, and of answers per stretch and frequency."""
    return (
        pl.BlockSpec((models, stretches, length), lambda i, j, m: (i, j, 0)),
        pl.BlockSpec((models, _LANES), lambda i, j, m: (i, m)),
        pl.BlockSpec((models,), lambda i, j, m: (i,)),
        pl.BlockSpec((models, stretches, _LANES), lambda i, j, m: (i, j, m)),
    )


def _product(re: Any, im: Any) -> tuple[Any, Any]:
    """Over the stretches, a power of two of them."""
    while re.shape[1] > 1:
        re, im = times(re[:, 0::2], im[:, 0::2], re[:, 1::2], im[:, 1::2])
    return re[:, 0], im[:, 0]


def over_variables(v: Any, versine: Any, given: Any, needed: Any, *, interpret: bool = False) -> Any:
    """``sum_i x_i / (1 - v_i versine_m)`` for every x in `given`, (B, M) each from (B, n)."""
    (rows, n), width, many = v.shape, versine.shape[-1], len(given)
    models, stretches, cut = _cut(rows, n)
    length = n // cut

    def kernel(v_ref: Any, *refs: Any) -> None:
        y = refs[many][...][:, None, :]

        def step(i: Any, sums: Any) -> Any:
            weight = _inverse(1.0 - v_ref[:, :, i][:, :, None] * y, interpret)
            return tuple(s + x[:, :, i][:, :, None] * weight for s, x in zip(sums, refs[:many]))

        zeros = tuple(jnp.zeros((models, stretches, _LANES), v.dtype) for _ in range(many))
        count = _steps(refs[many + 1][...], length)
        for out, found in zip(refs[many + 2 :], lax.fori_loop(jnp.int32(0), count, step, zeros)):
            out[...] = found

    variables, wave, number, answer = _streams(models, stretches, length)
    shape = _array((rows, cut, width), v.dtype)
    grid = rows // models, cut // stretches, width // _LANES
    inputs = [variables] * (1 + many) + [wave, number]
    call = programs(kernel, grid, inputs, [answer] * many, [shape] * many, 4, interpret)
    parts = call(*(x.reshape(rows, cut, length) for x in (v, *given)), versine, needed)
    return tuple(jnp.sum(x, 1) for x in parts)


def over_frequencies(
    power: int, v: Any, versine: Any, given: Any, needed: Any, *, interpret: bool = False
) -> Any:
    """``sum_m a_m / (1 - v_i versine_m)^power`` for every a in `given`, (B, n) each from (B, M)."""
    (rows, n), width, many = v.shape, versine.shape[-1], len(given)
    across = min(n, _ACROSS)

    def kernel(v_ref: Any, y_ref: Any, *refs: Any) -> None:
        own = v_ref[0]

        def step(m: Any, sums: Any) -> Any:
            weight = _inverse(1.0 - own * y_ref[0, m], interpret)
            weight = math.prod([weight] * power)
            return tuple(s + a[0, m] * weight for s, a in zip(sums, refs[:many]))

        zeros = tuple(jnp.zeros((across,), v.dtype) for _ in range(many))
        for out, found in zip(refs[many + 1 :], lax.fori_loop(jnp.int32(0), refs[many][0], step, zeros)):
            out[0] = found

    variables = pl.BlockSpec((1, across), lambda i, j: (i, j))
    wave = pl.BlockSpec((1, width), lambda i, j: (i, 0))
    number = pl.BlockSpec((1,), lambda i, j: (i,))
    shape = _array(v.shape, v.dtype)
    inputs = [variables, wave, *[wave] * many, number]
    warps = max(1, across // 256)
    call = programs(kernel, (rows, n // across), inputs, [variables] * many, [shape] * many, warps, interpret)
    return tuple(call(v, versine, *given, needed))


def _inverse(x: Any, interpret: bool) -> Any:
    """1 / x of positive doubles: the device's guess of 20 bits and two Newton steps."""
    if interpret:
        return 1.0 / x
    (guess,) = pltriton.elementwise_inline_asm(
        "rcp.approx.ftz.f64 $0, $1;",
        args=[x],
        constraints="=d,d",
        pack=1,
        result_shape_dtypes=[_array(x.shape, x.dtype)],
    )
    guess = guess * (2.0 - x * guess)
    return guess * (2.0 - x * guess)


def transform(f: Any, frequencies: Any, window: Any, *, interpret: bool = False) -> tuple[Any, Any]:
    """``sum_k f_k e^{-iwk}`` over the counts of a window, (B, M), real and imaginary parts.

    f is (B, n + 1); `window` (B, 2) holds the first and the last count with f > 0.
    """
    (small, large, place), needed = frequencies.powers, frequencies.needed
    rows, width = f.shape[0], small[0].shape[-1]
    size = small[0].shape[1]
    models = math.gcd(rows, _STREAMS)

    def kernel(f_ref: Any, a_ref: Any, b_ref: Any, c_ref: Any, d_ref: Any, *refs: Any) -> None:
        place_ref, first_ref, last_ref, used_ref, re_ref, im_ref = refs
        own = place_ref[...]
        first, stop = jnp.min(first_ref[...]), jnp.max(last_ref[...]) + jnp.int32(1)
        lanes = pl.ds(pl.program_id(1) * jnp.int32(_LANES), _LANES)
        some = (pl.program_id(1) * jnp.int32(_LANES) < jnp.max(used_ref[...])).astype(jnp.int32)

        def step(c: Any, sums: Any) -> Any:
            i, j = c % jnp.int32(size), c // jnp.int32(size)
            turned = times(
                a_ref[own, i, lanes], b_ref[own, i, lanes], c_ref[own, j, lanes], d_ref[own, j, lanes]
            )
            weight = f_ref[:, c][:, None]
            return tuple(s + weight * t for s, t in zip(sums, turned))

        zeros = tuple(jnp.zeros((models, _LANES), f.dtype) for _ in range(2))
        count = (stop - first) * some
        moved = lax.fori_loop(jnp.int32(0), count, lambda k, sums: step(first + k, sums), zeros)
        re_ref[...], im_ref[...] = moved

    def whole(x: Any) -> Any:
        return pl.BlockSpec(x.shape, lambda i, m: (0, 0, 0))

    number = pl.BlockSpec((models,), lambda i, m: (i,))
    answer = pl.BlockSpec((models, _LANES), lambda i, m: (i, m))
    entries = pl.BlockSpec((models, f.shape[1]), lambda i, m: (i, 0))
    shape = _array((rows, width), f.dtype)
    inputs = [entries, *(whole(x) for x in (*small, *large)), *[number] * 4]
    call = programs(
        kernel, (rows // models, width // _LANES), inputs, [answer] * 2, [shape] * 2, 4, interpret
    )
    return tuple(call(f, *small, *large, place, window[:, 0], window[:, 1], needed))


_ENTRIES = 128  # answers that a program holds


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
