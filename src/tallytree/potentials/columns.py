"""Numbers of a potential, one per model of a batch: frozen arrays with a value, and the naming of faulty entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tallytree import checks
from tallytree.checks import Entries, unmasked
from tallytree.errors import ParameterError

Index = tuple[int, ...]

# More numbers print as how many there are.
_LONGEST_PRINTED = 1000


class Column:
    """One number per model, or one list per model; the lists have equal lengths."""

    __slots__ = ("shape", "values")

    def __init__(self, values: npt.NDArray[Any], core: int = 0) -> None:
        self.values = values.copy()
        if values.dtype.kind == "f":
            self.values += 0.0  # -0.0 becomes 0.0, so that equal columns have equal hashes
        self.values.setflags(write=False)
        self.shape: tuple[int, ...] = values.shape[: values.ndim - core]

    @property
    def expanded(self) -> npt.NDArray[Any]:
        """The numbers with a last axis for the counts, or for the list of each model."""
        return self.values if self.values.ndim > len(self.shape) else self.values[..., None]

    def at(self, index: Index) -> Any:
        """The number, or the list, of one model of a batch that this column broadcasts to."""
        own = index[len(index) - len(self.shape) :]
        found = self.values[tuple(0 if size == 1 else i for i, size in zip(own, self.shape))]
        return found.tolist() if hasattr(found, "tolist") else found

    def __repr__(self) -> str:
        if self.values.size > _LONGEST_PRINTED:
            return f"<{self.values.size} numbers>"
        return show(self.values.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Column):
            return NotImplemented
        return self.shape == other.shape and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.shape, self.values.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Column, (self.values, self.values.ndim - len(self.shape))


def show(value: Any) -> str:
    """Print numbers so that they evaluate back to themselves, with ``np.inf`` for infinity."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(show, value))}]"
    return repr(value).replace("inf", "np.inf") if isinstance(value, float) else repr(value)


def is_many(value: Any, core: int = 0) -> bool:
    """Whether a user gave one number, or one list of numbers, per model."""
    if isinstance(value, (list, tuple)):
        return core == 0 or (len(value) > 0 and is_many(value[0], core - 1))
    return getattr(value, "ndim", 0) > core


def read_column(name: str, value: Any, entries: Entries, core: int = 0, function: str = "") -> Column:
    """What a user gave for one parameter of all models; the first model with a faulty number is named."""
    ragged = (
        f"`{name}` must hold as many numbers for every model; a ragged sequence arrived. Fill the gaps, or make "
        "one potential per model."
    )
    array = unmasked(f"`{name}`", value, ragged, function)
    if array.ndim < core:
        raise ParameterError(
            f"`{name}` must be a list of numbers, or one list per model; {value!r} arrived. Wrap it in a list."
        )
    array = array if array.size else array.astype(np.int64)  # of no numbers, the type does not matter
    column, legal = Column(array, core), array.dtype.kind in entries.kinds.replace("b", "")
    if not legal or not ((array >= entries.low) & (array <= entries.high)).all():
        for index in np.ndindex(column.shape):
            with naming(index):
                for number in np.ravel(np.array(column.at(index), object)).tolist():
                    checks.number(name, number, entries)
    return Column(array.astype(entries.dtype), core)


def common_shape(shapes: Sequence[tuple[int, ...]], what: str) -> tuple[int, ...]:
    """The shape that batches broadcast to."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(str(shape) for shape in dict.fromkeys(shapes) if shape)
        raise ParameterError(
            f"{what} must have one number per model, in shapes that broadcast together; shapes {listed} arrived. Give "
            "each of them one number for all models, or one for each."
        ) from None


class naming:
    """Name the model in front of the message of a ``ParameterError``."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, ParameterError) and self.index:
            raise ParameterError(f"{model_name(self.index)}: {error}") from None


def model_name(index: Index) -> str:
    """``Model 3``, or ``Model (0, 3)`` in a batch with two axes."""
    return f"Model {index[0] if len(index) == 1 else index}"


def where(bad: npt.NDArray[np.bool_]) -> Iterator[Index]:
    """Batch indices of the rows, along the last axis, that hold a bad entry."""
    for index in np.argwhere(bad.any(axis=-1)):
        yield tuple(index.tolist())
