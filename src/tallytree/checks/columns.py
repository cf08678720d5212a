"""Columns of numbers, whole numbers and truth values, one entry per row; and limits of iterations."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bools, Float64, Ints
from ..errors import ParameterError
from . import describe, integer, rectangular


def reals(name: str, value: Any, rows: int | None = None, axes: int = 1) -> Float64:
    """Finite real numbers, (rows,) or (rows, p)."""
    what = f"an array of finite real numbers with {axes} {'axis' if axes == 1 else 'axes'}"
    array = _column(name, value, what, "fiub", rows, axes)
    found = np.asarray(array, np.float64)
    if not np.isfinite(found).all():
        raise ParameterError(f"`{name}` must be {what}; NaN or infinity arrived. Leave such rows out.")
    return found


def whole(name: str, value: Any, rows: int | None = None) -> Ints:
    """Whole numbers of at least 0, (rows,)."""
    what = "an array of whole numbers of at least 0 with 1 axis"
    array = _column(name, value, what, "iu", rows, 1)
    if array.size and (array.min() < 0 or array.max() >= 2**62):
        raise ParameterError(
            f"`{name}` must be {what}; {array.min()} to {array.max()} arrived. Number them anew."
        )
    return np.asarray(array, np.int64)


def flags(name: str, value: Any, rows: int | None = None) -> Bools:
    """Truth values, (rows,); zeros and ones are taken for them."""
    what = "an array of truth values with 1 axis"
    array = _column(name, value, what, "biuf", rows, 1)
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise ParameterError(
            f"`{name}` must be {what}; other numbers than 0 and 1 arrived. Compare them first."
        )
    return np.asarray(array, np.bool_)


def _column(name: str, value: Any, what: str, kinds: str, rows: int | None, axes: int) -> NDArray[Any]:
    array = rectangular(name, value, what)
    if array.ndim == axes and array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64) if "f" not in kinds else array  # an empty list has no type of its own
    if array.ndim != axes or array.dtype.kind not in kinds:
        raise ParameterError(f"`{name}` must be {what}; {describe(value)} arrived. Convert it first.")
    if rows is not None and len(array) != rows:
        raise ParameterError(
            f"`{name}` must have {rows} rows as the others have; {len(array)} arrived. Leave none out."
        )
    return array


def tolerance(name: str, value: Any) -> float:
    """A number of at least 0."""
    if isinstance(value, (bool, np.bool_)) or not (
        isinstance(value, Real) and 0.0 <= float(value) < math.inf
    ):
        raise ParameterError(
            f"`{name}` must be a finite number of at least 0; {describe(value)} arrived. Use 0 for none."
        )
    return float(value)


def steps(name: str, value: Any, least: int = 0) -> int:
    """A whole number of at least `least`."""
    number = integer(name, value)
    if number < least:
        raise ParameterError(f"`{name}` must be at least {least}; {number} arrived. Choose a larger number.")
    return number


def callback(name: str, value: Any) -> None:
    """Refuse what is neither None nor a function."""
    if value is not None and not callable(value):
        raise ParameterError(f"`{name}` must be a function or None; {describe(value)} arrived. Leave it out.")
