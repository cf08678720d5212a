"""Sums over variables and frequencies: the characteristic function, transforms of tables, leave-one-out sums.

With phi_i(w) = q_i + p_i e^{iw} and v_i = 2 p_i q_i, |phi_i(w)|^2 = 1 - v_i (1 - cos w), so that everything that is due
to a pair of variable and frequency is one division. Values are computed in stages (CPU) or kernels (CUDA) that do not
store pairs; tangents by the linear maps of :mod:`.pairs`, which can be transposed.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .frequencies import Frequencies, times
from .linear import plus
from .pairs import pairs_over_frequencies, pairs_over_variables, plain_over_frequencies
from .series import polynomials, series_of
from .stages import dispatched, on_cpu, staged

AT_ONCE = 16  # factors that are multiplied in registers before a partial product is stored
SERIES_FROM = 256  # variables; the variance of fewer is seldom large enough for series to serve


@jax.custom_jvp
def characteristic(p: Any, versine: Any, sine: Any, needed: Any) -> tuple[Any, Any]:
    """Real and imaginary part of ``prod_i (1 - p_i + p_i e^{iw})``, (B, M) from (B, n) and (B, M)."""
    if on_cpu() or p.shape[0] == 0:
        return _product(*staged(_partial_products, needed, (p,), (versine, sine), sums=False))

    def plain(p: Any, versine: Any, sine: Any, needed: Any) -> tuple[Any, Any]:
        return _product(*_partial_products(p, versine, sine))

    found: tuple[Any, Any] = dispatched(lambda k: k.products, plain, p, versine, sine, needed)
    return found


def _partial_products(p: Any, versine: Any, sine: Any) -> tuple[Any, Any]:
    """Products of a few factors each, (B, parts, M)."""
    rows, n = p.shape
    at_once = math.gcd(n, AT_ONCE)
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

    def plain(v: Any, versine: Any, given: Any, needed: Any) -> Any:
        return plain_over_frequencies(power, v, versine, given)

    return dispatched(lambda k: partial(k.over_frequencies, power), plain, v, versine, given, needed)


def _over_frequencies_on_cpu(power: int, v: Any, versine: Any, given: Any, needed: Any) -> Any:
    """The same by series where those may serve; loops over frequencies are for what they leave."""
    waves = versine, *given
    if power > 1 or v.shape[0] == 0:
        return staged(partial(_sums, power), needed, (v,), waves, sums=True)
    if v.shape[-1] < SERIES_FROM:
        return staged(_sums_in_pairs, needed, (v,), waves, sums=True)
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


def _sums_in_pairs(v: Any, versine: Any, *given: Any) -> tuple[Any, ...]:
    """The same for power 1, written out; two frequencies share a division."""
    sums = [jnp.zeros_like(v) for _ in given]
    for m in range(0, versine.shape[-1], 2):
        first, second = (1.0 - v * versine[:, i : i + 1] for i in (m, m + 1))
        weight = 1.0 / (first * second)
        sums = [
            s + weight * (a[:, m : m + 1] * second + a[:, m + 1 : m + 2] * first) for s, a in zip(sums, given)
        ]
    return tuple(sums)


@over_frequencies.defjvp
def _over_frequencies_jvp(power: int, primals: Any, tangents: Any) -> Any:
    v, versine, given, needed = primals
    d_v, _, d_given, _ = tangents
    linear = pairs_over_frequencies(power, v, versine, d_given, needed)
    bent = over_frequencies(power + 1, v, versine, tuple(versine * a for a in given), needed)
    moved = tuple(x + power * d_v * y for x, y in zip(linear, bent))
    return over_frequencies(power, *primals), moved


@jax.custom_jvp
def transform(f: Any, frequencies: Frequencies, window: Any) -> tuple[Any, Any]:
    """``sum_k f_k e^{-iwk}``, (B, M); f is (B, n + 1) and 0 outside of a window (B, 2) of counts."""
    if on_cpu() or f.shape[0] == 0:
        return _by_turns(f, frequencies.versine, frequencies.sine, frequencies.powers, window)

    def plain(f: Any, frequencies: Any, window: Any) -> tuple[Any, Any]:
        return _transform(f, frequencies.small, frequencies.large)

    found: tuple[Any, Any] = dispatched(lambda k: k.transform, plain, f, frequencies, window)
    return found


def _blocks(f: Any, small: Any) -> Any:
    """All entries but the last, (B, n / S, S)."""
    return f[:, :-1].reshape(f.shape[0], f.shape[1] // small[0].shape[1], small[0].shape[1])


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
    inner = (jnp.einsum("bls,bsm->blm", _blocks(f, small), x) for x in small)
    re, im = times(*inner, *(x[:, :-1] for x in large))
    return jnp.sum(re, 1) + f[:, -1:] * large[0][:, -1], jnp.sum(im, 1) + f[:, -1:] * large[1][:, -1]


@transform.defjvp
def _transform_jvp(primals: Any, tangents: Any) -> Any:
    frequencies = primals[1]
    return transform(*primals), _transform(tangents[0], frequencies.small, frequencies.large)


def inverse(re: Any, im: Any, small: Any, large: Any) -> Any:
    """``Re sum_m h_m e^{-iwk}`` for all k = large S + small, (B, L, S)."""
    turned = times(re[:, None], im[:, None], *large)
    return jnp.einsum("blm,bsm->bls", turned[0], small[0]) - jnp.einsum("blm,bsm->bls", turned[1], small[1])
