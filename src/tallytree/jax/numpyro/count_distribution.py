"""The law of a count model as a distribution of NumPyro."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from ...errors import ParameterError
from ...structure.nested.count_tree import CountTree
from .. import answers, draws
from ..arguments import read
from ..arrays import in_floats_of_jax, zeros_and_ones
from ..precision import in_own_floats, working_dtype


class CountDistribution(Distribution):  # type: ignore[misc]
    """The law of a :class:`~tallytree.CountModel` over binary vectors.

    Parameters
    ----------
    logits : (..., D)
        Log-odds.
    groups : potential, log-table, list of Group, CountTree or None
        As in :func:`tallytree.jax.log_partition`.
    tables : list or array, optional
        With a CountTree.
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

    arg_constraints = {"logits": constraints.real_vector}  # noqa: RUF012
    support = constraints.independent(constraints.boolean, 1)
    pytree_data_fields: tuple[str, ...] = ("logits", "tables")
    pytree_aux_fields: tuple[str, ...] = ("tree",)

    def __init__(
        self, logits: Any, groups: Any = None, tables: Any = None, *, validate_args: bool | None = None
    ) -> None:
        with_tables = read_with_tables(logits, groups, tables)
        self.tree: CountTree = with_tables.tree
        self.logits = in_floats_of_jax("logits", logits, axis="variables")
        self.tables = tuple(with_tables.group_tables)
        super().__init__(with_tables.batch_shape, (self.tree.n_variables,), validate_args=validate_args)

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
        return self._over_batch(self._ask(answers.log_partition), 0)

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
        return self._over_batch(self._ask(answers.marginals), 1)

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
        return self._over_batch(self._ask(draws.mode), 1)

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
        return self._over_batch(self._ask(answers.entropy), 0)

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
        return self._over_batch(self._ask(answers.count_log_probs, group), 1)

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
        logits = self._over_batch(self.logits, 1)
        return draws.sample(key, logits, self.tree, list(self.tables), sample_shape=sample_shape)

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

    def _batch_now(self) -> tuple[int, ...]:
        """The batch shape of the parameters, which `vmap` may have made smaller than the one remembered."""
        return tuple(jnp.broadcast_shapes(self.logits.shape[:-1], *(t.shape[:-1] for t in self.tables)))

    def _over_batch(self, found: Any, event_axes: int) -> Any:
        if self._batch_now() == self.batch_shape or not self.batch_shape:
            return found
        return jnp.broadcast_to(found, (*self.batch_shape, *found.shape[found.ndim - event_axes :]))


@in_own_floats
def read_with_tables(logits: Any, groups: Any, tables: Any) -> Any:
    """The problem that the arguments pose, its tables in the dtype of answers."""
    problem = read(logits, groups, tables)
    rounded = tuple(jnp.asarray(t).astype(problem.dtype) for t in problem.group_tables)
    return problem._replace(group_tables=rounded)


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
    weight = jnp.where(jnp.any(others, -1), -jnp.inf, _log_weight(tree, wide, tables, on))
    return (weight - answers.log_partition(wide, tree, list(tables))).astype(logits.dtype)


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
