"""Checks of the arguments of count distributions: what was required, what arrived, what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Float64, Ints
from ..errors import ParameterError
from . import NUMBERS, PROBABILITIES, REALS, array, describe
from . import shape as axes

LARGEST_TABLE = 1 << 28  # entries of the table of all sums


def read_only(*arrays: NDArray[Any]) -> None:
    for each in arrays:
        each.flags.writeable = False


def real_array(name: str, value: ArrayLike, least_axes: int = 1) -> Float64:
    """A copy of an array of real numbers, infinite ones included."""
    shape, hint = ((..., "n"), " For one entry pass a list of length one.") if least_axes else ((...,), "")
    return array(name, value, shape, NUMBERS, hint=hint, copy=True)


def from_probs(given: Any, hint: str = " Log-odds go in `logits`.") -> tuple[Float64, Float64, Float64]:
    """Return p, 1 - p and the log-odds, each with the digits that p has."""
    p = array("probs", given, (..., "n"), PROBABILITIES, hint=hint) + 0.0
    with np.errstate(divide="ignore"):
        return p, 1.0 - p, np.log(p) - np.log1p(-p)


def integer_weights(value: ArrayLike, n: int) -> Ints:
    """One integer per variable, whose sums fit a table."""
    given = array("weights", value, (n,), REALS, hint=" Give one integer per variable.")
    if np.any(given != np.floor(given)):
        raise ParameterError("`weights` must be integers; multiply them by a common denominator first.")
    total = float(np.abs(given).sum())
    step = max(int(np.gcd.reduce(np.abs(given).astype(np.int64))), 1) if 0 < total < 2.0**53 else 1
    if total / step >= LARGEST_TABLE:
        raise ParameterError(
            f"`weights` allow {total / step + 1:.0f} different sums; at most {LARGEST_TABLE} fit. Round them to a "
            "coarser unit."
        )
    return given.astype(np.int64)


def full_shape(size: Any, batch: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `scipy.stats` gives to draws: ``size`` ends with the axes of the batch."""
    if size is None:
        return batch
    shape = axes("size", size)
    tail = shape[len(shape) - len(batch) :]
    if len(shape) < len(batch) or any(b not in (1, s) for b, s in zip(batch, tail)):
        raise ParameterError(
            f"`size` must end with the axes of the batch, {batch}; {describe(size)} arrived. Write "
            f"size={(*shape, *batch)}, or call `sample({size!r})`, which adds the batch by itself."
        )
    return shape


def moment_letters(moments: Any, known: Iterable[str]) -> list[str]:
    """The letters of ``moments`` in the order of ``known``."""
    letters = list(known)
    if not isinstance(moments, str) or not moments or not set(moments) <= set(letters):
        raise ParameterError(
            "`moments` must be made of the letters m (mean), v (variance), s (skewness) and k (kurtosis), such as "
            f'"mv"; {describe(moments)} arrived.'
        )
    return [letter for letter in letters if letter in moments]


def function_values(func: Any, points: Ints) -> Float64:
    """Values of a user's function at integers, one each; without a function the integers themselves."""
    if func is None:
        return points.astype(np.float64)
    if not callable(func):
        raise ParameterError(
            f"`func` must be a function of an array of values, such as `lambda k: k**2`; {describe(func)} arrived."
        )
    try:
        found = np.asarray(func(points), np.float64)
        values = np.broadcast_to(found, points.shape)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"`func` must return one number for each of the {len(points)} values in the array that it gets; it failed "
            f"with: {error}. If it takes one value at a time, wrap it in np.vectorize."
        ) from error
    if np.isnan(values).any():
        raise ParameterError(
            f"`func` must be a number at every possible value; it is NaN at {int(points[np.isnan(values)][0])}."
        )
    return np.asarray(values)
