"""Random k-subsets as a distribution of NumPyro."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..potentials import exactly
from .count_distribution import CountDistribution


class ConditionalBernoulli(CountDistribution):
    """Independent Bernoulli variables given that exactly ``total_count`` of them are on: a random k-subset.

    Parameters
    ----------
    total_count : int or integer array
        How many are on.
    logits : array, (..., D)
        Log-odds.
    validate_args : bool, optional
        As in :class:`numpyro.distributions.Distribution`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.numpyro.CountDistribution

    Examples
    --------
    >>> ConditionalBernoulli(1, jnp.zeros(4)).mean
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """

    pytree_data_fields = ("total_count",)

    def __init__(self, total_count: Any, logits: Any, *, validate_args: bool | None = None) -> None:
        potential = exactly(total_count)
        self.total_count = jnp.asarray(total_count)
        super().__init__(logits, potential, validate_args=validate_args)
