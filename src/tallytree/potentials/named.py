"""Named potentials: classes made from their numbers and their formula, and the reading of the numbers.

A number is given once for all models or once per model: ``exactly([3, 5, 4])`` is three potentials side by side.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, NamedTuple, ParamSpec, dataclass_transform

import numpy as np
import numpy.typing as npt

from tallytree import checks
from tallytree.arrays import Float64
from tallytree.checks import Entries, has_nan
from tallytree.errors import ParameterError
from tallytree.potentials import formulas
from tallytree.potentials.base import Potential, check_range
from tallytree.potentials.columns import (
    Column,
    Index,
    common_shape,
    is_many,
    naming,
    read_column,
    show,
    where,
)

P = ParamSpec("P")


class Factory(NamedTuple):
    """The function that users call, what its numbers must be, and how many axes one model's number has."""

    call: Callable[..., Potential]
    numbers: dict[str, Entries | None]  # None: a truth value
    core: int


FACTORIES: dict[str, Factory] = {}
KINDS: dict[str, type[Named]] = {}
_SINGLE = frozenset({int, float})
# tallytree.torch and tallytree.jax have functions of these names, which take their arrays.
_IN_FRAMEWORKS = {"exactly", "at_least", "at_most", "between", "gaussian", "poisson", "geometric"}


@dataclass_transform(frozen_default=True)
class Named(Potential):
    """A potential that prints as the call that makes it.

    A subclass lists its numbers as fields of a frozen dataclass and has the formula of its name in
    :mod:`~tallytree.potentials.formulas`. Fields with a default are printed by name.
    """

    name: ClassVar[str]
    _fields: ClassVar[tuple[str, ...]]
    holds: ClassVar[Callable[..., Any] | None] = (
        None  # whether the numbers, or columns of them, make sense together
    )

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, repr=False)(cls)
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        cls._fields = tuple(field.name for field in fields(cls))  # type: ignore[arg-type]
        KINDS[cls.name] = cls

    def __repr__(self) -> str:
        return _written(type(self), self._numbers())

    def _numbers(self) -> list[Any]:
        return [getattr(self, name) for name in self._fields]

    @np.errstate(all="ignore")  # half the time of a `with`
    def _window(self, n: int, first: int, last: int) -> Float64:
        c = np.arange(first, last + 1, dtype=np.float64)
        log_f: Float64 = getattr(formulas, self.name)(np, c, n, *self._numbers())
        return check_range(log_f, log_f, self) if has_nan(log_f) else log_f

    def _support(self, n: int) -> tuple[Any, Any]:
        return 0, n


class Validated(Named):
    """A kind whose numbers have to make sense together."""

    reason: ClassVar[str]  # what is said if they do not

    def __post_init__(self) -> None:
        if self.holds is not None and not self.holds(*self._numbers()):
            raise ParameterError(self.reason.format(self))


def _written(kind: type[Named], numbers: list[Any]) -> str:
    """The call that makes a potential, as text."""
    parts = []
    for field, number in zip(fields(kind), numbers):  # type: ignore[arg-type]
        single = number.values.tolist() if isinstance(number, Column) and not number.shape else number
        if field.default is MISSING:
            parts.append(show(number))
        elif single != field.default:
            parts.append(f"{field.name}={show(number)}")
    return f"{kind.name}({', '.join(parts)})"


def factory(
    core: int = 0, **numbers: Entries | None
) -> Callable[[Callable[P, Potential]], Callable[P, Potential]]:
    """Read the numbers of a factory as declared: it gets single ones; arrays of them make a :class:`PerModel`."""

    def decorate(single: Callable[P, Potential]) -> Callable[P, Potential]:
        name, signature = single.__name__, inspect.signature(single)
        readers = {
            label: _reader(f"{label}` of `{name}", entries, signature.parameters[label].default is None)
            for label, entries in numbers.items()
        }

        @functools.wraps(single)
        def call(*args: Any, **kwargs: Any) -> Potential:
            few = not kwargs and _SINGLE.issuperset(map(type, args))  # the most frequent case, kept short
            if not few and any(is_many(value, core) for value in (*args, *kwargs.values())):
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                return _per_model(name, bound.arguments)
            if core or len(args) > len(readers) or not kwargs.keys() <= readers.keys():
                return single(*args, **kwargs)
            read = []
            for reader, value in zip(readers.values(), args):
                read.append(reader(value))
            for label in kwargs:
                kwargs[label] = readers[label](kwargs[label])
            return single(*read, **kwargs)

        FACTORIES[name] = Factory(call, numbers, core)
        return call

    return decorate


def _reader(label: str, entries: Entries | None, optional: bool) -> Callable[[Any], Any]:
    """A function that reads a single number."""
    if entries is None:
        return functools.partial(checks.flag, label)
    kind, low, high = float if "f" in entries.kinds else int, entries.low, entries.high

    def read(value: Any) -> Any:
        if type(value) is kind and low <= value <= high:  # the most frequent case, kept short
            return value + 0  # -0.0 becomes 0.0
        return None if optional and value is None else checks.number(label, value, entries)

    return read


def _per_model(name: str, given: dict[str, Any]) -> Potential:
    """A potential per model, or the complaint about the first model that has none."""
    _, declared, core = FACTORIES[name]
    function = f".{name}" if name in _IN_FRAMEWORKS else ""
    numbers = []
    for label, entries in declared.items():
        called, value = f"{label}` of `{name}", given[label]
        if entries is None:
            value = checks.flag(called, value)
        elif value is not None:
            value = read_column(called, value, entries, core, function)
        numbers.append(value)
    shape = common_shape([c.shape for c in numbers if isinstance(c, Column)], f"The parameters of `{name}`")
    found, holds = PerModel(name, tuple(numbers), shape), KINDS[name].holds
    if holds is not None:
        with np.errstate(all="ignore"):
            found._refuse(~np.broadcast_to(holds(*found._columns()), (*shape, 1)))
    return found


@dataclass(frozen=True, slots=True)
class PerModel(Potential):
    """A named potential with one number per model."""

    name: str
    numbers: tuple[Any, ...]
    shape: tuple[int, ...]

    def __repr__(self) -> str:
        return _written(KINDS[self.name], list(self.numbers))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.shape

    def _columns(self) -> list[Any]:
        return [number.expanded if isinstance(number, Column) else number for number in self.numbers]

    def _member(self, index: Index) -> Potential:
        values = [c.at(index) if isinstance(c, Column) else c for c in self.numbers]
        call, declared, _ = FACTORIES[self.name]
        with naming(index):
            return call(**dict(zip(declared, values)))

    def _require(self, n: int) -> None:
        self._log_f(n)

    def _table(self, n: int) -> Float64:
        return self._log_f(n) + 0.0

    def _log_f(self, n: int) -> Float64:
        with np.errstate(all="ignore"):
            log_f = getattr(formulas, self.name)(np, formulas.counts(n), n, *self._columns())
        log_f = np.broadcast_to(log_f, (*self.shape, n + 1))
        self._refuse(np.isnan(log_f) | np.isneginf(log_f).all(-1, keepdims=True), n)
        return log_f

    def _refuse(self, bad: npt.NDArray[np.bool_], n: int | None = None) -> None:
        """Let the potential of the first bad model say what is wrong."""
        for index in where(bad):
            member = self._member(index)
            with naming(index):
                if n is not None:
                    member.log_table(n)
