"""Members of groups, and columns of labels such as those of groups, strata and bags, as users pass them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Ints
from ..errors import ParameterError, StructureError
from . import INTEGERS, ZERO_OR_ONE, array, describe, unmasked


def members(value: Any, n_variables: int, label: str) -> Ints:
    """The variables of one group as an index array; whether they repeat is checked for all groups together."""
    if value is None:
        return np.arange(n_variables)
    if isinstance(value, slice):
        return np.arange(n_variables)[value]
    if isinstance(value, range):
        return np.arange(value.start, value.stop, value.step)
    listed = list(value) if isinstance(value, Iterable) and not isinstance(value, np.ndarray) else value
    found = unmasked(label, listed, f"{label} must be a list of variables; a ragged one arrived.")
    if found.ndim == 1 and found.dtype.kind in "iu":
        return found.astype(np.int64)  # the usual case, kept short
    if found.dtype.kind == "b":
        hint = " A mask needs one truth value per variable."
        return np.flatnonzero(
            array(label, found, (n_variables,), ZERO_OR_ONE, hint=hint, error=StructureError)
        )
    hint = " Or give a range, a slice, a boolean mask, or None for all variables."
    return array(label, found, ("n",), INTEGERS, hint=hint, error=StructureError)


def group_list(groups: Any) -> list[Any]:
    """The groups of an iterable."""
    if isinstance(groups, (str, bytes)) or not isinstance(groups, Iterable):
        raise StructureError(
            f"`groups` must be a list of groups, such as [[0, 1], None]; {describe(groups)} arrived."
        )
    try:
        return list(groups)
    except TypeError:  # an array without axes
        raise StructureError("`groups` must be a list of groups; a single number arrived.") from None


def all_members(groups: Iterable[Any], n_variables: int) -> tuple[Ints, Ints]:
    """Member lists of all groups, concatenated, and the offsets between them; checked."""
    lists = [members(g, n_variables, f"Group {i}") for i, g in enumerate(group_list(groups))]
    sizes = np.array([len(m) for m in lists], np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        raise StructureError(
            f"Every group needs at least one variable, but group {empty[0]} is empty. Leave it out."
        )
    flat = np.concatenate([np.empty(0, np.int64), *lists])
    bad = np.flatnonzero((flat < 0) | (flat >= n_variables))
    if len(bad):
        group = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        raise StructureError(
            f"Group {group} names variable {int(flat[bad[0]])}, but variables are numbered 0 to {n_variables - 1}."
        )
    _refuse_repeats(flat, offsets, n_variables)
    return flat, offsets


def _refuse_repeats(flat: Ints, offsets: Ints, n_variables: int) -> None:
    group = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    # Ranges and sorted lists, the common case, are recognised without sorting.
    rising = (flat[1:] > flat[:-1]) | (group[1:] != group[:-1])
    if rising.all():
        return
    suspects = np.zeros(len(offsets) - 1, bool)
    suspects[group[1:][~rising]] = True
    keep = suspects[group]
    key = np.sort(group[keep] * n_variables + flat[keep])
    twice = np.flatnonzero(key[1:] == key[:-1])
    if len(twice):
        g, v = divmod(int(key[twice[0]]), n_variables)
        raise StructureError(
            f"Group {g} names variable {v} more than once. List every variable once; "
            "for a variable that counts double use integer weights with `PoissonBinomial`."
        )


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
