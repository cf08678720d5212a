"""How messages are combined: in plain non-negative numbers, of which nothing is subtracted, in logarithms, by maxima.

    convolve(a, b)[k]  = sum_j a[j] b[k - j]          log_convolve(a, b)[k]  = log sum_j exp(a[j] + b[k - j])
    correlate(p, s)[i] = sum_j p[i + j] s[j]          log_correlate(p, s)[i] = log sum_j exp(p[i + j] + s[j])

All work on the last axis, by array code term by term; those of plain numbers by kernels, too, on CUDA devices. They are
linear in either argument, which is all that derivatives need, and kernels of each transpose those of the other:

    convolve(., b)^T = correlate(., b),    correlate(., s)^T = convolve(., s),    correlate(p, .)^T = correlate(p, .)

A backward pass is traced when the caller's flag, not ours, says which floats there are; transposed dynamic slices and
gathers then make 32-bit zeros. So loops compute values by slices at running places, and tangents by shifting one place
at a time. Short operands need no loop: their products are laid out in an array and summed.

Sums of logarithms are kept relative to their largest term so far, so that every exponential lies in [0, 1]. Derivatives
are expectations under the weights of the terms; an impossible entry has none, so that no derivative is ever NaN.

The logarithm of normal numbers takes a few plain operations; XLA's own takes three times as long on a CPU.

    log 2^k m = k log 2 + 2 (f + f^3 / 3 + f^5 / 5 + ...),    f = (m - 1) / (m + 1),    m from sqrt(1/2) to sqrt(2)

The first term left out is below 1e-18 of f; the result is right to four units of round-off.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
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


def _convolved(a: Any, b: Any, times: Any, fill: float, total: Any, loop: Any) -> Any:
    """All products of two messages, summed: laid out in an array where it holds them, else term by term."""
    if a.shape[-1] > b.shape[-1]:
        a, b = b, a
    if laid_out(a.shape[-1], a.shape[-1] + b.shape[-1], common(a, b)):
        return total(times(a[..., None], toeplitz(b, a.shape[-1], fill)))
    return loop(a, b)


def _correlated(p: Any, s: Any, times: Any, total: Any, loop: Any) -> Any:
    """The same for a message and a shorter one in all places along it."""
    width, few = s.shape[-1], p.shape[-1] - s.shape[-1] + 1
    if laid_out(width, p.shape[-1] + 1, common(p, s)):
        return total(times(hankel(p, width), s[..., None]))
    if few <= FEW_TERMS:
        parts = (lax.slice_in_dim(p, i, i + width, axis=-1) for i in range(few))
        return jnp.concatenate([total(times(part, s)[..., None]) for part in parts], -1)
    return loop(p, s)


def _sum(terms: Any) -> Any:
    return jnp.sum(terms, -2)


def direct_convolve(a: Any, b: Any) -> Any:
    """All sums ``a[j] b[k - j]``."""
    return _convolved(a, b, operator.mul, 0.0, _sum, _long_convolve)


def direct_correlate(p: Any, s: Any) -> Any:
    """All sums ``p[i + j] s[j]``, i from 0 to ``len(p) - len(s)``."""
    return _correlated(p, s, operator.mul, _sum, _long_correlate)


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


# -- logarithms ----------------------------------------------------------------------------------------------------


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
    return _convolved(a, b, operator.add, -jnp.inf, log_total, _long_log_convolve)


def log_correlate(p: Any, s: Any) -> Any:
    """Correlation of exp(p) with exp(s), as logarithms."""
    return _correlated(p, s, operator.add, log_total, _long_log_correlate)


def max_convolve(a: Any, b: Any) -> Any:
    """``max_j a[j] + b[k - j]``."""
    return _convolved(a, b, operator.add, -jnp.inf, lambda terms: jnp.max(terms, -2), _long_max_convolve)


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
def _long_log_convolve(a: Any, b: Any) -> Any:
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


def _long_max_convolve(a: Any, b: Any) -> Any:
    wb = b.shape[-1]

    def step(out: Any, j: Any, a_j: Any) -> Any:
        return put_at(out, jnp.maximum(slice_at(out, j, wb), a_j + b), j)

    return over_terms(step, jnp.full((*common(a, b), a.shape[-1] + wb - 1), -jnp.inf, b.dtype), a)


@_long_log_convolve.defjvp
def _log_convolve_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a, b), (da, db) = primals, tangents
    c = _long_log_convolve(a, b)
    base = finite_or_zero(c)
    wb = b.shape[-1]

    def add(out: Any, j: Any, a_j: Any, da_j: Any) -> Any:
        part = jnp.exp(a_j + b - slice_at(base, j, wb)) * (da_j + db)
        return moved_up(out) + widened(part, out.shape[-1])

    return c, over_terms(add, jnp.zeros_like(c), a, da, reverse=True)


@jax.custom_jvp
def _long_log_correlate(p: Any, s: Any) -> Any:
    width = p.shape[-1] - s.shape[-1] + 1

    def add(state: Any, j: Any, s_j: Any) -> Any:
        top, relative = state
        return join(top, relative, slice_at(p, j, width) + s_j)

    return total(*over_terms(add, empty((*common(p, s), width), p.dtype), s))


@_long_log_correlate.defjvp
def _log_correlate_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (p, s), (dp, ds) = primals, tangents
    c = _long_log_correlate(p, s)
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


# -- arithmetics ---------------------------------------------------------------------------------------------------


class Arithmetic(NamedTuple):
    """How messages are stored and combined."""

    zero: float
    from_log: Callable[[Any], Any]
    log: Callable[[Any], Any]
    convolve: Callable[[Any, Any], Any]
    correlate: Callable[[Any, Any], Any]
    times: Callable[[Any, Any], Any]
    total: Callable[[Any], Any]  # log of the sum along the last axis
    divide: Callable[[Any, Any], Any]  # by exp of a finite logarithm


PLAIN = Arithmetic(
    0.0,
    jnp.exp,
    safe_log,
    convolve,
    correlate,
    lambda a, b: a * b,
    lambda x: safe_log(jnp.sum(x, -1)),
    lambda x, log_scale: x * jnp.exp(-log_scale),
)
LOGARITHMS = Arithmetic(
    -jnp.inf,
    lambda x: x,
    lambda x: x,
    log_convolve,
    log_correlate,
    lambda a, b: a + b,
    log_sum,
    lambda x, log_scale: x - log_scale,
)
# Upward only: the best completion instead of the sum of all.
MAXIMUM = LOGARITHMS._replace(convolve=max_convolve, total=lambda x: jnp.max(x, -1))
