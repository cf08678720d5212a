"""Distributions for NumPyro: count models, k-subsets and the Poisson-binomial law; ``pip install tallytree[numpyro]``.

They are pytrees whose leaves are log-odds, probabilities and log-tables, so that NUTS, SVI, ``Predictive``, masks,
plates, ``scan`` and ``vmap`` treat them like NumPyro's own. Every leaf has as many batch axes as the distribution, some
of them of size one: what maps or stacks the leaves then meets the same axes in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

try:
    from numpyro.distributions import Distribution, constraints, kl_divergence
    from numpyro.distributions.util import validate_sample
except ImportError as error:
    raise ImportError(
        "tallytree.jax.numpyro needs NumPyro. Install it with `pip install tallytree[numpyro]`."
    ) from error

from ...errors import ParameterError
from ...models.poisson_binomial import WeightedEvents
from ...structure.nested.count_tree import CountTree
from .. import answers, draws
from ..arguments import masked, read, refuse_impossible
from ..arrays import in_floats_of_jax, is_concrete, numbers, require, zeros_and_ones
from ..ladder import all_of
from ..potentials import exactly
from ..precision import in_own_floats, working_dtype

__all__ = ["ConditionalBernoulli", "CountDistribution", "PoissonBinomial"]

_LOG_ODDS = constraints.independent(constraints.interval(-jnp.inf, jnp.inf), 1)  # anything but NaN
_PROBABILITIES = constraints.independent(constraints.unit_interval, 1)


def _leaf(array: Any, batch_shape: tuple[int, ...], event_axes: int) -> Any:
    """`array` with axes of size one in front, so that it has all batch axes."""
    array = jnp.asarray(array)
    missing = len(batch_shape) + event_axes - array.ndim
    return array.reshape((1,) * missing + array.shape)


class OfCounts(Distribution):  # type: ignore[misc]
    """A law whose draws are whole numbers."""

    def rsample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Refused: draws of whole numbers do not move with the parameters.

        Parameters
        ----------
        key : PRNG key
            Source of randomness.
        sample_shape : tuple of int
            Leading axes of the draws.

        Returns
        -------
        jax.Array
            Never.

        Raises
        ------
        NotImplementedError
            Always; it says what to use instead.

        See Also
        --------
        sample, log_prob

        Examples
        --------
        >>> CountDistribution(jnp.zeros(4), tt.exactly(1)).has_rsample
        False
        """
        raise NotImplementedError(
            "Draws of whole numbers do not move with the parameters, so there is no `rsample`. Differentiate `mean` or "
            "`log_prob`, or add an exact draw to the marginals: y + m - jax.lax.stop_gradient(m)."
        )


class CountDistribution(OfCounts):
    """The law of a :class:`~tallytree.CountModel` over binary vectors.

    Parameters
    ----------
    logits : (..., D)
        Log-odds.
    groups : potential, log-table, list of Group, CountTree or None
        As in :func:`tallytree.jax.log_partition`.
    tables : list or array, optional
        With a CountTree.
    mask : array of bool, (..., D), optional
        True for variables that take part; the others are never on.
    validate_args : bool, optional
        As in :class:`numpyro.distributions.Distribution`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.CountModel
    tallytree.jax.numpyro.ConditionalBernoulli

    Examples
    --------
    >>> d = CountDistribution(jnp.zeros(3), tt.exactly(1))
    >>> round(float(d.log_prob(jnp.array([0.0, 1.0, 0.0]))), 4)
    -1.0986
    """

    arg_constraints = {"logits": _LOG_ODDS}  # noqa: RUF012
    support = constraints.independent(constraints.boolean, 1)
    pytree_data_fields: tuple[str, ...] = ("logits", "tables")
    pytree_aux_fields: tuple[str, ...] = ("tree",)

    def __init__(
        self,
        logits: Any,
        groups: Any = None,
        tables: Any = None,
        *,
        mask: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.tree: CountTree
        own = in_floats_of_jax("logits", logits, axis="variables")
        own = own if mask is None else masked(own, mask, groups)
        self.tree, given, batch_shape = _read(own, groups, tables)
        self.logits = _leaf(own, batch_shape, 1)
        self.tables = tuple(_leaf(t, batch_shape, 1) for t in given)
        super().__init__(batch_shape, (self.tree.n_variables,), validate_args=validate_args)

    def _ask(self, question: Any, *more: Any) -> Any:
        return question(self.logits, self.tree, *more, tables=list(self.tables))

    @property
    def log_partition(self) -> Any:
        """Log Z, ``batch_shape``.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> d = CountDistribution(jnp.zeros(4), tt.exactly(1))
        >>> d.log_partition.round(4)
        Array(1.3863, dtype=float32)
        """
        return self._ask(answers.log_partition)

    @property
    def mean(self) -> Any:
        """P(y = 1).

        See Also
        --------
        variance, count_log_probs

        Examples
        --------
        >>> d = CountDistribution(jnp.zeros(4), tt.exactly(1))
        >>> d.mean
        Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
        """
        return self._ask(answers.marginals)

    @property
    def variance(self) -> Any:
        """P(y = 1) P(y = 0).

        See Also
        --------
        mean

        Examples
        --------
        >>> d = CountDistribution(jnp.zeros(4), tt.exactly(1))
        >>> d.variance
        Array([0.1875, 0.1875, 0.1875, 0.1875], dtype=float32)
        """
        return self.mean * (1.0 - self.mean)

    @property
    def mode(self) -> Any:
        """A most probable configuration.

        See Also
        --------
        sample

        Examples
        --------
        >>> CountDistribution(jnp.array([0.5, -1.0, 2.0]), tt.exactly(1)).mode
        Array([0., 0., 1.], dtype=float32)
        """
        return self._ask(draws.mode)

    def entropy(self) -> Any:
        """Shannon entropy in nats.

        Returns
        -------
        jax.Array, (...)
            One number per member of the batch.

        See Also
        --------
        log_prob, log_partition

        Examples
        --------
        >>> d = CountDistribution(jnp.zeros(4), tt.exactly(1))
        >>> d.entropy().round(4)
        Array(1.3863, dtype=float32)
        """
        return self._ask(answers.entropy)

    def count_log_probs(self, group: int | None = None) -> Any:
        """Log-probabilities of the count of a group, of all variables by default.

        Parameters
        ----------
        group : int, optional
            Number of the group; default all variables.

        Returns
        -------
        jax.Array, (..., n + 1)
            Logarithms; ``-inf`` for impossible counts.

        See Also
        --------
        log_prob, mean

        Examples
        --------
        >>> d = CountDistribution(jnp.zeros(4), tt.exactly(1))
        >>> jnp.exp(d.count_log_probs())
        Array([0., 1., 0., 0., 0.], dtype=float32)
        """
        return self._ask(answers.count_log_probs, group)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Exact joint draws.

        Parameters
        ----------
        key : PRNG key
            Source of randomness.
        sample_shape : tuple of int
            Leading axes of the draws.

        Returns
        -------
        jax.Array, (sample_shape..., ..., D)
            Zeros and ones.

        See Also
        --------
        log_prob, mode

        Examples
        --------
        >>> import jax
        >>> d = CountDistribution(jnp.zeros(4), tt.exactly(1))
        >>> d.sample(jax.random.key(0), (5,)).sum(-1)
        Array([1., 1., 1., 1., 1.], dtype=float32)
        """
        return draws.sample(key, self.logits, self.tree, list(self.tables), sample_shape=sample_shape)

    @validate_sample  # type: ignore[untyped-decorator]
    def log_prob(self, value: Any) -> Any:
        """Log-probability of configurations, zeros and ones.

        Parameters
        ----------
        value : array
            Where to evaluate.

        Returns
        -------
        jax.Array, (sample..., ...)
            Logarithms; ``-inf`` for impossible configurations.

        Raises
        ------
        ParameterError
            If the last axis of `value` does not have one entry per variable.

        See Also
        --------
        sample, entropy

        Examples
        --------
        >>> d = CountDistribution(jnp.zeros(4), tt.exactly(1))
        >>> round(float(d.log_prob(jnp.array([0.0, 1.0, 0.0, 0.0]))), 4)
        -1.3863
        """
        return _log_prob(self.tree, self.logits, self.tables, value)


@in_own_floats
def _read(logits: Any, groups: Any, tables: Any) -> tuple[CountTree, list[Any], tuple[int, ...]]:
    """The tree, the tables of its groups in the dtype of answers, and the batch shape."""
    problem = read(logits, groups, tables)
    return (
        problem.tree,
        [jnp.asarray(t).astype(problem.dtype) for t in problem.group_tables],
        problem.batch_shape,
    )


@in_own_floats
def _log_prob(tree: CountTree, logits: Any, tables: Any, value: Any) -> Any:
    """Log-probability of configurations; the two large numbers are subtracted in 64 bits."""
    on, others = zeros_and_ones("value", value)
    if on.shape[-1:] != (tree.n_variables,):
        raise ParameterError(
            f"`value` must have {tree.n_variables} entries on the last axis, one per variable; an array of shape "
            f"{on.shape} arrived."
        )
    wide = logits.astype(working_dtype())
    log_partition = answers.log_partition(wide, tree, list(tables))
    refuse_impossible(log_partition)
    weight = jnp.where(jnp.any(others, -1), -jnp.inf, _log_weight(tree, wide, tables, on))
    return (weight - log_partition).astype(logits.dtype)


def _log_weight(tree: CountTree, logits: Any, tables: Any, on: Any) -> Any:
    """Log-weight of configurations; -inf for impossible ones."""
    # A forced variable has weight one if it is on, and none if it is off.
    forced = logits == jnp.inf
    term = jnp.where(on, jnp.where(forced, 0.0, logits), jnp.where(forced, -jnp.inf, 0.0))
    total = jnp.sum(term, -1)
    for members, table in zip(tree.groups, tables):
        inside = np.zeros(tree.n_variables, bool)
        inside[members] = True
        count = jnp.sum(on & inside, -1)
        hit = count[..., None] == jnp.arange(len(members) + 1)
        total = total + jnp.sum(jnp.where(hit, table.astype(working_dtype()), 0.0), -1)
    return total


@kl_divergence.register(CountDistribution, CountDistribution)  # type: ignore[untyped-decorator]
@in_own_floats
def _divergence(p: CountDistribution, q: CountDistribution) -> Any:
    """KL(p || q), on the groups of both."""
    if p.event_shape != q.event_shape:
        raise ParameterError(
            f"The Kullback-Leibler divergence needs models over the same variables; {p.event_shape[0]} and "
            f"{q.event_shape[0]} variables arrived."
        )
    tree = p.tree.with_groups(q.tree.groups)
    shape = jnp.broadcast_shapes(p.logits.shape, q.logits.shape)
    wide = [jnp.broadcast_to(d.logits.astype(working_dtype()), shape) for d in (p, q)]
    tables = [*p.tables, *[None] * len(q.tables)], [*[None] * len(p.tables), *q.tables]
    found = answers.divergence(*(read(x, tree, t) for x, t in zip(wide, tables)))
    return found.astype(p.logits.dtype)


class ConditionalBernoulli(CountDistribution):
    """Independent Bernoulli variables given that exactly ``total_count`` of them are on: a random k-subset.

    Parameters
    ----------
    total_count : int or integer array
        How many are on.
    logits : array, (..., D)
        Log-odds.
    mask : array of bool, (..., D), optional
        True for variables that take part; the others are never on.
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

    arg_constraints = {  # noqa: RUF012
        "total_count": constraints.nonnegative_integer,
        "logits": _LOG_ODDS,
    }
    pytree_data_fields = ("total_count",)

    def __init__(
        self, total_count: Any, logits: Any, *, mask: Any = None, validate_args: bool | None = None
    ) -> None:
        potential = exactly(total_count)
        self.total_count = jnp.asarray(total_count)
        super().__init__(logits, potential, mask=mask, validate_args=validate_args)
        self.total_count = _leaf(self.total_count, self.batch_shape, 0)


class PoissonBinomial(OfCounts):
    """The number of independent variables that are on, with unequal probabilities.

    Parameters
    ----------
    logits, probs : array, (..., D)
        One of the two.
    mask : array of bool, (..., D), optional
        True for variables that take part; the others are never on.
    validate_args : bool, optional
        As in :class:`numpyro.distributions.Distribution`.
    weights : array_like (D,), optional
        What the variables count, integers or, with ``step``, real numbers on a grid that keeps their means; static.
        ``log_prob``, ``cdf`` and ``log_sf`` are computed on the host and have first derivatives.
    step : float, optional
        Distance of two cells of the grid of real weights.

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

    arg_constraints = {"logits": _LOG_ODDS, "probs": _PROBABILITIES}  # noqa: RUF012
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
        if (logits is None) == (probs is None):
            raise ParameterError("Give one of `logits` and `probs`; both or neither arrived.")
        # What was given is kept: probabilities of 0 and 1 have derivatives, infinite log-odds have none.
        self._logits: Any = None
        self._probs: Any = None
        if probs is None:
            self._logits = in_floats_of_jax("logits", logits, axis="variables")
            if is_concrete(self._logits):
                in_own_floats(read)(self._logits)
        else:
            self._probs = in_floats_of_jax("probs", probs, axis="variables")
            require("probs", self._probs, (self._probs >= 0) & (self._probs <= 1), "lie in [0, 1]")
        if mask is not None and probs is None:
            self._logits = jnp.asarray(masked(self._logits, mask, None))
        elif mask is not None:
            self._probs = jnp.where(
                jnp.isneginf(masked(jnp.zeros_like(self._probs), mask, None)), 0.0, self._probs
            )
        if step is not None and weights is None:
            raise ParameterError(
                "`step` is the grid of real `weights`; none arrived. Leave it out for a plain count."
            )
        self._step, self._weights = step, None
        if weights is not None:
            self._weights = tuple(WeightedEvents(weights, step, self._given.shape[-1]).weights.tolist())
        super().__init__(self._given.shape[:-1], (), validate_args=validate_args)

    def _of_sum(self, which: str, value: Any, ones: Any = ()) -> Any:
        """Log-probabilities of a weighted sum, "at", "below" or "above" a value."""
        events = WeightedEvents(self._weights or ones, self._step, self._given.shape[-1])
        # the host answers in 64 bits and is handed, and hands back, what JAX's global flag allows
        x = jnp.asarray(numbers("value", value, "sums"))
        return _sum_log_prob(events, which, self.logits, self._probs, x)

    def _refuse_weights(self, what: str) -> None:
        if self._weights is not None:
            raise ParameterError(
                f"`{what}` needs the law of all sums, which has no derivatives here with `weights`. Ask "
                "`tallytree.PoissonBinomial` for it, or `log_prob`, `cdf` and `log_sf` for single values."
            )

    @property
    def _sizes(self) -> Any:
        return 1.0 if self._weights is None else jnp.asarray(self._weights, self._given.dtype)

    def log_sf(self, value: Any) -> Any:
        """Log P(X > value), right in the far tail, with its gradient.

        Parameters
        ----------
        value : array
            Where to evaluate.

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

    @in_own_floats
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
        return self._logits if self._probs is None else _log_odds(self._probs)

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
        shape = (*draws.sample_shape_of(sample_shape), *self._given.shape)
        drawn = _drawn(self, key, shape)
        return jnp.where(jnp.any(jnp.isnan(self._given), -1), -1, drawn)

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
        if self._weights is not None:
            return self._of_sum("at", value)
        return self._ask(_log_pmf, jnp.asarray(numbers("value", value, "counts")))

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
        return self._ask(_law)

    def cdf(self, value: Any) -> Any:
        """P(count <= value).

        Parameters
        ----------
        value : array
            Where to evaluate.

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
        return self._ask(_cdf, jnp.asarray(value))

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
        return self._ask(_entropy)

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
        self._refuse_weights("enumerate_support")
        values = jnp.arange(self.total_count + 1).reshape(-1, *[1] * len(self.batch_shape))
        return jnp.broadcast_to(values, (len(values), *self.batch_shape)) if expand else values


def _wide(law: PoissonBinomial) -> tuple[Any, Any]:
    """Log-odds, and probabilities if those were given, in 64 bits."""
    given = law._given.astype(working_dtype())
    return (given, None) if law._probs is None else (_log_odds(given), given)


@in_own_floats
def _drawn(law: PoissonBinomial, key: Any, shape: tuple[int, ...]) -> Any:
    logits, probs = _wide(law)
    p = jax.nn.sigmoid(logits) if probs is None else probs
    on = draws.uniform(key, shape, p.dtype) < p
    if law._weights is None:
        return jnp.sum(on, -1, dtype=jnp.int32)
    return jnp.sum(on * jnp.asarray(law._weights, law._given.dtype), -1)


def _log_odds(probs: Any) -> Any:
    """Infinite at 0 and 1, with derivative 0 there."""
    decided = (probs == 0.0) | (probs == 1.0)
    p = jnp.where(decided, 0.5, probs)
    return jnp.where(decided, jnp.where(probs > 0.0, jnp.inf, -jnp.inf), jnp.log(p) - jnp.log1p(-p))


def _log_pmf(logits: Any, probs: Any, count: Any) -> Any:
    shape = jnp.broadcast_shapes(count.shape, logits.shape[:-1])
    count = jnp.broadcast_to(count, shape)
    given = jnp.broadcast_to(logits if probs is None else probs, (*shape, logits.shape[-1]))
    if probs is None:
        return answers.event_log_prob(given, answers.one_count(count, given.shape[-1]))

    def beside(steps: Any) -> Any:
        several = jnp.broadcast_to(given[..., None, :], (*shape, len(steps), given.shape[-1]))
        return _undecided_log_prob(several, count[..., None] + steps)[..., None, :]

    return _with_decided(given, beside)[..., 0]


def _sum_log_prob(events: WeightedEvents, which: str, logits: Any, probs: Any, value: Any) -> Any:
    """Log-probabilities of weighted sums, by the host; derivatives are changes of probabilities, of the same pass.

    Probabilities of 0 and 1 have derivatives of their own, which infinite log-odds do not have.
    """
    shape = jnp.broadcast_shapes(value.shape, logits.shape[:-1])
    x = jnp.broadcast_to(value, shape).astype(logits.dtype)

    def both(nu: Any, x: Any, edges: bool) -> Any:
        answers = tuple(jax.ShapeDtypeStruct(a.shape, nu.dtype) for a in (x, nu))  # type: ignore[no-untyped-call]
        return jax.pure_callback(
            lambda a, b: tuple(r.astype(nu.dtype) for r in events.log_probs(which, a, b, edges=edges)),
            answers, nu, x, vmap_method="broadcast_all",
        )  # fmt: skip

    @jax.custom_jvp
    def log_prob(nu: Any, p: Any) -> Any:
        return both(nu, x, False)[0]

    @log_prob.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
        found, slope = both(primals[0], x, probs is not None)
        moves = jnp.where(jnp.isinf(primals[0]), tangents[1], tangents[0])
        return found, jnp.sum(jnp.where(slope == 0.0, 0.0, slope * moves), -1)

    each = (*shape, logits.shape[-1])
    return log_prob(*(jnp.broadcast_to(a, each) for a in (logits, logits if probs is None else probs)))


@jax.custom_jvp
def _undecided_log_prob(probs: Any, count: Any) -> Any:
    """Log P(so many are on), differentiable in probabilities other than 0 and 1; to the others it is constant."""
    return answers.event_log_prob(_log_odds(probs), answers.one_count(count, probs.shape[-1]))


@_undecided_log_prob.defjvp
@in_own_floats
def _undecided_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """With m = log P_i(k - 1) / P_i(k), P_i the law without variable i: d log P(k) / dp_i = (e^m - 1) / (q + p e^m).

    Nothing cancels, however near to 0 or 1 a probability is.
    """
    probs, count = primals
    value = _undecided_log_prob(probs, count)
    problem = read(_log_odds(probs), answers.one_count(count, probs.shape[-1]))
    messages = problem.core.messages(problem.odds, problem.tables).messages
    m = messages[:, : probs.shape[-1]].reshape(probs.shape)
    moves = (probs > 0.0) & (probs < 1.0) & (value > -jnp.inf)[..., None]
    m, p = jnp.where(moves, m, 0.0), jnp.where(moves, probs, 0.5)
    rises = m > 0.0
    small = jnp.where(rises, -m, m)
    less, gap = jnp.exp(small), -jnp.expm1(small)
    slope = jnp.where(rises, gap / ((1.0 - p) * less + p), -gap / (1.0 - p + p * less))
    return value, jnp.sum(jnp.where(moves, slope * tangents[0], 0.0), -1)


_STEPS = np.arange(-2, 3)


def _with_decided(probs: Any, undecided: Callable[[Any], Any], *, log: bool = True) -> Any:
    """(Log-)probabilities of counts, (..., m), from those of the variables without probabilities of 0 and 1.

    ``undecided(steps)`` are the logarithms of the latter for counts that are so many higher, (..., m, steps). The law
    of the decided variables is a constant; but it moves with their probabilities, by one count to first order and by
    two to second order.
    """
    off, on = probs == 0.0, probs == 1.0

    def moved() -> Any:
        extra, lacking = _rarely(jnp.where(off, probs, 0.0)), _rarely(jnp.where(on, 1.0 - probs, 0.0))
        weights: list[Any] = [0.0] * len(_STEPS)
        for i, a in enumerate(extra):
            for j, b in enumerate(lacking):
                weights[j - i + 2] = weights[j - i + 2] + a * b
        around = undecided(_STEPS)
        weight = jnp.stack(weights, -1)[..., None, :]
        if not log:
            return jnp.sum(weight * jnp.exp(around), -1)
        possible = around[..., 2] > -jnp.inf
        base = jnp.where(possible, around[..., 2], 0.0)
        # A ratio beyond the largest number is a derivative that no float holds.
        total = jnp.sum(weight * jnp.exp(jnp.minimum(around - base[..., None], 700.0)), -1)
        return jnp.where(possible, base + jnp.log(jnp.where(possible, total, 1.0)), -jnp.inf)

    def fixed() -> Any:
        law = undecided(np.zeros(1, int))[..., 0]
        return law if log else jnp.exp(law)

    none = jnp.all(~(off | on))
    if is_concrete(none):
        return fixed() if none else moved()
    return jax.lax.cond(all_of(none), fixed, moved)


def _rarely(p: Any) -> tuple[Any, Any, Any]:
    """P(none), P(one) and P(two) of variables that are on with probabilities p = 0, with two derivatives."""
    one = jnp.sum(p, -1)
    two = 0.5 * (one**2 - jnp.sum(p**2, -1))
    return 1.0 - one + two, one - 2.0 * two, two


def _law(logits: Any, probs: Any, *, log: bool = True) -> Any:
    """(Log-)probabilities of all counts, (..., n + 1)."""
    law = answers.count_log_probs(logits)
    if probs is None:
        return law if log else jnp.exp(law)
    beyond = jnp.full((*law.shape[:-1], 2), -jnp.inf, law.dtype)
    wide = jnp.concatenate([beyond, law, beyond], -1)

    def beside(steps: Any) -> Any:
        return jnp.stack([wide[..., 2 + step : 2 + step + law.shape[-1]] for step in steps.tolist()], -1)

    return _with_decided(probs, beside, log=log)


def _cdf(logits: Any, probs: Any, value: Any) -> Any:
    law = _law(logits, probs, log=False)
    n = law.shape[-1] - 1
    total = jnp.sum(jnp.where(jnp.arange(n + 1) <= value[..., None], law, 0.0), -1)
    return jnp.where(jnp.isnan(value), jnp.nan, jnp.where(value >= n, 1.0, total))


def _entropy(logits: Any, probs: Any) -> Any:
    law = _law(logits, probs)
    possible = law > -jnp.inf
    return -jnp.sum(jnp.where(possible, jnp.exp(law) * jnp.where(possible, law, 0.0), 0.0), -1)


@kl_divergence.register(PoissonBinomial, PoissonBinomial)  # type: ignore[untyped-decorator]
@in_own_floats
def _divergence_of_counts(p: PoissonBinomial, q: PoissonBinomial) -> Any:
    """KL(p || q) = sum_c P(c) (log P(c) - log Q(c)); infinite if q excludes a count that p allows."""
    if p.total_count != q.total_count:
        raise ParameterError(
            "The Kullback-Leibler divergence needs laws of the same number of trials; "
            f"{p.total_count} and {q.total_count} arrived."
        )
    first, second = (_law(*_wide(d)) for d in (p, q))
    possible = first > -jnp.inf
    gap = jnp.where(possible, first, 0.0) - jnp.where(possible, second, 0.0)
    return jnp.sum(jnp.exp(first) * gap, -1).astype(p._given.dtype)
