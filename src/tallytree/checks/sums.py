"""Checks of the arguments of count distributions: what was required, what arrived, what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Float64, Ints
from ..errors import ParameterError
from . import describe, unmasked
from . import shape as axes

LARGEST_TABLE = 1 << 28  # entries of the table of all sums


def read_only(*arrays: NDArray[Any]) -> None:
    for array in arrays:
        array.flags.writeable = False


def real_array(name: str, value: ArrayLike, least_axes: int = 1) -> NDArray[Any]:
    """Return a copy of a real array without NaN: float32 stays, everything else becomes float64."""
    try:
        array = unmasked(f"`{name}`", value)
    except ParameterError:
        raise
    except (ValueError, TypeError) as error:
        raise ParameterError(f"`{name}` must be a rectangular array of numbers: {error}") from None
    if array.dtype.kind not in "fiub":
        raise ParameterError(f"`{name}` must hold real numbers; dtype {array.dtype} arrived.")
    if array.dtype == np.float16:
        raise ParameterError(f"`{name}` is float16, which has 3 digits; convert it to float32 or float64.")
    if array.ndim < least_axes:
        raise ParameterError(
            f"`{name}` must have shape (..., n); a single number arrived. Write [{value!r}]."
        )
    array = array.astype(np.float32 if array.dtype == np.float32 else np.float64)
    missing = int(np.isnan(array).sum())
    if missing:
        raise ParameterError(
            f"`{name}` must not contain NaN; {missing} of {array.size} entries are. Drop them first."
        )
    return array


def from_probs(
    given: NDArray[Any], hint: str = "Log-odds go in `logits`."
) -> tuple[Float64, Float64, Float64]:
    """Return p, 1 - p and the log-odds, each with the digits that p has."""
    p = given.astype(np.float64) + 0.0
    outside = (p < 0.0) | (p > 1.0)
    if outside.any():
        raise ParameterError(
            f"`probs` must lie in [0, 1]; {int(outside.sum())} of {p.size} entries do not, for example "
            f"{p[outside][0]}. {hint}"
        )
    with np.errstate(divide="ignore"):
        return p, 1.0 - p, np.log(p) - np.log1p(-p)


def integer_weights(value: ArrayLike, n: int) -> Ints:
    array = real_array("weights", value)
    if array.shape != (n,):
        raise ParameterError(f"`weights` must have shape ({n},), one per variable; {array.shape} arrived.")
    if not np.all(np.isfinite(array)) or np.any(array != np.floor(array)):
        raise ParameterError("`weights` must be integers; multiply them by a common denominator first.")
    if np.abs(array).sum() >= 2.0**53:
        raise ParameterError("`weights` must have a sum of absolute values below 2**53.")
    weights = array.astype(np.int64)
    step = max(int(np.gcd.reduce(np.abs(weights))), 1) if n else 1
    entries = int(np.abs(weights).sum()) // step + 1
    if entries > LARGEST_TABLE:
        raise ParameterError(
            f"`weights` allow {entries} different sums; at most {LARGEST_TABLE} fit. "
            "Round them to a coarser unit."
        )
    return weights


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


def real_number(name: str, value: Any) -> float:
    array = real_array(name, value, least_axes=0)
    if array.ndim:
        raise ParameterError(f"`{name}` must be a single number; {describe(value)} arrived.")
    return float(array)


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


def broadcast_shape(name: str, shape: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(shape, batch)
    except ValueError:
        raise ParameterError(
            f"`{name}` of shape {shape} does not broadcast against the batch {batch}. For all pairs give "
            f"`{name}[..., None]` one trailing axis per batch axis."
        ) from None


def probability(name: str, value: ArrayLike) -> Float64:
    """Return an array of numbers in [0, 1]."""
    x = real_array(name, value, least_axes=0).astype(np.float64)
    if np.any((x < 0.0) | (x > 1.0)):
        raise ParameterError(f"`{name}` must lie in [0, 1]; values from {x.min()} to {x.max()} arrived.")
    return x
