"""Sums over variables and frequencies: the characteristic function, transforms of tables, leave-one-out sums.

With phi_i(w) = q_i + p_i e^{iw} and v_i = 2 p_i q_i, |phi_i(w)|^2 = 1 - v_i (1 - cos w), so that everything that is due
to a pair of variable and frequency is one division. Values are computed in stages (CPU) or kernels (CUDA) that do not
store pairs; tangents by the linear maps of :mod:`.pairs`, which can be transposed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .frequencies import times
from .pairs import pairs_over_frequencies, pairs_over_variables
from .stages import dispatched, on_cpu, staged

AT_ONCE = 4  # factors that are multiplied in registers before a partial product is stored


@jax.custom_jvp
def characteristic(p: Any, versine: Any, sine: Any, needed: Any) -> tuple[Any, Any]:
    """Real and imaginary part of ``prod_i (1 - p_i + p_i e^{iw})``, (B, M) from (B, n) and (B, M)."""
    if on_cpu() or p.shape[0] == 0:
        found: tuple[Any, Any] = staged(_characteristic, needed, (p,), (versine, sine), sums=False)
    else:
        found = dispatched(lambda k: k.products, lambda *x: _characteristic(*x[:3]), p, versine, sine, needed)
    return found


def _characteristic(p: Any, versine: Any, sine: Any) -> tuple[Any, Any]:
    n = p.shape[-1]
    at_once = AT_ONCE if n % AT_ONCE == 0 else 1
    parts = p.reshape(p.shape[0], at_once, n // at_once)

    def factor(j: int) -> tuple[Any, Any]:
        own = parts[:, j, :, None]
        return 1.0 - own * versine[:, None], own * sine[:, None]

    product = factor(0)
    for j in range(1, at_once):
        product = times(*product, *factor(j))
    one, zero = np.ones((), p.dtype), np.zeros((), p.dtype)
    re, im = lax.reduce(product, (one, zero), lambda a, b: times(*a, *b), (1,))
    return re, im


@characteristic.defjvp
def _characteristic_jvp(primals: Any, tangents: Any) -> Any:
    # d log phi = dp (e^{iw} - 1) / phi = dp (-(1 - 2 p) (1 - cos w) + i sin w) / |phi|^2; frequencies are constants.
    p, versine, sine, needed = primals
    re, im = characteristic(*primals)
    d_p = tangents[0]
    v = 2.0 * p * (1.0 - p)
    along = d_p * (1.0 - 2.0 * p), d_p
    log_re, log_im = pairs_over_variables(v, versine, along, needed)
    return (re, im), times(re, im, -versine * log_re, sine * log_im)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def over_frequencies(power: int, v: Any, versine: Any, given: Any, needed: Any) -> Any:
    """``sum_m a_m / (1 - v_i versine_m)^power`` for every a in `given`, (B, n) each from (B, M)."""
    if on_cpu() or v.shape[0] == 0:
        return staged(partial(_sums, power), needed, (v,), (versine, *given), sums=True)

    def plain(v: Any, versine: Any, given: Any, needed: Any) -> Any:
        weight = (1.0 / (1.0 - v[:, None] * versine[:, :, None])) ** power
        return tuple(jnp.sum(weight * a[:, :, None], 1) for a in given)

    return dispatched(lambda k: partial(k.over_frequencies, power), plain, v, versine, given, needed)


def _sums(power: int, v: Any, versine: Any, *given: Any) -> tuple[Any, ...]:
    weight = (1.0 / (1.0 - v[:, None] * versine[:, :, None])) ** power
    terms = tuple(weight * a[:, :, None] for a in given)
    zero = np.zeros((), v.dtype)
    return tuple(lax.reduce(terms, (zero,) * len(given), _add, (1,)))


@over_frequencies.defjvp
def _over_frequencies_jvp(power: int, primals: Any, tangents: Any) -> Any:
    v, versine, given, needed = primals
    d_v, _, d_given, _ = tangents
    linear = pairs_over_frequencies(power, v, versine, d_given, needed)
    bent = over_frequencies(power + 1, v, versine, tuple(versine * a for a in given), needed)
    moved = tuple(x + power * d_v * y for x, y in zip(linear, bent))
    return over_frequencies(power, *primals), moved


@jax.custom_jvp
def transform(f: Any, small: Any, large: Any, powers: Any, window: Any, needed: Any) -> tuple[Any, Any]:
    """``sum_k f_k e^{-iwk}`` over k = a S + b, (B, M); f is (B, n + 1) and 0 outside of a window (B, 2) of counts.

    `small` (B, S, M) and `large` (B, n / S + 1, M) are the powers b and a S of every model, `powers` the same before
    models picked theirs; see :class:`.frequencies.Frequencies`.
    """
    if on_cpu():
        return _by_blocks(f, small, large, window)

    def plain(f: Any, small: Any, large: Any, powers: Any, window: Any, needed: Any) -> tuple[Any, Any]:
        return _transform(f, small, large)

    if f.shape[0] == 0:
        return plain(f, small, large, powers, window, needed)
    found: tuple[Any, Any] = dispatched(lambda k: k.transform, plain, f, small, large, powers, window, needed)
    return found


def _blocks(f: Any, small: Any) -> Any:
    """All entries but the last, (B, n / S, S)."""
    return f[:, :-1].reshape(f.shape[0], f.shape[1] // small[0].shape[1], small[0].shape[1])


def _by_blocks(f: Any, small: Any, large: Any, window: Any) -> tuple[Any, Any]:
    """Block by block, from the first to the last that any model needs."""
    blocks = _blocks(f, small)
    count, size = blocks.shape[1:]
    first = jnp.min(window[:, 0], initial=count * size) // np.int32(size)
    stop = jnp.minimum(jnp.max(window[:, 1], initial=0) // np.int32(size) + 1, count)

    def some(state: Any) -> Any:
        a, re, im = state
        own = lax.dynamic_index_in_dim(blocks, a, 1, keepdims=False)
        inner = _weighted(own, small)
        more = times(*inner, *(lax.dynamic_index_in_dim(x, a, 1, keepdims=False) for x in large))
        return a + 1, re + more[0], im + more[1]

    last = tuple(f[:, -1:] * x[:, -1] for x in large)
    _, re, im = lax.while_loop(lambda state: state[0] < stop, some, (first, *last))
    return re, im


def _weighted(own: Any, small: Any) -> Any:
    """``sum_b own_b e^{-iwb}``, a few terms at a time in registers, (B, M) from (B, S) and (B, S, M)."""
    width = own.shape[-1]
    at_once = AT_ONCE if width % AT_ONCE == 0 else 1
    entries = own.reshape(own.shape[0], at_once, width // at_once)
    terms = []
    for x in small:
        parts = x.reshape(x.shape[0], at_once, width // at_once, x.shape[-1])
        terms.append(sum(entries[:, j, :, None] * parts[:, j] for j in range(at_once)))
    zero = np.zeros((), own.dtype)
    return lax.reduce(tuple(terms), (zero, zero), _add, (1,))


def _transform(f: Any, small: Any, large: Any) -> tuple[Any, Any]:
    inner = (jnp.einsum("bls,bsm->blm", _blocks(f, small), x) for x in small)
    re, im = times(*inner, *(x[:, :-1] for x in large))
    return jnp.sum(re, 1) + f[:, -1:] * large[0][:, -1], jnp.sum(im, 1) + f[:, -1:] * large[1][:, -1]


@transform.defjvp
def _transform_jvp(primals: Any, tangents: Any) -> Any:
    _, small, large, *_ = primals
    return transform(*primals), _transform(tangents[0], small, large)


def inverse(re: Any, im: Any, small: Any, large: Any) -> Any:
    """``Re sum_m h_m e^{-iwk}`` for all k = large S + small, (B, L, S)."""
    turned = times(re[:, None], im[:, None], *large)
    return jnp.einsum("blm,bsm->bls", turned[0], small[0]) - jnp.einsum("blm,bsm->bls", turned[1], small[1])


def _add(a: Any, b: Any) -> Any:
    return tuple(x + y for x, y in zip(a, b))
