"""Frequencies of a period, chosen per model from a static list, and their powers.

A law of counts with period N is known by its values at w_m = 2 pi m / N. All angles that are ever needed are integer
multiples of w_m, so they are reduced modulo N before any sine is taken, once, outside the compiler: a model picks its
row of these constants. ``e^{-iwk}`` for all counts k = a S + b of a table comes from the powers a S and the powers b.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .stages import AT_ONCE

MOST = 40  # frequencies; enough for any variance if 32 nats are kept of a unimodal posterior
# What lies further below the largest term is left out: 1e-14, and the certificate accounts for it.
NATS = 32.0
_STORED = 1 << 10  # up to so many variables all powers are constants; beyond they are multiplied together


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


def choose(least: Any, variance: Any, n: int) -> Frequencies:
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


@lru_cache(maxsize=32)
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
