"""Named potentials whose numbers are arrays: one per model, traced or not, differentiable where they are real.

:func:`tallytree.exactly` and its relatives take plain numbers and work here as well; these take arrays. Numbers that
are seen to be wrong raise; where they are traced, their table is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..errors import ParameterError
from ..potentials import formulas
from .arrays import is_concrete, numbers, require

_LEGAL: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "count": ("not be negative", lambda x: x >= 0),
    "real": ("be finite", jnp.isfinite),
    "positive": ("be finite and positive", lambda x: jnp.isfinite(x) & (x > 0)),
    "fraction": ("lie in [0, 1]", lambda x: (x >= 0) & (x <= 1)),
}
_NUMBERS = {
    "exactly": {"k": "count"},
    "at_least": {"k": "count"},
    "at_most": {"k": "count"},
    "between": {"lo": "count", "hi": "count"},
    "gaussian": {"mean": "real", "sd": "positive"},
    "poisson": {"mean": "positive"},
    "geometric": {"ratio": "positive"},
    "noisy_or": {"rate": "fraction", "leak": "fraction"},
}


@jax.tree_util.register_pytree_node_class
class ArrayPotential:
    """A potential whose numbers are JAX arrays of shape (...); its table ``log_table(n)`` has shape (..., n + 1).

    Parameters
    ----------
    name : str
        Name of the potential.
    parameters : tuple of arrays
        Its numbers. Users do not call this class but :func:`exactly` and the other functions of :mod:`tallytree.jax`.

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
        self.name = checks.one_of("name", name, tuple(_NUMBERS))
        names = _NUMBERS[self.name]
        arrived = len(parameters) if isinstance(parameters, (tuple, list)) else None
        if arrived != len(names):
            raise ParameterError(
                f"`parameters` must be a tuple of {len(names)}, the {' and the '.join(names)} of `{self.name}`; "
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
            Log-values; the axes of the parameters come first.

        Raises
        ------
        ParameterError
            If the group is too small for the potential (unless its numbers are traced).

        See Also
        --------
        tallytree.Potential.log_table

        Examples
        --------
        >>> np.asarray(ttj.exactly(1).log_table(2))
        array([-inf,   0., -inf], dtype=float32)
        """
        n = checks.integer("n", n, 0)
        counts = jnp.arange(n + 1, dtype=jnp.result_type(float))
        columns = [jnp.asarray(p)[..., None] for p in self.parameters]
        table = getattr(formulas, self.name)(jnp, counts, n, *columns)
        if self.name not in formulas.REACHED:
            legal = (_LEGAL[kind][1](x) for kind, x in zip(_NUMBERS[self.name].values(), columns))
            return jnp.where(reduce(jnp.logical_and, legal), table, jnp.nan)
        if is_concrete(*self.parameters):
            first = np.asarray(self.parameters[0])
            outside = formulas.out_of_reach(self.name, n, first)
            if outside.any():
                raise formulas.reach_error(self.name, n, first[outside].reshape(-1)[0])
        return table

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    def tree_flatten(self) -> tuple[tuple[Any, ...], str]:
        """The parameters are the leaves."""
        return self.parameters, self.name

    @classmethod
    def tree_unflatten(cls, name: str, parameters: Any) -> ArrayPotential:
        """The way back."""
        return cls(name, tuple(parameters))


def exactly(k: Any) -> ArrayPotential:
    """Potential that allows exactly ``k`` active variables, one ``k`` per model.

    Parameters
    ----------
    k : int or integer array
        One number, or one per model.

    Returns
    -------
    ArrayPotential
        For ``groups`` of the functions of :mod:`tallytree.jax`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.exactly

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.exactly(1).log_table(2).tolist()
    [-inf, 0.0, -inf]
    """
    return _potential("exactly", k)


def at_least(k: Any) -> ArrayPotential:
    """Potential that allows ``k`` or more active variables, one ``k`` per model.

    Parameters
    ----------
    k : int or integer array
        One number, or one per model.

    Returns
    -------
    ArrayPotential
        For ``groups`` of the functions of :mod:`tallytree.jax`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.at_least

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.at_least(1).log_table(2).tolist()
    [-inf, 0.0, 0.0]
    """
    return _potential("at_least", k)


def at_most(k: Any) -> ArrayPotential:
    """Potential that allows at most ``k`` active variables, one ``k`` per model.

    Parameters
    ----------
    k : int or integer array
        One number, or one per model.

    Returns
    -------
    ArrayPotential
        For ``groups`` of the functions of :mod:`tallytree.jax`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.at_most

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.at_most(1).log_table(2).tolist()
    [0.0, 0.0, -inf]
    """
    return _potential("at_most", k)


def between(lo: Any, hi: Any) -> ArrayPotential:
    """Potential that allows ``lo`` to ``hi`` active variables, both included, one pair per model.

    Parameters
    ----------
    lo, hi : int or integer array
        Both ends, included; one pair, or one per model.

    Returns
    -------
    ArrayPotential
        For ``groups`` of the functions of :mod:`tallytree.jax`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.between

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.between(1, 2).log_table(3).tolist()
    [-inf, 0.0, 0.0, -inf]
    """
    found = _potential("between", lo, hi)
    if is_concrete(*found.parameters) and np.any(np.greater(*found.parameters)):
        raise ParameterError(
            f"`between` needs lo <= hi; lo = {lo} and hi = {hi} arrived. Swap the two arguments."
        )
    return found


def gaussian(mean: Any, sd: Any) -> ArrayPotential:
    """Bell curve ``exp(-(c - mean)^2 / (2 sd^2))`` of the count c, differentiable in ``mean`` and ``sd``.

    Parameters
    ----------
    mean, sd : float or array
        One pair, or one per model.

    Returns
    -------
    ArrayPotential
        For ``groups`` of the functions of :mod:`tallytree.jax`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.gaussian

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.gaussian(0.0, 1.0).log_table(2)[1:].tolist()
    [-0.5, -2.0]
    """
    return _potential("gaussian", mean, sd)


def poisson(mean: Any) -> ArrayPotential:
    """Poisson weights ``mean^c exp(-mean) / c!``; differentiable in ``mean``.

    Parameters
    ----------
    mean : float or array
        Positive; one number, or one per model.

    Returns
    -------
    ArrayPotential
        For ``groups`` of the functions of :mod:`tallytree.jax`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.poisson

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> [round(x, 4) for x in ttj.poisson(1.0).log_table(2).tolist()]
    [-1.0, -1.0, -1.6931]
    """
    return _potential("poisson", mean)


def geometric(ratio: Any) -> ArrayPotential:
    """Potential ``ratio^c`` with a positive ratio, differentiable in it.

    Parameters
    ----------
    ratio : float or array
        Positive; one number, or one per model.

    Returns
    -------
    ArrayPotential
        For ``groups`` of the functions of :mod:`tallytree.jax`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.geometric

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.geometric(1.0).log_table(2).tolist()
    [0.0, 0.0, 0.0]
    """
    return _potential("geometric", ratio)


def noisy_or(rate: Any, leak: Any = 0.0) -> ArrayPotential:
    """Noisy-OR: probability of an effect of c active causes, ``1 - (1 - leak) (1 - rate)^c``; differentiable.

    Parameters
    ----------
    rate, leak : float or array
        Probability that one cause brings the effect about, and that it comes about without any cause.

    Returns
    -------
    ArrayPotential
        For ``groups`` of the functions of :mod:`tallytree.jax`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.noisy_or

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.noisy_or(1.0).log_table(2).tolist()
    [-inf, 0.0, 0.0]
    """
    return _potential("noisy_or", rate, leak)


def _potential(name: str, *values: Any) -> ArrayPotential:
    """A potential with the numbers that are declared for it; they go together."""
    given = tuple(_number(n, kind, x) for (n, kind), x in zip(_NUMBERS[name].items(), values))
    shapes = [np.shape(x) for x in given]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        raise ParameterError(
            f"The numbers of `{name}` must broadcast against each other; shapes {shapes[0]} and {shapes[1]} arrived. "
            "Give one number, or one per model."
        ) from None
    return ArrayPotential(name, given)


def _number(name: str, kind: str, value: Any) -> Any:
    if kind == "count":
        value = checks.integer(name, value) if isinstance(value, int) else value
        array = numbers(name, value, "an integer or an array of integers", (jnp.integer,))
    else:
        array = numbers(name, value, "real numbers", (jnp.floating, jnp.integer))
    wanted, legal = _LEGAL[kind]
    require(name, array, legal(array), wanted)
    return array
