"""Columns of labels, such as those of groups, strata and bags."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ParameterError
from . import unmasked


def label_column(called: str, value: Any) -> NDArray[Any]:
    """Labels (rows,) as given: a list keeps the types of its entries, which `np.asarray` would make one."""
    if not isinstance(value, (list, tuple)):
        return unmasked(called, value)
    array = np.empty(len(value), object)
    try:
        array[:] = value
    except ValueError:
        raise ParameterError(f"{called} must be a vector of labels; a ragged list arrived.") from None
    return array


def labels(name: str, value: Any, first: int = 0) -> NDArray[Any]:
    """Labels of one kind, (rows,), none of them missing; `first` is the number of the first row."""
    array = label_column(f"`{name}`", value)
    if array.dtype.kind not in "OfcmM":
        return array
    kinds = {_kind(kind) for kind in set(map(type, array.tolist()))} if array.dtype == object else set()
    absent = [] if kinds == {str} else list(map(_absent, array.tolist()))
    if any(absent):
        row = absent.index(True)
        raise ParameterError(
            f"`{name}` must not contain missing labels, but row {first + row} has {array[row]!s}. Drop those rows, or "
            "give each a group of its own."
        )
    if len(kinds) > 1:
        listed = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise ParameterError(
            f"`{name}` must hold labels of one kind, all numbers or all text; {listed} arrived. "
            f"Convert them, as in [str(label) for label in {name}]."
        )
    found = np.array(array.tolist()) if kinds <= set(_KINDS) else array
    return (
        found if found.tolist() == array.tolist() else array
    )  # whole numbers that no dtype holds stay objects


_KINDS = {str: str, bytes: bytes, bool: bool, np.bool_: bool, float: float, np.floating: float}
_KINDS |= {int: int, np.integer: int}


def _kind(found: type) -> type:
    """The kind of labels that a type belongs to: text, bytes, truth values, whole numbers, others, or its own."""
    return next((_KINDS[kind] for kind in _KINDS if issubclass(found, kind)), found)


def _absent(label: Any) -> bool:
    """Whether a label is None, NaN, NaT or pandas' NA, which are not equal to themselves."""
    same = label == label
    return label is None or not isinstance(same, (bool, np.bool_)) or not same
