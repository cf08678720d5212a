"""Sums over variables and frequencies: the characteristic function, transforms of tables, leave-one-out sums.

With phi_i(w) = q_i + p_i e^{iw} and v_i = 2 p_i q_i, |phi_i(w)|^2 = 1 - v_i (1 - cos w), so that everything that is due
to a pair of variable and frequency is one division. Values are computed in stages (CPU) or kernels (CUDA) that do not
store pairs. Derivatives of any order need two linear maps, each the other's transpose:

    over_variables:    x -> sum_i x_i / (1 - v_i versine_m)
    over_frequencies:  a -> sum_m a_m / (1 - v_i versine_m)

What a variable adds depends on one number v, and smoothly: in long models polynomials stand for sums over frequencies.
For v = c (1 + x), x in [-1, 1], and with Chebyshev's T_j,

    1 / (1 - v y) = (1 + 2 sum_j r^j T_j(x)) / root,    root = (1 - 2 c y)^(1/2),    r = c y / (1 - c y + root),

so that what follows the first J terms is at most 2 r^J / ((1 - r) root). Frequencies with r near 1 have small weights
if the variance is large: a dozen terms then stand for all frequencies, and no pair of variable and frequency is left.

The frequencies of a period N, w_m = 2 pi m / N, come from a static list. All angles that are ever needed are integer
multiples of w_m, so they are reduced modulo N before any sine is taken, once, outside the compiler: a model picks its
row of these constants. ``e^{-iwk}`` for all counts k = a S + b of a table comes from the powers a S and the powers b.
"""

from __future__ import annotations

import math
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..memo import lru
from .arrays import unit_roundoff
from .stages import AT_ONCE, dispatched, on_cpu, plus, solved, staged

MOST = 40  # frequencies; enough for any variance if 32 nats are kept of a unimodal posterior
# What lies further below the largest term is left out: 1e-14, and the certificate accounts for it.
NATS = 32.0
_STORED = 1 << 10  # up to so many variables all powers are constants; beyond they are multiplied together
_FACTORS_AT_ONCE = 16  # factors that are multiplied in registers before a partial product is stored
SERIES_FROM = 256  # variables; the variance of fewer is seldom large enough for series to serve


class Frequencies(NamedTuple):
    """The frequencies of a batch, (B, M) unless said otherwise."""

    period: Any  # (B, 1) odd
    needed: Any  # (B,) how many of them are needed; beyond them the characteristic function is negligible
    omitted: Any  # (B, 1) 1 - cos of the first frequency left out; inf: none is
    share: Any  # weight in a sum over all frequencies: conjugate pairs count twice, unused ones 0
    versine: Any  # 1 - cos w
    sine: Any
    small: tuple[Any, Any]  # (B, S, M) e^{-iwb}, real and imaginary parts
    large: tuple[Any, Any]  # (B, n / S + 1, M) e^{-iwaS}
    powers: Any  # the same two before models picked theirs, (K, ..., M), and which they pick, (B,)


def choose_frequencies(least: Any, variance: Any, n: int) -> Frequencies:
    """The smallest period in the list that is at least so long, for models of n variables; both are (B, 1)."""
    table = _constants(n)
    place = jnp.sum(table.period[:, 0] < least, -1, dtype=jnp.int32)
    place = jnp.minimum(place, np.int32(len(table.period) - 1))

    def taken(constant: Any) -> Any:
        return jnp.asarray(constant).at[place].get(mode="promise_in_bounds")

    plain = [taken(x) for x in (table.period, table.share, table.versine, table.sine)]
    # |Phat(w)| <= exp(-variance (1 - cos w)), a quarter less without one variable.
    last = jnp.sqrt(0.5 * (NATS + 2.0) / jnp.maximum(variance - 0.25, 1e-3))
    last = jnp.arcsin(jnp.minimum(last, 1.0)) / np.pi * plain[0]
    most = np.float64(table.share.shape[-1])
    needed = jnp.minimum(jnp.minimum(jnp.floor(last) + 1.0, most), (plain[0] + 1.0) / 2.0)
    omitted = jnp.where(2.0 * needed < plain[0], 2.0 * jnp.sin(np.pi * needed / plain[0]) ** 2, jnp.inf)
    small, large = (tuple(taken(x) for x in pair) for pair in (table.small, table.large))
    powers: Any = table.small, table.large, place
    if n > _STORED:
        final = tuple(x[:, -1:] for x in large)
        whole = _multiplied(tuple(x[:, :-1] for x in large))
        small, large = _multiplied(small), tuple(jnp.concatenate(pair, 1) for pair in zip(whole, final))
        powers = small, large, jnp.arange(place.shape[0], dtype=jnp.int32)
    count = needed[:, 0].astype(jnp.int32)
    return Frequencies(plain[0], count, omitted, plain[1], plain[2], plain[3], small, large, powers)


def times(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
    """``(a + ib)(c + id)``."""
    return a * c - b * d, a * d + b * c


def _multiplied(bits: tuple[Any, Any]) -> tuple[Any, Any]:
    """From the powers 1, 2, 4, ..., (B, bits, M), all powers from 0 to 2^bits - 1."""
    re, im = jnp.ones_like(bits[0][:, :1]), jnp.zeros_like(bits[1][:, :1])
    for j in range(bits[0].shape[1]):
        more = times(re, im, *(x[:, j : j + 1] for x in bits))
        re, im = (jnp.concatenate(pair, 1) for pair in zip((re, im), more))
    return re, im


@lru(32)
def _constants(n: int) -> Frequencies:
    """Everything about every period in the list, for tables of n + 1 entries, n a power of two."""
    periods = _periods(n)
    count = -(-min(MOST, (int(periods[-1]) + 1) // 2) // AT_ONCE) * AT_ONCE
    m, column = np.arange(count), periods[:, None]
    used = 2 * m < column
    half = np.pi * m / column
    bits = n.bit_length() - 1
    size = 1 << (bits + 1) // 2
    steps = np.arange(size), size * np.arange(n // size + 1)
    if n > _STORED:  # as `_multiplied` wants them, and the last
        steps = 1 << np.arange((bits + 1) // 2), np.append(size << np.arange(bits // 2), n)
    return Frequencies(
        column.astype(float),
        None,
        None,
        np.where(used, np.where(m == 0, 1.0, 2.0), 0.0) / column,
        np.where(used, 2.0 * np.sin(half) ** 2, 0.0),
        np.where(used, np.sin(2.0 * half), 0.0),
        _turns(periods, m, steps[0]),
        _turns(periods, m, steps[1]),
        None,
    )


def _turns(periods: Any, m: Any, counts: Any) -> tuple[Any, Any]:
    """``e^{-i w_m c}`` for every period and count, (periods, counts, M)."""
    column = periods[:, None, None]
    angle = 2.0 * np.pi * (m * counts[:, None] % column) / column
    return np.cos(angle), -np.sin(angle)


def _periods(n: int) -> Any:
    """Odd numbers, each at most a tenth or two more than the one before; the last is all that is ever needed.

    Either no two counts of a table fall together, or the variance is so large (at most n / 4) that the frequencies
    that are kept reach to where the characteristic function vanishes.
    """
    longest = min(n + 1, max(2 * MOST, int(2.0 * np.pi * MOST * np.sqrt(n / (8.0 * NATS)))))
    found = [3]
    while found[-1] < longest:
        found.append(max(found[-1] + 2, int(found[-1] * 1.1) | 1))
    found[-1] = max(longest | 1, 3)
    return np.array(sorted(set(found)))


@jax.custom_jvp
def characteristic(p: Any, versine: Any, sine: Any, needed: Any) -> Any:
    """Real and imaginary part of ``prod_i (1 - p_i + p_i e^{iw})``, (B, M) from (B, n) and (B, M)."""
    if on_cpu() or p.shape[0] == 0:
        return _product(*staged(_partial_products, needed, (p,), (versine, sine), sums=False))

    def plain(p: Any, versine: Any, sine: Any, needed: Any) -> tuple[Any, Any]:
        return _product(*_partial_products(p, versine, sine))

    return dispatched(lambda k: k.products, plain, p, versine, sine, needed)


def _partial_products(p: Any, versine: Any, sine: Any) -> tuple[Any, Any]:
    """Products of a few factors each, (B, parts, M)."""
    rows, n = p.shape
    at_once = math.gcd(n, _FACTORS_AT_ONCE)
    parts = p.reshape(rows, at_once, n // at_once)
    own = [parts[:, j, :, None] for j in range(at_once)]
    factors = [(1.0 - x * versine[:, None], x * sine[:, None]) for x in own]
    while len(factors) > 1:
        factors = [times(*a, *b) for a, b in zip(factors[0::2], factors[1::2])]
    return factors[0]


def _product(re: Any, im: Any) -> tuple[Any, Any]:
    one, zero = np.ones((), re.dtype), np.zeros((), re.dtype)
    re, im = lax.reduce((re, im), (one, zero), lambda a, b: times(*a, *b), (1,))
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
        return _over_frequencies_on_cpu(power, v, versine, given, needed)
    return _dispatched_over_frequencies(power, v, versine, given, needed)


def _dispatched_over_frequencies(power: int, v: Any, versine: Any, given: Any, needed: Any) -> Any:
    plain = partial(_over_frequencies, power)
    return dispatched(lambda k: partial(k.over_frequencies, power), plain, v, versine, given, needed)


def _over_frequencies_on_cpu(power: int, v: Any, versine: Any, given: Any, needed: Any) -> Any:
    """The same by series where those may serve; loops over frequencies are for what they leave."""
    waves = versine, *given
    if power > 1 or v.shape[0] == 0 or v.shape[-1] < SERIES_FROM:
        return staged(partial(_sums, power), needed, (v,), waves, sums=True)
    series = series_of(v, versine, given)
    rest = jnp.where(series.serves, 0, needed)
    sums = staged(partial(_sums, 1), rest, (v,), waves, sums=True)
    # A loop of one turn at most, so that what it reads is stored.
    return lax.while_loop(
        lambda state: state[0],
        lambda state: (jnp.zeros((), bool), plus(state[1], polynomials(series))),
        (series.serves, sums),
    )[1]


def _sums(power: int, v: Any, versine: Any, *given: Any) -> tuple[Any, ...]:
    weight = (1.0 / (1.0 - v[:, None] * versine[:, :, None])) ** power
    terms = tuple(weight * a[:, :, None] for a in given)
    zero = np.zeros((), v.dtype)
    return tuple(lax.reduce(terms, (zero,) * len(given), plus, (1,)))


@over_frequencies.defjvp
def _over_frequencies_jvp(power: int, primals: Any, tangents: Any) -> Any:
    v, versine, given, needed = primals
    d_v, _, d_given, _ = tangents
    linear = pairs_over_frequencies(power, v, versine, d_given, needed)
    bent = over_frequencies(power + 1, v, versine, tuple(versine * a for a in given), needed)
    moved = tuple(x + power * d_v * y for x, y in zip(linear, bent))
    return over_frequencies(power, *primals), moved


@jax.custom_jvp
def transform(f: Any, frequencies: Frequencies, window: Any) -> Any:
    """``sum_k f_k e^{-iwk}``, (B, M); f is (B, n + 1) and 0 outside of a window (B, 2) of counts."""
    if on_cpu() or f.shape[0] == 0:
        return _by_turns(f, frequencies.versine, frequencies.sine, frequencies.powers, window)

    def plain(f: Any, frequencies: Any, window: Any) -> tuple[Any, Any]:
        return _transform(f, frequencies.small, frequencies.large)

    return dispatched(lambda k: k.transform, plain, f, frequencies, window)


def _blocks(f: Any, small: Any) -> Any:
    """All entries but the last, (B, n / S, S)."""
    blocks = lax.slice_in_dim(f, 0, -1, axis=1)
    return blocks.reshape(f.shape[0], f.shape[1] // small[0].shape[1], small[0].shape[1])


def _by_turns(f: Any, versine: Any, sine: Any, powers: Any, window: Any) -> tuple[Any, Any]:
    """Count by count down to the first of every model, turned by -w each time; ``e^{-iwk}`` is looked up there."""
    small, large, place = powers
    size = np.int32(small[0].shape[1])
    first, last = window[:, 0], window[:, 1]
    start = times(
        *(jnp.asarray(x).at[place, first % size].get(mode="promise_in_bounds") for x in small),
        *(jnp.asarray(x).at[place, first // size].get(mode="promise_in_bounds") for x in large),
    )
    cosine = 1.0 - versine

    def more(state: Any) -> Any:
        k, re, im = state
        at = jnp.minimum(first + k, last)[:, None]
        weight = jnp.take_along_axis(f, at, 1, mode="promise_in_bounds")
        weight = jnp.where((first + k <= last)[:, None], weight, 0.0)
        return k - 1, re * cosine + im * sine + weight, im * cosine - re * sine

    zeros = jnp.zeros_like(versine), jnp.zeros_like(versine)
    found = lax.while_loop(lambda state: state[0] >= 0, more, (jnp.max(last - first, initial=-1), *zeros))
    return times(*start, *found[1:])


def _transform(f: Any, small: Any, large: Any) -> tuple[Any, Any]:
    inner = (_dots(_blocks(f, small), x, 1) for x in small)
    re, im = times(*inner, *(x[:, :-1] for x in large))
    last = lax.slice_in_dim(f, -1, None, axis=1)
    return jnp.sum(re, 1) + last * large[0][:, -1], jnp.sum(im, 1) + last * large[1][:, -1]


@transform.defjvp
def _transform_jvp(primals: Any, tangents: Any) -> Any:
    frequencies = primals[1]
    return transform(*primals), _transform(tangents[0], frequencies.small, frequencies.large)


def inverse(re: Any, im: Any, small: Any, large: Any) -> Any:
    """``Re sum_m h_m e^{-iwk}`` for all k = large S + small, (B, L, S)."""
    turned = times(re[:, None], im[:, None], *large)
    return _dots(turned[0], small[0], 2) - _dots(turned[1], small[1], 2)


def _dots(a: Any, b: Any, axis: int) -> Any:
    """Sums of products over the last axis of `a` and an axis of `b`, row by row.

    Not `einsum`: that names the dtype of its answer, which JAX takes for 32 bits where it transposes outside of ours.
    """
    return lax.dot_general(a, b, (((2,), (axis,)), ((0,), (0,))))


@jax.checkpoint
def _over_variables(v: Any, versine: Any, given: Any, needed: Any) -> Any:
    """Plain sums; pairs are computed again when they are differentiated backwards."""
    weight = 1.0 / (1.0 - v[:, :, None] * versine[:, None])
    return tuple(jnp.sum(x[:, :, None] * weight, 1) for x in given)


@partial(jax.checkpoint, static_argnums=0)
def _over_frequencies(power: int, v: Any, versine: Any, given: Any, needed: Any) -> Any:
    """The same for the other sum."""
    weight = (1.0 / (1.0 - v[:, None] * versine[:, :, None])) ** power
    return tuple(jnp.sum(a[:, :, None] * weight, 1) for a in given)


def pairs_over_variables(v: Any, versine: Any, given: Any, needed: Any) -> Any:
    """``sum_i x_i / (1 - v_i versine_m)`` for every x in `given`, (B, M) each from (B, n)."""
    if on_cpu() or v.shape[0] == 0:
        return _over_variables(v, versine, given, needed)
    plain, forth, back = _maps(v, versine, needed)
    return solved(plain, forth, back, v, given, versine.shape)


def pairs_over_frequencies(power: int, v: Any, versine: Any, given: Any, needed: Any) -> Any:
    """``sum_m a_m / (1 - v_i versine_m)^power`` for every a in `given`, (B, n) each from (B, M)."""
    if on_cpu() or v.shape[0] == 0 or power > 1:
        return _over_frequencies(power, v, versine, given, needed)
    _, forth, back = _maps(v, versine, needed)
    return solved(lambda x: _over_frequencies(1, v, versine, x, needed), back, forth, v, given, v.shape)


def _maps(v: Any, versine: Any, needed: Any) -> Any:
    """Sums over variables in plain code and by kernels, and sums over frequencies by kernels."""

    def forth(given: Any) -> Any:
        return dispatched(lambda k: k.over_variables, _over_variables, v, versine, given, needed)

    def back(given: Any) -> Any:
        return _dispatched_over_frequencies(1, v, versine, given, needed)

    return lambda given: _over_variables(v, versine, given, needed), forth, back


# XLA cuts an expression into tasks for threads, at a price of ten thousand additions, if it has more operations than
# bytes to read and write. A polynomial with so many terms, added to a stored array, has not.
TERMS = 12


class Series(NamedTuple):
    """The polynomials of a batch, and whether they serve."""

    x: Any  # (B, n)
    coefficients: tuple[Any, ...]  # (B, TERMS) of powers of x
    serves: Any  # whether all remainders are below the round-off of the sum of the largest |a|


def series_of(v: Any, versine: Any, given: tuple[Any, ...]) -> Series:
    """``sum_m a_m / (1 - v versine_m)`` for every a in `given`, (B, M). Not differentiable."""
    centre = 0.5 * jnp.max(v, -1, keepdims=True)
    half = centre * versine
    root = jnp.sqrt(1.0 - 2.0 * half)
    ratio = half / (1.0 - half + root)
    size = reduce(jnp.maximum, (jnp.abs(a) for a in given))
    rest = 2.0 * size * ratio**TERMS / ((1.0 - ratio) * root)
    zero = np.zeros((), v.dtype)
    total, lost = lax.reduce((size, rest), (zero, zero), plus, (1,))
    serves = jnp.all(lost <= unit_roundoff(v.dtype) * total)  # what is not a number does not serve either
    # In powers of x coefficients grow by less than 5/2 per term, which a remainder so small makes up for.
    weights = jnp.einsum("ij,bjm->bim", _CHEBYSHEV, _powers(ratio)) / root[:, None]
    x = v * jnp.where(centre > 0.0, 1.0 / centre, 0.0) - 1.0
    terms = tuple(a[:, None] * weights for a in given)
    return Series(x, tuple(lax.reduce(terms, (zero,) * len(given), plus, (2,))), serves)


def polynomials(series: Series) -> tuple[Any, ...]:
    """The sums at every variable, (B, n) each, by Horner's scheme."""
    found = []
    for coefficients in series.coefficients:
        value = coefficients[:, -1:]
        for j in reversed(range(TERMS - 1)):
            value = value * series.x + coefficients[:, j : j + 1]
        found.append(value)
    return tuple(found)


def _powers(x: Any) -> Any:
    """``x^j`` for all j below TERMS, (B, TERMS, M) from (B, M), as one expression."""
    exponents = np.arange(TERMS)
    found = jnp.ones_like(x)[:, None]
    for bit in range(TERMS.bit_length()):
        used = (exponents >> bit & 1 > 0)[:, None]
        found = found * jnp.where(used, (x ** (1 << bit))[:, None], 1.0)
    return found


def _in_powers() -> Any:
    """Coefficients of x^i in T_0 and all 2 T_j below TERMS, (TERMS, TERMS)."""
    found = np.zeros((TERMS, TERMS))
    for j in range(TERMS):
        column = np.polynomial.chebyshev.cheb2poly(np.eye(TERMS)[j])
        found[: len(column), j] = column * (1.0 if j == 0 else 2.0)
    return found


_CHEBYSHEV = _in_powers()
