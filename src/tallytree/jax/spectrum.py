"""Sums over variables and frequencies: the characteristic function, transforms of tables, leave-one-out sums.

With phi_i(w) = q_i + p_i e^{iw} and v_i = 2 p_i q_i, |phi_i(w)|^2 = 1 - v_i (1 - cos w), so that everything that is due
to a pair of variable and frequency is one division. Values are computed by reductions of several sums at a time, which
the compiler fuses into one loop without storing pairs; tangents by plain sums, which can be transposed.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .frequencies import times
from .stages import staged

AT_ONCE = 4  # factors that are multiplied in registers before a partial product is stored


@jax.custom_jvp
def characteristic(p: Any, versine: Any, sine: Any, needed: Any) -> tuple[Any, Any]:
    """Real and imaginary part of ``prod_i (1 - p_i + p_i e^{iw})``, (B, M) from (B, n) and (B, M)."""
    found: tuple[Any, Any] = staged(_characteristic, needed, (p,), (versine, sine), sums=False)
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
    p, versine, sine, _ = primals
    re, im = characteristic(*primals)
    d_p = tangents[0]
    v = 2.0 * p * (1.0 - p)
    log_re = -versine * over_variables(v, versine, d_p * (1.0 - 2.0 * p))
    log_im = sine * over_variables(v, versine, d_p)
    return (re, im), times(re, im, log_re, log_im)


@jax.checkpoint
def over_variables(v: Any, versine: Any, x: Any) -> Any:
    """``sum_i x_i / (1 - v_i versine_m)``, (B, M); pairs are computed again when it is differentiated backwards."""
    return jnp.sum(x[:, :, None] / (1.0 - v[:, :, None] * versine[:, None]), 1)


@jax.checkpoint
def _over_frequencies(v: Any, versine: Any, a: Any) -> Any:
    """``sum_m a_m / (1 - v_i versine_m)``, (B, n)."""
    return jnp.sum(a[:, :, None] / (1.0 - v[:, None] * versine[:, :, None]), 1)


@jax.custom_jvp
def over_frequencies(v: Any, versine: Any, a: Any, b: Any, c: Any, needed: Any) -> tuple[Any, Any, Any]:
    """``sum_m x_m / (1 - v_i versine_m)`` for x = a, b and c, (B, n) each."""
    found: tuple[Any, Any, Any] = staged(_three_sums, needed, (v,), (versine, a, b, c), sums=True)
    return found


def _three_sums(v: Any, versine: Any, a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    weight = 1.0 / (1.0 - v[:, None] * versine[:, :, None])
    terms = tuple(weight * x[:, :, None] for x in (a, b, c))
    zero = np.zeros((), v.dtype)
    return tuple(lax.reduce(terms, (zero,) * 3, _add, (1,)))


@over_frequencies.defjvp
def _over_frequencies_jvp(primals: Any, tangents: Any) -> Any:
    v, versine, *sums, _ = primals
    d_v, _, *d_sums, _ = tangents

    def moved(x: Any, d_x: Any) -> Any:
        return jax.jvp(lambda v, x: _over_frequencies(v, versine, x), (v, x), (d_v, d_x))[1]

    return over_frequencies(*primals), tuple(moved(x, d) for x, d in zip(sums, d_sums))


@jax.custom_jvp
def transform(f: Any, small: Any, large: Any, needed: Any) -> tuple[Any, Any]:
    """``sum_k f_k e^{-iwk}`` over k = large S + small, (B, M); f is (B, L, S), the powers (B, S, M) and (B, L, M)."""
    found: tuple[Any, Any] = staged(_transform, needed, (f,), (*small, *large), sums=False)
    return found


def _transform(f: Any, *powers: Any) -> tuple[Any, Any]:
    small, large = powers[:2], powers[2:]
    width = f.shape[-1]
    at_once = AT_ONCE if width % AT_ONCE == 0 else 1
    entries = f.reshape(*f.shape[:2], at_once, width // at_once)
    terms = []
    for x in small:
        parts = x.reshape(x.shape[0], at_once, width // at_once, x.shape[-1])
        terms.append(sum(entries[:, :, j, :, None] * parts[:, None, j] for j in range(at_once)))
    zero = np.zeros((), f.dtype)
    inner = lax.reduce(tuple(terms), (zero, zero), _add, (2,))
    re, im = times(*inner, *large)
    return jnp.sum(re, 1), jnp.sum(im, 1)


@transform.defjvp
def _transform_jvp(primals: Any, tangents: Any) -> Any:
    _, small, large, _ = primals
    inner = (jnp.einsum("bls,bsm->blm", tangents[0], x) for x in small)
    re, im = times(*inner, *large)
    return transform(*primals), (jnp.sum(re, 1), jnp.sum(im, 1))


def inverse(re: Any, im: Any, small: Any, large: Any) -> Any:
    """``Re sum_m h_m e^{-iwk}`` for all k = large S + small, (B, L, S)."""
    turned = times(re[:, None], im[:, None], *large)
    return jnp.einsum("blm,bsm->bls", turned[0], small[0]) - jnp.einsum("blm,bsm->bls", turned[1], small[1])


def _add(a: Any, b: Any) -> Any:
    return tuple(x + y for x, y in zip(a, b))
