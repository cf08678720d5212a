"""The number of independent variables that are on, or their weighted sum, as a distribution of NumPyro."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints, kl_divergence
from numpyro.distributions.util import validate_sample

from ... import checks
from ...checks.sums import grid_step, refuse_whole_law
from ...models.poisson_binomial import WeightedEvents
from .. import draws, laws
from ..arguments import masked, read
from ..arrays import in_floats, in_floats_of_jax, is_concrete, numbers, require, working_dtype
from .binary import LOG_ODDS, OfCounts

_PROBABILITIES = constraints.independent(constraints.unit_interval, 1)


class PoissonBinomial(OfCounts):
    """Number of successes among independent trials with probabilities of their own, as a NumPyro distribution.

    Parameters
    ----------
    logits, probs : array, (..., D)
        Log-odds or probabilities of success; give one of the two. Leading axes are the batch shape.
    mask : array of bool, (..., D), optional
        True for variables that take part; the others are never on.
    validate_args : bool, optional
        As in :class:`numpyro.distributions.Distribution`.
    weights : array_like (D,), optional
        What each success adds to the sum, default 1: integers or, with `step`, real numbers, which are put on a grid
        that keeps their means. They cannot be traced. ``log_prob``, ``cdf`` and ``log_sf`` are then computed on the
        host and have first derivatives only.
    step : float, optional
        Spacing of the grid of real weights.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.PoissonBinomial

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from tallytree.jax.numpyro import PoissonBinomial
    >>> jnp.exp(PoissonBinomial(probs=jnp.array([0.5, 0.5])).log_prob(jnp.arange(3)))
    Array([0.25, 0.5 , 0.25], dtype=float32)
    """

    arg_constraints = {"logits": LOG_ODDS, "probs": _PROBABILITIES}  # noqa: RUF012
    has_enumerate_support = True
    pytree_data_fields = ("_logits", "_probs")
    pytree_aux_fields = ("_weights", "_step")

    def __init__(
        self,
        logits: Any = None,
        *,
        probs: Any = None,
        mask: Any = None,
        validate_args: bool | None = None,
        weights: Any = None,
        step: float | None = None,
    ) -> None:
        checks.one_given(logits=logits, probs=probs)
        # What was given is kept: probabilities of 0 and 1 have derivatives, infinite log-odds have none.
        self._logits: Any = None
        self._probs: Any = None
        if probs is None:
            self._logits = in_floats_of_jax("logits", logits, axis="variables")
            if is_concrete(self._logits):
                in_floats(read)(self._logits)
        else:
            self._probs = in_floats_of_jax("probs", probs, axis="variables")
            require("probs", self._probs, (self._probs >= 0) & (self._probs <= 1), "lie in [0, 1]")
        if mask is not None and probs is None:
            self._logits = jnp.asarray(masked(self._logits, mask, None))
        elif mask is not None:
            self._probs = jnp.where(
                jnp.isneginf(masked(jnp.zeros_like(self._probs), mask, None)), 0.0, self._probs
            )
        self._step, self._weights = grid_step(step, weights), None
        if weights is not None:
            self._weights = tuple(WeightedEvents(weights, step, self._given.shape[-1]).weights.tolist())
        super().__init__(self._given.shape[:-1], (), validate_args=validate_args)

    def get_args(self) -> dict[str, Any]:
        """The parameter that was given, for validation by NumPyro.

        Returns
        -------
        dict
            ``{"logits": logits}`` or ``{"probs": probs}``.

        See Also
        --------
        logits, probs

        Examples
        --------
        >>> PoissonBinomial(probs=jnp.array([0.5, 1.0])).get_args()
        {'probs': Array([0.5, 1. ], dtype=float32)}
        """
        return {"logits" if self._probs is None else "probs": self._given}

    def _of_sum(self, which: str, value: Any, ones: Any = ()) -> Any:
        """Log-probabilities of a weighted sum, "at", "below" or "above" a value."""
        events = WeightedEvents(self._weights or ones, self._step, self._given.shape[-1])
        # the host answers in 64 bits and is handed, and hands back, what JAX's global flag allows
        x = jnp.asarray(numbers("value", value, "sums"))
        return laws.sum_log_prob(events, which, self.logits, self._probs, x)

    def _refuse_weights(self, what: str) -> None:
        if self._weights is not None:
            refuse_whole_law(what)

    @property
    def _sizes(self) -> Any:
        return 1.0 if self._weights is None else jnp.asarray(self._weights, self._given.dtype)

    def log_sf(self, value: Any) -> Any:
        """Log P(X > value); it and its gradient are right in the far tail.

        Parameters
        ----------
        value : array
            Numbers of successes; its shape broadcasts against the batch.

        Returns
        -------
        jax.Array, (sample..., ...)
            Logarithms, differentiable once.

        See Also
        --------
        cdf, log_prob

        Examples
        --------
        >>> d = PoissonBinomial(probs=jnp.array([0.5, 0.5]), weights=[1, 3])
        >>> jnp.exp(d.log_sf(2))
        Array(0.5, dtype=float32)
        """
        return self._of_sum("above", value, (1,) * self.total_count)

    @property
    def _given(self) -> Any:
        return self._logits if self._probs is None else self._probs

    @in_floats
    def _ask(self, question: Any, *more: Any) -> Any:
        """The answer in the dtype of what was given to a question about log-odds and probabilities in 64 bits."""
        return question(*_wide(self), *more).astype(self._given.dtype)

    @property
    def logits(self) -> Any:
        """Log-odds of success, (..., n).

        See Also
        --------
        probs

        Examples
        --------
        >>> PoissonBinomial(probs=jnp.array([0.5, 1.0])).logits
        Array([ 0., inf], dtype=float32)
        """
        return self._logits if self._probs is None else laws.log_odds(self._probs)

    @property
    def probs(self) -> Any:
        """Probabilities of success, (..., n).

        See Also
        --------
        mean

        Examples
        --------
        >>> PoissonBinomial(jnp.zeros(2)).probs
        Array([0.5, 0.5], dtype=float32)
        """
        return jax.nn.sigmoid(self._logits) if self._probs is None else self._probs

    @property
    def total_count(self) -> int:
        """Number of trials."""
        return int(self._given.shape[-1])

    @constraints.dependent_property(is_discrete=True, event_dim=0)  # type: ignore[untyped-decorator]
    def support(self) -> Any:
        """Integers from 0 to the number of variables, or real numbers with weights."""
        if self._weights is not None:
            return constraints.real
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        """Expected number of successes: the sum of the probabilities.

        See Also
        --------
        variance

        Examples
        --------
        >>> d = PoissonBinomial(probs=jnp.array([0.5, 0.5]))
        >>> d.mean
        Array(1., dtype=float32)
        """
        return jnp.sum(self.probs * self._sizes, -1)

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
        off = jax.nn.sigmoid(-self._logits) if self._probs is None else 1.0 - self._probs
        return jnp.sum(self.probs * off * self._sizes * self._sizes, -1)

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
            Counts; -1 under a transformation if the parameters hold NaN.

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
        shape = (*draws.sample_shape_of(sample_shape), *self._given.shape)
        drawn = _drawn(self, key, shape)
        return jnp.where(jnp.any(jnp.isnan(self._given), -1), -1, drawn)

    @validate_sample  # type: ignore[untyped-decorator]
    def log_prob(self, value: Any) -> Any:
        """Log-probability of counts; it and its gradient are right in the far tails.

        Parameters
        ----------
        value : array
            Numbers of successes; its shape broadcasts against the batch.

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
        if self._weights is not None:
            return self._of_sum("at", value)
        return self._ask(laws.log_pmf, jnp.asarray(numbers("value", value, "counts")))

    def count_log_probs(self) -> Any:
        """Log-probabilities of all counts.

        Returns
        -------
        jax.Array, (..., n + 1)
            Logarithms; ``-inf`` for impossible counts.

        See Also
        --------
        log_prob, cdf

        Examples
        --------
        >>> jnp.exp(PoissonBinomial(probs=jnp.array([0.5, 0.5])).count_log_probs())
        Array([0.25, 0.5 , 0.25], dtype=float32)
        """
        self._refuse_weights("count_log_probs")
        return self._ask(laws.count_law)

    def cdf(self, value: Any) -> Any:
        """P(count <= value).

        Parameters
        ----------
        value : array
            Numbers of successes; its shape broadcasts against the batch.

        Returns
        -------
        jax.Array, (sample..., ...)
            Probabilities, differentiable.

        See Also
        --------
        log_prob, count_log_probs

        Examples
        --------
        >>> PoissonBinomial(probs=jnp.array([0.5, 0.5])).cdf(jnp.arange(3))
        Array([0.25, 0.75, 1.  ], dtype=float32)
        """
        if self._weights is not None:
            return jnp.exp(self._of_sum("below", value))
        return self._ask(laws.cdf, jnp.asarray(value))

    def entropy(self) -> Any:
        """Shannon entropy in nats.

        Returns
        -------
        jax.Array, (...)
            One number per member of the batch.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> PoissonBinomial(probs=jnp.array([0.5, 0.5])).entropy().round(4)
        Array(1.0397, dtype=float32)
        """
        self._refuse_weights("entropy")
        return self._ask(laws.entropy)

    def enumerate_support(self, expand: bool = True) -> Any:
        """All possible counts, on a new first axis.

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
        self._refuse_weights("enumerate_support")
        values = jnp.arange(self.total_count + 1).reshape(-1, *[1] * len(self.batch_shape))
        return jnp.broadcast_to(values, (len(values), *self.batch_shape)) if expand else values


def _wide(law: PoissonBinomial) -> tuple[Any, Any]:
    """Log-odds, and probabilities if those were given, in 64 bits."""
    given = law._given.astype(working_dtype())
    return (given, None) if law._probs is None else (laws.log_odds(given), given)


@in_floats
def _drawn(law: PoissonBinomial, key: Any, shape: tuple[int, ...]) -> Any:
    logits, probs = _wide(law)
    p = jax.nn.sigmoid(logits) if probs is None else probs
    on = draws.uniform(key, shape, p.dtype) < p
    if law._weights is None:
        return jnp.sum(on, -1, dtype=jnp.int32)
    return jnp.sum(on * jnp.asarray(law._weights, law._given.dtype), -1)


@kl_divergence.register(PoissonBinomial, PoissonBinomial)  # type: ignore[untyped-decorator]
@in_floats
def _divergence(p: PoissonBinomial, q: PoissonBinomial) -> Any:
    """KL(p || q) = sum_c P(c) (log P(c) - log Q(c)); infinite if q excludes a count that p allows."""
    checks.comparable("trials", p.total_count, q.total_count)
    first, second = (laws.count_law(*_wide(d)) for d in (p, q))
    possible = first > -jnp.inf
    gap = jnp.where(possible, first, 0.0) - jnp.where(possible, second, 0.0)
    return jnp.sum(jnp.exp(first) * gap, -1).astype(p._given.dtype)
