"""Sums of numbers that are given by their logarithms, right for entries of any size, -inf included.

    log_convolve(a, b)[k]  = log sum_j exp(a[j] + b[k - j])
    log_correlate(p, s)[i] = log sum_j exp(p[i + j] + s[j])

Sums are kept relative to their largest term so far, so that every exponential lies in [0, 1]. Derivatives are
expectations under the weights of the terms; an impossible entry has none, so that no derivative is ever NaN.

The logarithm of normal numbers takes a few plain operations; XLA's own takes three times as long on a CPU.

    log 2^k m = k log 2 + 2 (f + f^3 / 3 + f^5 / 5 + ...),    f = (m - 1) / (m + 1),    m from sqrt(1/2) to sqrt(2)

The first term left out is below 1e-18 of f; the result is right to four units of round-off.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .convolution import (
    FEW_TERMS,
    common,
    hankel,
    laid_out,
    moved_down,
    moved_up,
    over_terms,
    put_at,
    shifted,
    slice_at,
    toeplitz,
    widened,
)
from .stages import on_cpu


def finite_or_zero(x: Any) -> Any:
    """`x` with 0 for infinite entries: what may be subtracted from -inf."""
    return jnp.where(jnp.isinf(x), 0.0, x)


def safe_log(x: Any) -> Any:
    """Logarithm with -inf at 0, where the derivative is 0."""
    possible = x > 0.0
    return jnp.where(possible, jnp.log(jnp.where(possible, x, 1.0)), jnp.where(x == 0.0, -jnp.inf, x))


def log_sum(x: Any, *, axis: int = -1) -> Any:
    """The logarithm of the sum of exponentials along an axis; -inf where nothing is possible, with derivative 0."""
    top = _largest(jax.lax.stop_gradient(x), axis)
    return safe_log(jnp.sum(jnp.exp(x - top), axis)) + jnp.squeeze(top, axis)


def _largest(x: Any, axis: int) -> Any:
    """The largest entry along an axis, or the least finite number where nothing is possible: it can be subtracted."""
    info: Any = jnp.finfo  # untyped in JAX
    return jnp.max(x, axis, keepdims=True, initial=info(x.dtype).min)


def log_convolve(a: Any, b: Any) -> Any:
    """Convolution of exp(a) and exp(b), as logarithms."""
    if a.shape[-1] > b.shape[-1]:
        a, b = b, a
    if laid_out(a.shape[-1], a.shape[-1] + b.shape[-1], common(a, b)):
        return log_total(a[..., None] + toeplitz(b, a.shape[-1], -jnp.inf))
    return _long_convolve(a, b)


@jax.custom_jvp
def log_total(terms: Any) -> Any:
    """The logarithm of the sum of exponentials over the last axis but one; a term of -inf has no derivative."""
    top = _largest(terms, -2)
    return safe_log(jnp.sum(jnp.exp(terms - top), -2)) + jnp.squeeze(top, -2)


@log_total.defjvp
def _log_total_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (terms,) = primals
    total = log_total(terms)
    weights = jnp.exp(terms - finite_or_zero(total)[..., None, :])
    return total, jnp.sum(weights * tangents[0], -2)


@jax.custom_jvp
def _long_convolve(a: Any, b: Any) -> Any:
    wb = b.shape[-1]

    def add(state: Any, j: Any, a_j: Any) -> Any:
        top, relative = state
        part = join(slice_at(top, j, wb), slice_at(relative, j, wb), a_j + b)
        return tuple(put_at(x, y, j) for x, y in zip(state, part))

    return total(*over_terms(add, empty((*common(a, b), a.shape[-1] + wb - 1), b.dtype), a))


def empty(shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
    """The sum of no terms: its largest logarithm, and the sum relative to that."""
    return jnp.full(shape, -jnp.inf, dtype), jnp.zeros(shape, dtype)


def join(top: Any, relative: Any, term: Any) -> tuple[Any, Any]:
    """One more term in ``exp(top) * relative``: one exponential, in [0, 1], and the largest term counts 1."""
    smaller = jnp.exp(jnp.where(top == -jnp.inf, -jnp.inf, -jnp.abs(term - finite_or_zero(top))))
    larger = term > top
    return jnp.maximum(top, term), jnp.where(larger, relative * smaller + 1.0, relative + smaller)


def total(top: Any, relative: Any) -> Any:
    """The logarithm of a sum that `join` gathered."""
    return safe_log(relative) + finite_or_zero(top)


def max_convolve(a: Any, b: Any) -> Any:
    """``max_j a[j] + b[k - j]``."""
    if a.shape[-1] > b.shape[-1]:
        a, b = b, a
    wb = b.shape[-1]

    def step(out: Any, j: Any, a_j: Any) -> Any:
        return put_at(out, jnp.maximum(slice_at(out, j, wb), a_j + b), j)

    if laid_out(a.shape[-1], a.shape[-1] + wb, common(a, b)):
        return jnp.max(a[..., None] + toeplitz(b, a.shape[-1], -jnp.inf), -2)
    shape = (*common(a, b), a.shape[-1] + wb - 1)
    return over_terms(step, jnp.full(shape, -jnp.inf, b.dtype), a)


@_long_convolve.defjvp
def _log_convolve_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a, b), (da, db) = primals, tangents
    c = _long_convolve(a, b)
    base = finite_or_zero(c)
    wb = b.shape[-1]

    def add(out: Any, j: Any, a_j: Any, da_j: Any) -> Any:
        part = jnp.exp(a_j + b - slice_at(base, j, wb)) * (da_j + db)
        return moved_up(out) + widened(part, out.shape[-1])

    return c, over_terms(add, jnp.zeros_like(c), a, da, reverse=True)


def log_correlate(p: Any, s: Any) -> Any:
    """Correlation of exp(p) with exp(s), as logarithms."""
    if laid_out(s.shape[-1], p.shape[-1] + 1, common(p, s)):
        return log_total(hankel(p, s.shape[-1]) + s[..., None])
    if p.shape[-1] - s.shape[-1] < FEW_TERMS:
        return jnp.stack([log_sum(part + s) for part in shifted(p, s.shape[-1])], -1)
    return _long_correlate(p, s)


@jax.custom_jvp
def _long_correlate(p: Any, s: Any) -> Any:
    width = p.shape[-1] - s.shape[-1] + 1

    def add(state: Any, j: Any, s_j: Any) -> Any:
        top, relative = state
        return join(top, relative, slice_at(p, j, width) + s_j)

    return total(*over_terms(add, empty((*common(p, s), width), p.dtype), s))


@_long_correlate.defjvp
def _log_correlate_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (p, s), (dp, ds) = primals, tangents
    c = _long_correlate(p, s)
    base = finite_or_zero(c)
    width = c.shape[-1]

    def add(state: Any, j: Any, s_j: Any, ds_j: Any) -> Any:
        out, dp = state
        weight = jnp.exp(slice_at(p, j, width) + s_j - base)
        return out + weight * (lax.slice_in_dim(dp, 0, width, axis=-1) + ds_j), moved_down(dp)

    return c, over_terms(add, (jnp.zeros_like(c), dp), s, ds)[0]


_LOG_TERMS = 10
_ROOT_OF_HALF = np.array(math.sqrt(0.5)).view(np.int64)[()]
_BITS = np.int64(52)  # of a mantissa


def log_of_normal(x: Any) -> Any:
    """``log_of_normal(x)`` for 64-bit numbers between 1e-300 and 1e300; the derivatives are those of the logarithm."""
    return _log_by_series(x) if on_cpu() and x.dtype == jnp.float64 else jnp.log(x)


@jax.custom_jvp
def _log_by_series(x: Any) -> Any:
    bits = lax.bitcast_convert_type(x, jnp.int64)
    k = (bits - _ROOT_OF_HALF) >> _BITS
    m = lax.bitcast_convert_type(bits - (k << _BITS), jnp.float64)
    f = (m - 1.0) / (m + 1.0)
    square = f * f
    tail = jnp.zeros_like(x)
    for j in reversed(range(1, _LOG_TERMS + 1)):
        tail = tail * square + 2.0 / (2 * j + 1)
    return k.astype(jnp.float64) * math.log(2.0) + (2.0 * f + f * square * tail)


@_log_by_series.defjvp
def _log_by_series_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (x,) = primals
    return _log_by_series(x), tangents[0] / x
