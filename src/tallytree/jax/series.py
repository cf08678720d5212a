"""Sums over frequencies as polynomials, for all variables of a model at once.

What a variable adds depends on one number v, and smoothly. For v = c (1 + x), x in [-1, 1], and with Chebyshev's T_j,

    1 / (1 - v y) = (1 + 2 sum_j r^j T_j(x)) / root,    root = (1 - 2 c y)^(1/2),    r = c y / (1 - c y + root),

so that what follows the first J terms is at most 2 r^J / ((1 - r) root). Frequencies with r near 1 have small weights
if the variance is large: a dozen terms then stand for all frequencies, and no pair of variable and frequency is left.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from .linear import plus
from .precision import unit_roundoff

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
