"""Potentials given by values: a fixed table, a function of the count, and the reading of what users pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tallytree import checks, display
from tallytree.arrays import Float64, frozen
from tallytree.errors import ParameterError
from tallytree.potentials.base import Potential
from tallytree.potentials.columns import show
from tallytree.potentials.exponentials import uniform

# Longer tables print as their length only.
_LONGEST_PRINTED = 1000
_LOGARITHMS = replace(checks.LOGS, kinds="iuf")


def table(log_values: npt.ArrayLike) -> Potential:
    """Potential with given log values.

    ``log f(c) = log_values[c]``.

    Parameters
    ----------
    log_values : array_like of float, shape (n + 1,)
        One logarithm per count ``0, ..., n``; ``-inf`` marks an impossible count. It fits groups of exactly
        ``n`` variables. The values are copied.

    Returns
    -------
    Potential
        To be passed to :class:`~tallytree.CountModel` or in a :class:`~tallytree.Group`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.Potential
    tallytree.uniform
    tallytree.CountModel

    Notes
    -----
    Cost: O(n). Tables of up to 1000 values print in full, longer ones as their length.
    Accuracy: exact.

    Examples
    --------
    >>> p = tt.table([0.0, -1.0, -np.inf])
    >>> p
    table([0.0, -1.0, -np.inf])
    >>> p.support(2)
    (0, 1)
    """
    hint = " Give the logarithms of one table, one for each count 0, ..., n; -inf marks an impossible count."
    values = checks.array("log_values", log_values, ("n + 1",), _LOGARITHMS, hint=hint)
    if not values.size:
        raise ParameterError(f"`log_values` must have an entry for the count 0; shape (0,) arrived.{hint}")
    return Table(frozen(values + 0.0))  # a copy, with -0.0 made 0.0 so that equal tables have equal hashes


def as_potential(obj: Any) -> Potential:
    """Convert an array of log-values, a function of counts, or None to a potential.

    Parameters
    ----------
    obj : Potential, array_like, callable or None
        A potential is returned as it is. A one-dimensional array holds ``log f(0), ..., log f(n)``, see
        :func:`table`. A callable receives the integer array ``0, ..., n`` and returns ``log f`` in an array
        of the same shape. ``None`` stands for :func:`uniform`.

    Returns
    -------
    Potential
        The potential itself if it was one already.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.table
    tallytree.Potential

    Notes
    -----
    Cost: O(n) for an array, which is copied; a function is called once for every table.
    Accuracy: exact; values are converted to float64.

    Examples
    --------
    >>> tt.potentials.as_potential([0.0, 1.0]).log_table(1)
    array([0., 1.])
    >>> tt.potentials.as_potential(lambda c: -0.5 * c).log_table(2)
    array([ 0. , -0.5, -1. ])
    >>> tt.potentials.as_potential(None)
    uniform()
    """
    if isinstance(obj, Potential):
        return obj
    if obj is None:
        return uniform()
    hint = ""
    if callable(obj):
        if getattr(obj, "__annotations__", {}).get("return") not in (Potential, "Potential"):
            return Function(obj)
        hint = "Call it with its arguments, such as `exactly(1)`."
    elif isinstance(obj, (str, bytes)):
        hint = "Use `parse_potential` to read a potential from text."
    elif isinstance(obj, (bool, int, float, complex)) or getattr(obj, "ndim", 1) == 0:
        whole = isinstance(obj, (int, np.integer)) and not isinstance(obj, bool) and obj >= 0
        hint = f"For a fixed count use `exactly`{f', as in exactly({obj})' if whole else ''}."
    if hint:
        raise ParameterError(
            "a potential must be a Potential, an array of log values, a callable or None; "
            f"{checks.describe(obj)} of type {type(obj).__name__} arrived. {hint}"
        )
    return table(obj)


@dataclass(frozen=True, slots=True, eq=False)
class Table(Potential):
    """See :func:`table`; ``log_values`` is read-only."""

    log_values: Float64

    def __repr__(self) -> str:
        if self.log_values.size > _LONGEST_PRINTED:
            return f"table(<{self.log_values.size} log values>)"
        return f"table({show(self.log_values.tolist())})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return np.array_equal(self.log_values, other.log_values)

    def __hash__(self) -> int:
        return hash(self.log_values.tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return table, (self.log_values,)  # arrays forget that they are read-only when pickled

    def _require(self, n: int) -> None:
        if self.log_values.size != n + 1:
            raise ParameterError(
                f"a table for a group of n = {n} variables must have n + 1 = {n + 1} values, one for each "
                f"count; this one has {self.log_values.size}. Give one logarithm per count."
            )

    def _window(self, n: int, first: int, last: int) -> Float64:
        return self.log_values[first : last + 1].copy()

    def _repr_html_(self) -> str:
        return display.potential_page(self, self.log_values.size - 1)


@dataclass(frozen=True, slots=True)
class Function(Potential):
    """``log f(c) = function(c)`` for a function of integer arrays; see :func:`as_potential`."""

    function: Callable[[npt.NDArray[np.int_]], Any]

    def __repr__(self) -> str:
        return f"as_potential({getattr(self.function, '__qualname__', repr(self.function))})"

    def _log_f(self, n: int) -> Float64:
        name = repr(self)
        try:
            result = self.function(np.arange(n + 1))
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"`{name}` needs a function of the integer array 0, ..., n; it failed with: {error}. If it "
                "takes one count at a time, wrap it in np.vectorize."
            ) from error
        hint = " Write the function for an array of counts; -inf marks an impossible one."
        return checks.array(name, result, (n + 1,), _LOGARITHMS, hint=hint)

    def _window(self, n: int, first: int, last: int) -> Float64:
        """Users write functions of an array of counts; these need not begin at 0."""
        if (first, last) != (0, n):
            values = np.array(self.function(np.arange(first, last + 1)), np.float64)
            if values.shape == (last - first + 1,):
                return checks.array(repr(self), values, values.shape, _LOGARITHMS)
        return self._log_f(n)[first : last + 1]  # which says what is wrong
