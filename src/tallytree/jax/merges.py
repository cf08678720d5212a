"""Merges of messages in plain numbers: array code, or kernels on CUDA devices, differentiable to any order.

Both are linear in either argument, and kernels of each transpose those of the other:

    convolve(., b)^T = correlate(., b),    correlate(., s)^T = convolve(., s),    correlate(p, .)^T = correlate(p, .)
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from . import positive
from .linear import solved
from .stages import dispatched, on_cpu

FEWEST = 16  # terms that a kernel is worth; fewer are one expression for XLA


def convolve(a: Any, b: Any) -> Any:
    """All sums ``a[j] b[k - j]``."""
    if on_cpu() or min(a.shape[-1], b.shape[-1]) < FEWEST:
        return positive.convolve(a, b)
    return _by_rows(_convolve, a, b)


def correlate(p: Any, s: Any) -> Any:
    """All sums ``p[i + j] s[j]``, i from 0 to ``len(p) - len(s)``."""
    if on_cpu() or s.shape[-1] < FEWEST:
        return positive.correlate(p, s)
    return _by_rows(_correlate, p, s)


def _by_rows(merge: Any, a: Any, b: Any) -> Any:
    """`merge` of matrices of messages."""
    lead = positive.common(a, b)
    rows = math.prod(lead)
    found = merge(*(jnp.broadcast_to(x, (*lead, x.shape[-1])).reshape(rows, x.shape[-1]) for x in (a, b)))
    return found.reshape(*lead, found.shape[-1])


@jax.custom_jvp
def _convolve(a: Any, b: Any) -> Any:
    return dispatched(lambda k: k.convolve, positive.convolve, a, b)


@_convolve.defjvp
def _convolve_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (a, b), (da, db) = primals, tangents
    return _convolve(a, b), _convolve_with(b, da) + _convolve_with(a, db)


def _convolve_with(b: Any, x: Any) -> Any:
    """``convolve(x, b)``, linear in x."""
    return _linear(positive.convolve, _convolve, _correlate, b, x, x.shape[-1] + b.shape[-1] - 1)


@jax.custom_jvp
def _correlate(p: Any, s: Any) -> Any:
    return dispatched(lambda k: k.correlate, positive.correlate, p, s)


@_correlate.defjvp
def _correlate_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (p, s), (dp, ds) = primals, tangents
    width = p.shape[-1] - s.shape[-1] + 1
    in_p = _linear(positive.correlate, _correlate, _convolve, s, dp, width)

    def backwards(merge: Any) -> Any:
        return lambda x, p: merge(p, x)

    plain, forth = backwards(positive.correlate), backwards(_correlate)
    in_s = _linear(plain, forth, forth, p, ds, width)
    return _correlate(p, s), in_p + in_s


def _linear(plain: Any, forth: Any, back: Any, fixed: Any, x: Any, width: int) -> Any:
    """``plain(x, fixed)``, (P, width), which `forth` computes and `back` transposes."""

    def alone(merge: Any) -> Any:
        return lambda given: (merge(given[0], fixed),)

    return solved(alone(plain), alone(forth), alone(back), fixed, (x,), (x.shape[0], width))[0]
