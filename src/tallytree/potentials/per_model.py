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

from tallytree import checks
from tallytree.arrays import Float64
from tallytree.checks import Entries
from tallytree.potentials import formulas
from tallytree.potentials.base import Potential
from tallytree.potentials.columns import Column, Index, Mask, as_array, common_shape, is_many, naming, where

P = ParamSpec("P")


@dataclass(frozen=True)
class Kind:
    """How one factory works on columns, whose last axis is that of the counts, or of the list of each model.

    Attributes
    ----------
    factory
        The factory, which takes single numbers and columns.
    numbers
        What every parameter must be; None for one that all models share.
    core
        Number of axes of a parameter of one model: 1 where it is a list.
    together
        ``together(*columns)`` tells which models the factory accepts if each number is right by itself, (..., 1).
    fits
        ``fits(n, *columns)`` tells which models make sense for ``n`` variables, (..., 1).
    """

    factory: Callable[..., Potential]
    numbers: dict[str, Entries | None]
    core: int
    together: Callable[..., Any] | None
    fits: Callable[..., Any] | None

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.factory).parameters)


_KINDS: dict[str, Kind] = {}
_PLAIN = frozenset({int, float})
# tallytree.torch and tallytree.jax have functions of these names, which take their arrays.
_IN_FRAMEWORKS = {"exactly", "at_least", "at_most", "between", "gaussian", "poisson", "geometric"}


def one_per_model(
    together: Callable[..., Any] | None = None,
    fits: Callable[..., Any] | None = None,
    core: int = 0,
    **numbers: Entries | None,
) -> Callable[[Callable[P, Potential]], Callable[P, Potential]]:
    """Let a factory take arrays of numbers too, see :class:`Kind`; it gets single numbers that have been read."""

    def decorate(scalar: Callable[P, Potential]) -> Callable[P, Potential]:
        name, signature = scalar.__name__, inspect.signature(scalar)
        readers = {
            label: _reader(f"{label}` of `{name}", entries, signature.parameters[label].default is None)
            for label, entries in numbers.items()
        }

        @functools.wraps(scalar)
        def factory(*args: Any, **kwargs: Any) -> Potential:
            plain = not kwargs and _PLAIN.issuperset(map(type, args))  # the usual case, kept short
            if not plain and any(is_many(value, core) for value in (*args, *kwargs.values())):
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                return _per_model(_KINDS[name], tuple(bound.arguments.values()))
            if core or len(args) > len(readers) or not kwargs.keys() <= readers.keys():
                return scalar(*args, **kwargs)
            read = []
            for reader, value in zip(readers.values(), args):
                read.append(reader(value))
            for label in kwargs:
                kwargs[label] = readers[label](kwargs[label])
            return scalar(*read, **kwargs)

        _KINDS[name] = Kind(factory, numbers, core, together, fits)
        return factory

    return decorate


def _reader(label: str, entries: Entries | None, optional: bool) -> Callable[[Any], Any]:
    """A function that reads a single number."""
    if entries is None:
        return lambda value: value
    kind, low, high = float if "f" in entries.kinds else int, entries.low, entries.high

    def read(value: Any) -> Any:
        if type(value) is kind and low <= value <= high:  # the usual case, kept short
            return value + 0  # -0.0 becomes 0.0
        return None if optional and value is None else checks.number(label, value, entries)

    return read


def _per_model(kind: Kind, given: tuple[Any, ...]) -> Potential:
    """A potential per model, or the complaint about the first model that has none."""
    name = kind.factory.__name__
    function = f".{name}" if name in _IN_FRAMEWORKS else ""
    numbers = tuple(
        value
        if entries is None or value is None
        else Column(as_array(value, f"{label}` of `{name}", kind.core, function), kind.core)
        for value, (label, entries) in zip(given, kind.numbers.items())
    )
    shape = common_shape([c.shape for c in numbers if isinstance(c, Column)], f"The parameters of `{name}`")
    declared = list(zip(numbers, kind.numbers.values()))
    if not all(
        c.values.dtype.kind in e.kinds.replace("b", "") for c, e in declared if isinstance(c, Column) and e
    ):
        for index in np.ndindex(shape):
            _member(kind, numbers, index)
    converted = tuple(_converted(c, e, kind.core) for c, e in declared)
    with np.errstate(all="ignore"):
        legal = np.ones((*shape, 1), bool)
        for c, e in zip(converted, kind.numbers.values()):
            if isinstance(c, Column) and e is not None:
                inside = (c.expanded >= e.low) & (c.expanded <= e.high)
                legal = legal & (inside.all(-1, keepdims=True) if kind.core else inside)
        if kind.together is not None:
            legal = legal & kind.together(*map(_expanded, converted))
    for index in where(~np.broadcast_to(legal, (*shape, 1))):
        _member(kind, numbers, index)
    return PerModel(name, converted, shape)


def _converted(number: Any, entries: Entries | None, core: int) -> Any:
    """The numbers in int64 or float64; integers that do not fit become -1, which no factory accepts."""
    if not isinstance(number, Column) or entries is None:
        return number
    values = number.values
    if values.dtype == np.uint64 and "f" not in entries.kinds:
        values = np.where(values < 2**63, values.astype(np.int64), -1)
    return Column(values.astype(entries.dtype), core)


def _expanded(number: Any) -> Any:
    return number.expanded if isinstance(number, Column) else number


def _member(kind: Kind, numbers: tuple[Any, ...], index: Index) -> Potential:
    """The potential of one model; its faults are reported with the model."""
    values = [c.at(index) if isinstance(c, Column) else c for c in numbers]
    with naming(index):
        return kind.factory(**dict(zip(kind.parameters, values)))


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

    def _log_f(self, n: int) -> Float64:
        with np.errstate(all="ignore"):
            log_f = getattr(formulas, self.name)(np, formulas.counts(n), n, *self._columns())
        log_f = np.broadcast_to(log_f, (*self.shape, n + 1))
        self._refuse(np.isnan(log_f), n)
        return log_f

    def _refuse(self, bad: Mask, n: int) -> None:
        """Let the scalar potential of the first bad model say what is wrong."""
        for index in where(bad):
            member = self._member(index)
            with naming(index):
                member.log_table(n)
