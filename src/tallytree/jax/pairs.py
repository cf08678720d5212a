"""Two linear maps over pairs of variable and frequency, each the other's transpose, for derivatives of any order.

    over_variables:    x -> sum_i x_i / (1 - v_i versine_m)
    over_frequencies:  a -> sum_m a_m / (1 - v_i versine_m)

On a CPU they are plain sums, on CUDA devices kernels; see :mod:`.linear` for how those are transposed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .linear import solved
from .stages import dispatched, on_cpu


@jax.checkpoint
def _over_variables(v: Any, versine: Any, given: Any) -> Any:
    """Plain sums; pairs are computed again when they are differentiated backwards."""
    weight = 1.0 / (1.0 - v[:, :, None] * versine[:, None])
    return tuple(jnp.sum(x[:, :, None] * weight, 1) for x in given)


@partial(jax.checkpoint, static_argnums=0)
def plain_over_frequencies(power: int, v: Any, versine: Any, given: Any) -> Any:
    """The same for the other sum."""
    weight = (1.0 / (1.0 - v[:, None] * versine[:, :, None])) ** power
    return tuple(jnp.sum(a[:, :, None] * weight, 1) for a in given)


def pairs_over_variables(v: Any, versine: Any, given: Any, needed: Any) -> Any:
    """``sum_i x_i / (1 - v_i versine_m)`` for every x in `given`, (B, M) each from (B, n)."""

    def plain(given: Any) -> Any:
        return _over_variables(v, versine, given)

    if on_cpu() or v.shape[0] == 0:
        return plain(given)
    return solved(plain, _forth(v, versine, needed), _back(v, versine, needed), v, given, versine.shape)


def pairs_over_frequencies(power: int, v: Any, versine: Any, given: Any, needed: Any) -> Any:
    """``sum_m a_m / (1 - v_i versine_m)^power`` for every a in `given`, (B, n) each from (B, M)."""

    def plain(given: Any) -> Any:
        return plain_over_frequencies(power, v, versine, given)

    if on_cpu() or v.shape[0] == 0 or power > 1:
        return plain(given)
    return solved(plain, _back(v, versine, needed), _forth(v, versine, needed), v, given, v.shape)


def _forth(v: Any, versine: Any, needed: Any) -> Any:
    def plain(v: Any, versine: Any, given: Any, needed: Any) -> Any:
        return _over_variables(v, versine, given)

    return lambda given: dispatched(lambda k: k.over_variables, plain, v, versine, given, needed)


def _back(v: Any, versine: Any, needed: Any) -> Any:
    def plain(v: Any, versine: Any, given: Any, needed: Any) -> Any:
        return plain_over_frequencies(1, v, versine, given)

    return lambda given: dispatched(
        lambda k: partial(k.over_frequencies, 1), plain, v, versine, given, needed
    )
