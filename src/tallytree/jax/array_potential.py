"""A named potential whose numbers are arrays, as a pytree: one table per model, traced or not.

Numbers that are seen to be wrong raise; where they are traced, their table is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from .. import checks
from ..checks.numbers import check_count
from ..errors import ParameterError
from .arrays import is_concrete


@jax.tree_util.register_pytree_node_class
class ArrayPotential:
    """A potential with array parameters of shape (...): ``log_table(n)`` has shape (..., n + 1).

    Parameters
    ----------
    name : str
        Which potential.
    parameters : tuple of arrays
        Its numbers. Users call :func:`exactly` and its relatives.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.Potential

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.exactly(1).log_table(2).tolist()
    [-inf, 0.0, -inf]
    """

    def __init__(self, name: str, parameters: tuple[Any, ...]) -> None:
        self.name = checks.one_of("name", name, tuple(_TABLES))
        numbers = tuple(signature(_TABLES[self.name]).parameters)[1:]
        arrived = len(parameters) if isinstance(parameters, (tuple, list)) else None
        if arrived != len(numbers):
            raise ParameterError(
                f"`parameters` must be a tuple of {len(numbers)}, the {' and the '.join(numbers)} of `{self.name}`; "
                f"{checks.describe(parameters) if arrived is None else arrived} arrived. "
                f"tallytree.jax.{self.name} takes them by name."
            )
        self.parameters = tuple(parameters)

    def log_table(self, n: int) -> Any:
        """``log f(0), ..., log f(n)`` on the last axis.

        Parameters
        ----------
        n : int
            Size of the group.

        Returns
        -------
        jax.Array, (..., n + 1)
            Parameters that are arrays put their axes in front.

        Raises
        ------
        ParameterError
            If the group is too small for the potential and its parameters are known.

        See Also
        --------
        tallytree.Potential.log_table

        Examples
        --------
        >>> np.asarray(ttj.exactly(1).log_table(2))
        array([-inf,   0., -inf], dtype=float32)
        """
        n = check_count(n, "n")
        counts = jnp.arange(n + 1, dtype=jnp.result_type(float))
        if self.name in _NEEDED and is_concrete(*self.parameters):
            self._require_reach(n, np.asarray(self.parameters[0]))
        return _TABLES[self.name](counts, *(jnp.asarray(p)[..., None] for p in self.parameters))

    def _require_reach(self, n: int, least: Any) -> None:
        wrong = (least > n) | (least < 0)
        if wrong.any():
            raise ParameterError(
                f"`{self.name}` needs 0 <= {_NEEDED[self.name]} <= n = {n}, the number of variables of its group; "
                f"{least[wrong].reshape(-1)[0]} arrived. Change the count, or put the potential on a larger group."
            )

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    def tree_flatten(self) -> tuple[tuple[Any, ...], str]:
        """The parameters are the leaves."""
        return self.parameters, self.name

    @classmethod
    def tree_unflatten(cls, name: str, parameters: Any) -> ArrayPotential:
        """The way back."""
        return cls(name, tuple(parameters))


def _inside(inside: Any) -> Any:
    return jnp.where(inside, 0.0, -jnp.inf)


def _log_noisy_or(c: Any, rate: Any, leak: Any) -> Any:
    off = jnp.log1p(-leak) + c * jnp.log1p(-rate)  # log of the probability that nothing happens
    possible = off < 0.0
    safe = jnp.where(possible, off, -1.0)
    table = jnp.where(possible, jnp.log(-jnp.expm1(safe)), -jnp.inf)
    return jnp.where((rate >= 0.0) & (rate <= 1.0) & (leak >= 0.0) & (leak <= 1.0), table, jnp.nan)


_TABLES: dict[str, Callable[..., Any]] = {
    "exactly": lambda c, k: _inside(c == k),
    "at_least": lambda c, k: _inside(c >= k),
    "at_most": lambda c, k: _inside(c <= k),
    "between": lambda c, lo, hi: _inside((c >= lo) & (c <= hi)),
    "gaussian": lambda c, mean, sd: jnp.where(sd > 0.0, -0.5 * ((c - mean) / sd) ** 2, jnp.nan),
    "poisson": lambda c, mean: c * jnp.log(mean) - mean - gammaln(c + 1.0),
    "geometric": lambda c, ratio: c * jnp.log(ratio),
    "noisy_or": _log_noisy_or,
}


_NEEDED = {"exactly": "k", "at_least": "k", "between": "lo"}  # counts that a group must be able to reach
