"""Distributions over binary vectors: a count model, and random k-subsets."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, constraints, kl_divergence
from numpyro.distributions.util import validate_sample

from ... import checks
from ...errors import ParameterError
from ...structure.nested.count_tree import CountTree
from .. import answers, draws
from ..arguments import masked, read, refuse_impossible
from ..arrays import in_floats, in_floats_of_jax, working_dtype, zeros_and_ones
from ..potentials import exactly

LOG_ODDS = constraints.independent(constraints.interval(-jnp.inf, jnp.inf), 1)  # anything but NaN


def _leaf(array: Any, batch_shape: tuple[int, ...], event_axes: int) -> Any:
    """`array` with axes of size one in front, so that it has all batch axes."""
    array = jnp.asarray(array)
    missing = len(batch_shape) + event_axes - array.ndim
    return array.reshape((1,) * missing + array.shape)


class OfCounts(Distribution):  # type: ignore[misc]
    """A law whose draws are whole numbers."""

    def rsample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Not available: samples of whole numbers have no gradient.

        Parameters
        ----------
        key : PRNG key
            Source of randomness.
        sample_shape : tuple of int
            Leading axes of the draws.

        Returns
        -------
        jax.Array
            Nothing; the method always raises.

        Raises
        ------
        NotImplementedError
            Always; the message says what to use instead.

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
    """Binary vectors with log-odds and potentials on counts, as a NumPyro distribution.

    Parameters
    ----------
    logits : array, (..., D)
        Log-odds without any potential; leading axes are the batch shape.
    groups : potential, log-table, list of Group, CountTree or None
        Potentials on counts, as in :func:`tallytree.jax.log_partition`; default none.
    tables : list or array, optional
        Log-tables of the groups of a CountTree, as in :func:`tallytree.jax.log_partition`.
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
    >>> import jax.numpy as jnp
    >>> from tallytree.jax.numpyro import CountDistribution
    >>> d = CountDistribution(jnp.zeros(3), tt.exactly(1))
    >>> round(float(d.log_prob(jnp.array([0.0, 1.0, 0.0]))), 4)
    -1.0986
    """

    arg_constraints = {"logits": LOG_ODDS}  # noqa: RUF012
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
        """Log Z, of the shape of the batch.

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
        """P(y_d = 1), (..., D).

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
        """Variances of the variables, (..., D).

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
        """A most probable configuration, (..., D).

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
        value : array of 0 and 1, (..., D)
            Configurations; leading axes broadcast against the batch.

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


@in_floats
def _read(logits: Any, groups: Any, tables: Any) -> tuple[CountTree, list[Any], tuple[int, ...]]:
    """The tree, the tables of its groups in the dtype of answers, and the batch shape."""
    problem = read(logits, groups, tables)
    return (
        problem.tree,
        [jnp.asarray(t).astype(problem.dtype) for t in problem.group_tables],
        problem.batch_shape,
    )


@in_floats
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
@in_floats
def _divergence(p: CountDistribution, q: CountDistribution) -> Any:
    """KL(p || q), on the groups of both."""
    checks.comparable("variables", p.event_shape[0], q.event_shape[0])
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
        How many are on: one number, or one per model of the batch.
    logits : array, (..., D)
        Log-odds before the number is known; leading axes are the batch shape.
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
    >>> import jax.numpy as jnp
    >>> from tallytree.jax.numpyro import ConditionalBernoulli
    >>> ConditionalBernoulli(1, jnp.zeros(4)).mean
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """

    arg_constraints = {  # noqa: RUF012
        "total_count": constraints.nonnegative_integer,
        "logits": LOG_ODDS,
    }
    pytree_data_fields = ("total_count",)

    def __init__(
        self, total_count: Any, logits: Any, *, mask: Any = None, validate_args: bool | None = None
    ) -> None:
        potential = exactly(total_count)
        self.total_count = jnp.asarray(total_count)
        super().__init__(logits, potential, mask=mask, validate_args=validate_args)
        self.total_count = _leaf(self.total_count, self.batch_shape, 0)
