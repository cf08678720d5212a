"""Named potentials with one parameter per model: ``exactly([3, 5, 4])`` is three potentials side by side.

A factory marked with :func:`one_per_model` keeps its scalar form and also takes arrays. Faults are looked for in all
models at once; the message about the first faulty one is the scalar factory's own, with the model in front of it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec

import numpy as np

from tallytree.checks.numbers import FloatArray
from tallytree.potentials import rows as formulas
from tallytree.potentials.base import Potential
from tallytree.potentials.columns import Column, Index, Mask, as_array, blamed, common_shape, is_many, where

P = ParamSpec("P")


@dataclass(frozen=True)
class Kind:
    """How one factory works on columns, whose last axis is that of the counts, or of the list of each model.

    Attributes
    ----------
    scalar
        The factory for single numbers.
    dtypes
        Type of every parameter: int or float, None for one that all models share.
    core
        Number of axes of a parameter of one model: 1 where it is a list.
    rows
        ``rows(c, n, *columns)`` is ``log f`` at the counts ``c`` of ``n`` variables, (..., len(c)), with NaN where
        the scalar potential refuses the value.
    legal
        ``legal(*columns)`` tells which models the scalar factory accepts, (..., 1).
    fits
        ``fits(n, *columns)`` tells which models make sense for ``n`` variables, (..., 1).
    """

    scalar: Callable[..., Potential]
    dtypes: tuple[type | None, ...]
    core: int
    rows: Callable[..., Any]
    legal: Callable[..., Any]
    fits: Callable[..., Any] | None

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.scalar).parameters)


_KINDS: dict[str, Kind] = {}
_NUMBERS = frozenset({int, float})


def one_per_model(
    *dtypes: type | None,
    rows: Callable[..., Any],
    legal: Callable[..., Any],
    fits: Callable[..., Any] | None = None,
    core: int = 0,
) -> Callable[[Callable[P, Potential]], Callable[P, Potential]]:
    """Let a factory take arrays of numbers too, see :class:`Kind`."""

    def decorate(scalar: Callable[P, Potential]) -> Callable[P, Potential]:
        kind = _KINDS[scalar.__name__] = Kind(scalar, dtypes, core, rows, legal, fits)
        signature = inspect.signature(scalar)

        @functools.wraps(scalar)
        def factory(*args: P.args, **kwargs: P.kwargs) -> Potential:
            plain = not kwargs and _NUMBERS.issuperset(map(type, args))  # the usual case, kept short
            if plain or not any(is_many(value, core) for value in (*args, *kwargs.values())):
                return scalar(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return _per_model(kind, tuple(bound.arguments.values()))

        return factory

    return decorate


def _per_model(kind: Kind, given: tuple[Any, ...]) -> Potential:
    """A potential per model, or the complaint about the first model that has none."""
    name = kind.scalar.__name__
    arguments = list(zip(given, kind.parameters, kind.dtypes))
    numbers = tuple(
        value
        if dtype is None or value is None
        else Column(as_array(value, f"{label}` of `{name}", kind.core), kind.core)
        for value, label, dtype in arguments
    )
    shape = common_shape([c.shape for c in numbers if isinstance(c, Column)], f"The parameters of `{name}`")
    if not all(_understood(c, dtype) for c, dtype in zip(numbers, kind.dtypes)):
        for index in np.ndindex(shape):
            _member(kind, numbers, index)
    converted = tuple(_converted(c, dtype, kind.core) for c, dtype in zip(numbers, kind.dtypes))
    with np.errstate(all="ignore"):
        legal = np.broadcast_to(kind.legal(*map(_expanded, converted)), (*shape, 1))
    for index in where(~legal):
        _member(kind, numbers, index)
    return PerModel(name, converted, shape)


def _understood(number: Any, dtype: type | None) -> bool:
    """Whether an array can be judged as a whole; others are judged entry by entry."""
    if not isinstance(number, Column):
        return True
    return number.values.dtype.kind in ("iu" if dtype is int else "iuf")


def _converted(number: Any, dtype: type | None, core: int) -> Any:
    """The numbers in int64 or float64; integers that do not fit become -1, which no factory accepts."""
    if not isinstance(number, Column):
        return number
    values = number.values
    if dtype is not int:
        return Column(values.astype(np.float64), core)
    if values.dtype == np.uint64:
        values = np.where(values < 2**63, values.astype(np.int64), -1)
    return Column(values.astype(np.int64), core)


def _expanded(number: Any) -> Any:
    return number.expanded if isinstance(number, Column) else number


def _member(kind: Kind, numbers: tuple[Any, ...], index: Index) -> Potential:
    """The potential of one model; its faults are reported with the model."""
    values = [c.at(index) if isinstance(c, Column) else c for c in numbers]
    with blamed(index):
        return kind.scalar(**dict(zip(kind.parameters, values)))


@dataclass(frozen=True, slots=True)
class PerModel(Potential):
    """A named potential with one parameter per model, see :func:`one_per_model`."""

    name: str
    numbers: tuple[Any, ...]
    shape: tuple[int, ...]

    def __repr__(self) -> str:
        parts = []
        for number, parameter in zip(self.numbers, self._kind.parameters.values()):
            optional = parameter.default is not inspect.Parameter.empty
            alone = number.values.tolist() if isinstance(number, Column) and not number.shape else number
            if not optional or alone != parameter.default:
                parts.append(f"{parameter.name}={number!r}" if optional else repr(number))
        return f"{self.name}({', '.join(parts)})"

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.shape

    @property
    def _kind(self) -> Kind:
        return _KINDS[self.name]

    def _columns(self) -> list[Any]:
        return [_expanded(number) for number in self.numbers]

    def _member(self, index: Index) -> Potential:
        return _member(self._kind, self.numbers, index)

    def _require(self, n: int) -> None:
        fits = self._kind.fits
        if fits is not None:
            self._refuse(~np.broadcast_to(fits(n, *self._columns()), (*self.shape, 1)), n)

    def _log_f(self, n: int) -> FloatArray:
        with np.errstate(all="ignore"):
            log_f = self._kind.rows(formulas.counts(n), n, *self._columns())
        log_f = np.broadcast_to(log_f, (*self.shape, n + 1))
        self._refuse(np.isnan(log_f), n)
        return log_f

    def _refuse(self, bad: Mask, n: int) -> None:
        """Let the scalar potential of the first bad model say what is wrong."""
        for index in where(bad):
            member = self._member(index)
            with blamed(index):
                member.log_table(n)
