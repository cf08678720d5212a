"""The base class of all potentials, and the three ways to combine them: product, power, complement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from tallytree import checks, display
from tallytree.arrays import Float64
from tallytree.errors import InfeasibleError, ParameterError
from tallytree.potentials.columns import (
    Column,
    Index,
    common_shape,
    is_many,
    model_name,
    read_column,
    show,
    where,
)
from tallytree.potentials.envelope import Convexity, Stretch, crossed
from tallytree.potentials.expansions import Expansion, Terms


class Potential:
    """A non-negative function ``f(c)`` of the number ``c`` of active variables in a group.

    Potentials are frozen values: hashable, picklable, comparable with ``==``, and printed so that the text
    evaluates back to an equal object. Equality compares how a potential is written, not its table:
    ``exactly(0) != at_most(0)``. They do not know the size ``n`` of their group; it arrives with each call.

    ``a * b`` multiplies two potentials, ``a ** p`` raises one to a power (tempering), and ``~a`` counts the variables
    that are off: ``f(n - c)``. This is *not* the logical negation: ``~at_least(1)`` asks for at least one variable that
    is off.

    For a potential that has no name here, pass an array of log-values or a function to the model, or derive a new class
    and define ``_log_f(n)``.

    The numbers of a named potential may be arrays, with one number per model: ``exactly([2, 3])`` is a batch of two
    potentials, whose tables have the shape ``(2, n + 1)``.

    See Also
    --------
    tallytree.table
    tallytree.exactly
    tallytree.Group

    Notes
    -----
    A named potential that cannot hold for ``n`` variables, such as ``exactly(5)`` for ``n = 3``, raises
    ``ParameterError``. A product whose factors contradict one another has a table of ``-inf``.

    Examples
    --------
    >>> p = tt.at_least(1) * tt.geometric(0.5)
    >>> p
    at_least(1) * geometric(0.5)
    >>> np.exp(p.log_table(3))
    array([0.   , 0.5  , 0.25 , 0.125])
    """

    # No `abc.ABC`: every `isinstance` would be a call in Python, and every model asks whether it was given a potential.
    __slots__ = ()
    # NumPy scalars and arrays must not try to multiply a potential elementwise.
    __array_ufunc__: ClassVar[None] = None
    hard: ClassVar[bool] = False  # whether log f is 0 or -inf everywhere
    convexity: ClassVar[Convexity] = "unknown"  # of log f on its support

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch of potentials that this is; ``()`` for a single one.

        See Also
        --------
        log_table

        Examples
        --------
        >>> (tt.at_least(1) * tt.geometric([0.5, 0.25, 0.125])).batch_shape
        (3,)
        """
        return ()

    def log_table(self, n: int) -> Float64:
        """Logarithms ``log f(0), ..., log f(n)`` for a group of ``n`` variables.

        Parameters
        ----------
        n : int
            Number of variables in the group, at least 0.

        Returns
        -------
        ndarray of float64, shape (..., n + 1)
            A new array, with :attr:`batch_shape` in front. ``-inf`` marks an impossible count; NaN and ``+inf``
            never occur.

        Raises
        ------
        ParameterError
            If ``n`` is not a count, or the potential needs a larger group.

        See Also
        --------
        support, mixture

        Notes
        -----
        Cost: O(n).
        Accuracy: every entry within ``1e-13 (1 + |log f|)`` of the exact value, unless the factory says
        otherwise.

        Examples
        --------
        >>> tt.exactly(1).log_table(2)
        array([-inf,   0., -inf])
        """
        return self._table(checks.integer("n", n, 0))

    def support(self, n: int) -> tuple[Any, Any]:
        """Smallest interval ``(lo, hi)``, both ends included, that holds every count with ``f(c) > 0``.

        Parameters
        ----------
        n : int
            Number of variables in the group, at least 0.

        Returns
        -------
        lo : int or ndarray of int
            Lower end, in the shape of the batch.
        hi : int or ndarray of int
            Upper end.

        Raises
        ------
        ParameterError
            If ``n`` is not a count, or the potential needs a larger group.
        InfeasibleError
            If no count is possible, as for ``exactly(1) * exactly(2)``.

        See Also
        --------
        log_table

        Notes
        -----
        Cost: O(1) for the named potentials, O(n) for products and tables.
        Accuracy: exact.

        Examples
        --------
        >>> tt.parity("odd").support(10)
        (1, 9)
        """
        n = checks.integer("n", n, 0)
        self._require(n)
        return self._support(n)

    def mixture(self, n: int) -> tuple[Terms, Terms] | None:
        """Write f as a sum of exponentials: ``f(c) = sum_j coefficients[j] * rates[j]**c``, with ``0**0 = 1``.

        The function returns None instead of two arrays for a batch, if no short sum is known, or if its terms would
        cancel to fewer than about 11 digits.

        Parameters
        ----------
        n : int
            Number of variables in the group, at least 0.

        Returns
        -------
        coefficients : ndarray
            One number per term, float64 or complex128.
        rates : ndarray
            One number per term.

        Raises
        ------
        ParameterError
            If ``n`` is not a count, or the potential needs a larger group.

        See Also
        --------
        log_table

        Notes
        -----
        Cost: proportional to the number of terms: at most 8 for products, at most 32 for ``modulo``.
        Accuracy: the sum is within ``1e-10 f(c)`` of ``f(c)`` for ``n <= 2000``; where ``f(c) = 0`` it is
        within ``1e-16 (1000 + 2 n)`` of zero, relative to the sum of the absolute terms: rates that are
        rounded, such as the roots of unity of ``modulo``, leave a residue that grows with ``n``.

        Examples
        --------
        >>> tt.at_least(1).mixture(5)
        (array([ 1., -1.]), array([1., 0.]))
        """
        n = checks.integer("n", n, 0)
        self._require(n)
        short = self._expansion(n)
        return None if short is None else (short.coefficients, short.rates)

    def _table(self, n: int) -> Float64:
        """The log-table for a size that is known to be a count."""
        self._require(n)
        return self._window(n, 0, n) + 0.0  # -0.0 becomes 0.0

    def _log_window(self, n: int, first: int, last: int) -> Float64:
        """``log_table(n)[first : last + 1]``, bit for bit: 10^9 variables need no table of that length."""
        self._require(n)
        return self._window(n, first, last) + 0.0

    def _window(self, n: int, first: int, last: int) -> Float64:
        """``log f(first), ..., log f(last)``; kinds that define it do without ``_log_f``."""
        return self._log_f(n)[..., first : last + 1]

    def _log_f(self, n: int) -> Float64:
        raise NotImplementedError(
            f"A potential must define `_log_f(n)`, the logarithms for counts 0 to n; `{type(self).__name__}` does not."
        )

    def _require(self, n: int) -> None:
        """Raise ``ParameterError`` if the potential is meaningless or impossible for ``n`` variables."""
        return None

    def _support(self, n: int) -> tuple[Any, Any]:
        possible = self._window(n, 0, n) > -np.inf
        for index in where(~np.asarray(possible.any(axis=-1, keepdims=True))):
            raise InfeasibleError(
                f"{model_name(index) + ': ' if index else ''}`{self._member(index)!r}` allows no count at all for "
                f"n = {n}: its parts contradict one another. Drop or loosen one of them."
            )
        lo, hi = np.argmax(possible, axis=-1), n - np.argmax(possible[..., ::-1], axis=-1)
        return (lo, hi) if possible.ndim > 1 else (int(lo), int(hi))

    def _expansion(self, n: int) -> Expansion | None:
        return None

    def _stretches(self, n: int) -> list[Stretch]:
        low, high = (0, n) if self.convexity == "unknown" else self._support(n)
        return [Stretch(int(low), int(high), self.convexity)]

    def _member(self, index: Index) -> Potential:
        """The potential of one model of a batch that this one broadcasts to."""
        return self

    def _repr_html_(self) -> str:
        return display.potential_page(self)

    def __mul__(self, other: object) -> Potential:
        if not isinstance(other, Potential):
            return NotImplemented
        common_shape([self.batch_shape, other.batch_shape], "The factors of a product")
        return Product(_factors(self) + _factors(other))

    def __pow__(self, exponent: Any) -> Potential:
        if is_many(exponent):
            column = read_column("exponent", exponent, checks.POSITIVE)
            common_shape([self.batch_shape, column.shape], "A potential and its exponents")
            return Power(self, column)
        return Power(self, checks.real("exponent", exponent, 0.0, strict=True))

    def __invert__(self) -> Potential:
        return Complement(self)


def check_range(log_f: Float64, possible: Float64, potential: object) -> Float64:
    """Return ``log_f`` of a potential if it is finite wherever ``possible`` is not ``-inf``.

    An overflow would silently turn a merely improbable count into an impossible one.
    """
    finite = np.isfinite(log_f)
    if finite.all():
        return log_f
    bad = ~(finite | (possible == -np.inf))
    if bad.any():
        *model, c = np.argwhere(bad)[0].tolist()
        of_model = f" of model {model[0] if len(model) == 1 else tuple(model)}" if model else ""
        raise ParameterError(
            f"`{potential!r}` must have log values within the range of float64 for n = {log_f.shape[-1] - 1}; the value"
            f"{of_model} at count {c} overflows. Use milder parameters, or a hard constraint such as `exactly`."
        )
    return log_f


def _factors(potential: Potential) -> tuple[Potential, ...]:
    return potential.factors if isinstance(potential, Product) else (potential,)


@dataclass(frozen=True, slots=True)
class Product(Potential):
    """``f(c) = f_1(c) f_2(c) ...``: log tables add, and impossible stays impossible."""

    factors: tuple[Potential, ...]

    def __repr__(self) -> str:
        return " * ".join(map(repr, self.factors))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*(factor.batch_shape for factor in self.factors))

    def _member(self, index: Index) -> Potential:
        return Product(tuple(factor._member(index) for factor in self.factors))

    def _require(self, n: int) -> None:
        for factor in self.factors:
            factor._require(n)

    def _window(self, n: int, first: int, last: int) -> Float64:
        total = self.factors[0]._window(n, first, last)
        for factor in self.factors[1:]:
            log_f = factor._window(n, first, last)
            possible = np.minimum(total, log_f)
            with np.errstate(over="ignore"):
                total = check_range(total + log_f, possible, self)
        return total

    def _expansion(self, n: int) -> Expansion | None:
        total = self.factors[0]._expansion(n)
        for factor in self.factors[1:]:
            short = factor._expansion(n) if total is not None else None
            total = total.times(short, n) if total is not None and short is not None else None
        return total

    def _stretches(self, n: int) -> list[Stretch]:
        return reduce(crossed, (factor._stretches(n) for factor in self.factors))


@dataclass(frozen=True, slots=True)
class Power(Potential):
    """``f(c)**exponent``, exponent > 0: below one flattens, above one sharpens; zeros stay zeros."""

    base: Potential
    exponent: float | Column

    def __repr__(self) -> str:
        return f"{_grouped(self.base)} ** {show(self.exponent)}"

    @property
    def batch_shape(self) -> tuple[int, ...]:
        own = self.exponent.shape if isinstance(self.exponent, Column) else ()
        return np.broadcast_shapes(self.base.batch_shape, own)

    def _member(self, index: Index) -> Potential:
        own = self.exponent.at(index) if isinstance(self.exponent, Column) else self.exponent
        return Power(self.base._member(index), own)

    def _require(self, n: int) -> None:
        self.base._require(n)

    def _window(self, n: int, first: int, last: int) -> Float64:
        log_f = self.base._window(n, first, last)
        exponent = self.exponent.expanded if isinstance(self.exponent, Column) else self.exponent
        with np.errstate(over="ignore"):
            return check_range(log_f * exponent, log_f, self)

    def _support(self, n: int) -> tuple[Any, Any]:
        ends = self.base._support(n)
        if self.batch_shape == self.base.batch_shape:
            return ends
        lo, hi = (np.broadcast_to(end, self.batch_shape).copy() for end in ends)
        return lo, hi

    def _expansion(self, n: int) -> Expansion | None:
        short = self.base._expansion(n)
        if short is None or isinstance(self.exponent, Column):
            return None
        return short.power(self.exponent, n)

    def _stretches(self, n: int) -> list[Stretch]:
        return self.base._stretches(n)


class Mirrored(Potential):
    """``f(n - c)`` for another potential ``f``."""

    __slots__ = ()

    def _mirror(self) -> Potential:
        """The potential ``f``."""
        raise NotImplementedError

    def _window(self, n: int, first: int, last: int) -> Float64:
        return self._mirror()._window(n, n - last, n - first)[..., ::-1].copy()

    def _support(self, n: int) -> tuple[Any, Any]:
        lo, hi = self._mirror()._support(n)
        return n - hi, n - lo

    def _expansion(self, n: int) -> Expansion | None:
        short = self._mirror()._expansion(n)
        return None if short is None else short.reversed(n)

    def _stretches(self, n: int) -> list[Stretch]:
        found = reversed(self._mirror()._stretches(n))
        return [Stretch(n - s.last, n - s.first, s.convexity, s.step) for s in found]


@dataclass(frozen=True, slots=True)
class Complement(Mirrored):
    """The same potential on the number of variables that are off."""

    base: Potential

    def __repr__(self) -> str:
        return f"~{_grouped(self.base)}"

    def __invert__(self) -> Potential:
        return self.base

    _mirror = __invert__

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.base.batch_shape

    def _member(self, index: Index) -> Potential:
        return Complement(self.base._member(index))

    def _require(self, n: int) -> None:
        self.base._require(n)


def _grouped(potential: Potential) -> str:
    """Print an operand, in parentheses if it is itself a combination."""
    return f"({potential!r})" if isinstance(potential, (Product, Power, Complement)) else repr(potential)
