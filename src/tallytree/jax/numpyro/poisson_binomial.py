"""The Poisson-binomial law as a distribution of NumPyro."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from ... import checks
from ...errors import ParameterError
from .. import answers, draws
from ..arguments import read
from ..arrays import as_array, holds, in_floats_of_jax, is_concrete
from ..precision import in_own_floats, working_dtype


class PoissonBinomial(Distribution):  # type: ignore[misc]
    """The number of independent variables that are on, with unequal probabilities.

    Parameters
    ----------
    logits, probs : array, (..., D)
        One of the two.
    validate_args : bool, optional
        As in :class:`numpyro.distributions.Distribution`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.PoissonBinomial

    Examples
    --------
    >>> jnp.exp(PoissonBinomial(probs=jnp.array([0.5, 0.5])).log_prob(jnp.arange(3)))
    Array([0.25, 0.5 , 0.25], dtype=float32)
    """

    arg_constraints = {"logits": constraints.real_vector}  # noqa: RUF012
    pytree_data_fields = ("logits",)

    def __init__(self, logits: Any = None, *, probs: Any = None, validate_args: bool | None = None) -> None:
        if (logits is None) == (probs is None):
            raise ParameterError("Give one of `logits` and `probs`; both or neither arrived.")
        if logits is None:
            probs = in_floats_of_jax("probs", probs, axis="variables")
            if is_concrete(probs) and not bool(jnp.all((probs >= 0) & (probs <= 1))):
                raise ParameterError("`probs` must lie in [0, 1]; others arrived.")
            logits = jnp.log(probs) - jnp.log1p(-probs)
        self.logits = in_floats_of_jax("logits", logits, axis="variables")
        if is_concrete(self.logits):
            in_own_floats(read)(self.logits)
        super().__init__(self.logits.shape[:-1], (), validate_args=validate_args)

    @property
    def support(self) -> Any:
        """Integers from 0 to the number of variables."""
        return constraints.integer_interval(0, self.logits.shape[-1])

    @property
    def mean(self) -> Any:
        """Sum of the probabilities.

        See Also
        --------
        variance

        Examples
        --------
        >>> d = PoissonBinomial(probs=jnp.array([0.5, 0.5]))
        >>> d.mean
        Array(1., dtype=float32)
        """
        return jnp.broadcast_to(jnp.sum(jax.nn.sigmoid(self.logits), -1), self.batch_shape)

    @property
    def variance(self) -> Any:
        """Sum of p (1 - p).

        See Also
        --------
        mean

        Examples
        --------
        >>> d = PoissonBinomial(probs=jnp.array([0.5, 0.5]))
        >>> d.variance
        Array(0.5, dtype=float32)
        """
        found = jnp.sum(jax.nn.sigmoid(self.logits) * jax.nn.sigmoid(-self.logits), -1)
        return jnp.broadcast_to(found, self.batch_shape)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Sums of independent draws.

        Parameters
        ----------
        key : PRNG key
            Source of randomness.
        sample_shape : tuple of int
            Leading axes of the draws.

        Returns
        -------
        jax.Array, (sample_shape..., ...)
            Counts; -1, which is none, where NaN arrived under a transformation.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> d = PoissonBinomial(probs=jnp.array([0.5, 0.5]))
        >>> d.sample(jax.random.key(0), (5,)).shape
        (5,)
        """
        draws.require_key(key)
        shape = (*draws.sample_shape_of(sample_shape), *self.batch_shape, self.logits.shape[-1])
        drawn = jnp.sum(jax.random.bernoulli(key, jax.nn.sigmoid(self.logits), shape), -1)
        return jnp.where(jnp.any(jnp.isnan(self.logits), -1), -1, drawn)

    @validate_sample  # type: ignore[untyped-decorator]
    def log_prob(self, value: Any) -> Any:
        """Log-probability of counts; every value costs one pass, whose gradient is right in the far tails.

        Parameters
        ----------
        value : array
            Where to evaluate.

        Returns
        -------
        jax.Array, (sample..., ...)
            Logarithms.

        Raises
        ------
        ParameterError
            If `value` does not hold numbers.

        See Also
        --------
        enumerate_support, sample

        Examples
        --------
        >>> d = PoissonBinomial(probs=jnp.array([0.5, 0.5]))
        >>> jnp.exp(d.log_prob(jnp.arange(3)))
        Array([0.25, 0.5 , 0.25], dtype=float32)
        """
        n = self.logits.shape[-1]
        count = as_array("value", value, f"counts; {checks.describe(value)} arrived.")
        if not holds(count, jnp.floating, jnp.integer, jnp.bool_):
            raise ParameterError(f"`value` must hold counts; {checks.describe(value)} arrived.")
        count = jnp.asarray(count)
        shape = jnp.broadcast_shapes(count.shape, self.batch_shape)
        logits = jnp.broadcast_to(self.logits, (*shape, n))
        count = jnp.broadcast_to(count, shape)
        table = jnp.where(jnp.arange(n + 1) == count[..., None], 0.0, -jnp.inf).astype(self.logits.dtype)
        return _event_log_prob(logits, table)

    def enumerate_support(self, expand: bool = True) -> Any:
        """All counts.

        Parameters
        ----------
        expand : bool
            Whether to expand over the batch.

        Returns
        -------
        jax.Array, (n + 1, ...)
            Counts.

        See Also
        --------
        log_prob, support

        Examples
        --------
        >>> d = PoissonBinomial(probs=jnp.array([0.5, 0.5]))
        >>> d.enumerate_support()
        Array([0, 1, 2], dtype=int32)
        """
        values = jnp.arange(self.logits.shape[-1] + 1).reshape(-1, *[1] * len(self.batch_shape))
        return jnp.broadcast_to(values, (len(values), *self.batch_shape)) if expand else values

    has_enumerate_support = True


@in_own_floats
def _event_log_prob(logits: Any, table: Any) -> Any:
    """``log P(count allowed by the table)``, subtracted in 64 bits."""
    wide = logits.astype(working_dtype())
    return (answers.log_partition(wide, table) - answers.log_partition(wide)).astype(logits.dtype)
