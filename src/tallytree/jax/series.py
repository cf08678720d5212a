"""Sums over frequencies as power series, for all variables of a model at once.

What a variable adds depends on one number v, and smoothly. For v in [0, 2 c], t = y / (1 - c y),

    sum_m a_m / (1 - v y_m) = sum_j (v - c)^j sum_m a_m t_m^j / (1 - c y_m),

and what follows the first J terms is at most sum_m |a_m| (c t_m)^J / (1 - 2 c y_m). Frequencies y that come close to
1 / v have small a if the variance is large: a dozen terms then stand for all frequencies, without a division.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .linear import plus
from .precision import unit_roundoff

AT_ONCE = 12  # terms: XLA cuts an expression of more operations into tasks for threads, which cost more than they save
MOST = 3  # times so many terms


class Series(NamedTuple):
    """Where the series serve, and how many terms they take."""

    centre: Any  # (B, 1)
    ratio: Any  # (B, M) t
    share: Any  # (B, M) 1 / (1 - c y)
    times: Any  # so many times AT_ONCE terms; 0 if MOST are not enough for all models


def series_for(v: Any, versine: Any, given: tuple[Any, ...]) -> Series:
    """Series whose remainders are below the round-off of the sum of the largest |a|. Not differentiable."""
    centre = 0.5 * jnp.max(v, -1, keepdims=True)
    share = 1.0 / (1.0 - centre * versine)
    ratio = versine * share
    size = reduce(jnp.maximum, (jnp.abs(a) for a in given))
    less = (centre * ratio) ** AT_ONCE
    rests = [less * (size / (1.0 - 2.0 * centre * versine))]
    while len(rests) < MOST:
        rests.append(less * rests[-1])
    total, *lost = lax.reduce((size, *rests), (np.zeros((), v.dtype),) * (1 + MOST), plus, (1,))
    # What is not a number is not small enough either; remainders only shrink.
    short = sum(jnp.any(~(x <= unit_roundoff(v.dtype) * total)).astype(jnp.int32) for x in lost)
    return Series(centre, ratio, share, jnp.where(short < MOST, short + 1, 0))


def _powers(x: Any) -> Any:
    """``x^j`` for j below AT_ONCE, (B, AT_ONCE, M) from (B, M), as one expression."""
    exponents = np.arange(AT_ONCE)
    found = jnp.ones_like(x)[:, None]
    for bit in range(AT_ONCE.bit_length()):
        used = (exponents >> bit & 1 > 0)[:, None]
        found = found * jnp.where(used, (x ** (1 << bit))[:, None], 1.0)
    return found


def summed(series: Series, v: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """The series at every v, (B, n) each; 0 where they do not serve. Not differentiable."""
    away = v - series.centre

    def some(state: Any) -> Any:
        number, scale, weight, sums = state
        powers = weight[:, None] * _powers(series.ratio)
        terms = tuple(a[:, None] * powers for a in given)
        coefficients = lax.reduce(terms, (np.zeros((), v.dtype),) * len(given), plus, (2,))
        found = tuple(s + scale * _polynomial(c, away) for s, c in zip(sums, coefficients))
        return number + 1, scale * away**AT_ONCE, weight * series.ratio**AT_ONCE, found

    zeros = tuple(jnp.zeros_like(v) for _ in given)
    start = jnp.zeros((), jnp.int32), jnp.ones_like(v), series.share, zeros
    found: tuple[Any, ...] = lax.while_loop(lambda state: state[0] < series.times, some, start)[3]
    return found


def _polynomial(coefficients: Any, x: Any) -> Any:
    """``sum_j coefficients_j x^j``, from (B, J) and (B, n), by Horner's scheme."""
    found = coefficients[:, -1:]
    for j in reversed(range(coefficients.shape[-1] - 1)):
        found = found * x + coefficients[:, j : j + 1]
    return found
