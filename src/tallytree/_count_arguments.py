"""Checks of the arguments of count distributions: what was required, what arrived, what to do next."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallytree.errors import ParameterError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

LARGEST_TABLE = 1 << 28  # entries of the table of all sums


def read_only(*arrays: NDArray[Any]) -> None:
    for array in arrays:
        array.flags.writeable = False


def real_array(name: str, value: ArrayLike, least_axes: int = 1) -> NDArray[Any]:
    """Return a copy of a real array without NaN: float32 stays, everything else becomes float64."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise ParameterError(f"`{name}` must be a rectangular array of numbers: {error}") from None
    if array.dtype.kind not in "fiub":
        raise ParameterError(f"`{name}` must hold real numbers; got dtype {array.dtype}.")
    if array.dtype == np.float16:
        raise ParameterError(f"`{name}` is float16, which has 3 digits; convert it to float32 or float64.")
    if array.ndim < least_axes:
        raise ParameterError(f"`{name}` must have shape (..., n); got a single number. Write [{value!r}].")
    array = array.astype(np.float32 if array.dtype == np.float32 else np.float64)
    missing = int(np.isnan(array).sum())
    if missing:
        raise ParameterError(
            f"`{name}` must not contain NaN; {missing} of {array.size} entries are. Drop them first."
        )
    return array


def from_probs(given: NDArray[Any]) -> tuple[Array, Array, Array]:
    """Return p, 1 - p and the log-odds, each with the digits that p has."""
    p = given.astype(np.float64) + 0.0
    outside = (p < 0.0) | (p > 1.0)
    if outside.any():
        raise ParameterError(
            f"`probs` must lie in [0, 1]; {int(outside.sum())} of {p.size} entries do not, for example "
            f"{p[outside][0]}. Log-odds go in `logits`."
        )
    with np.errstate(divide="ignore"):
        return p, 1.0 - p, np.log(p) - np.log1p(-p)


def integer_weights(value: ArrayLike, n: int) -> Ints:
    array = real_array("weights", value)
    if array.shape != (n,):
        raise ParameterError(f"`weights` must have shape ({n},), one per variable; got {array.shape}.")
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


def sample_shape(size: int | tuple[int, ...] | None) -> tuple[int, ...]:
    lead = () if size is None else (size,) if isinstance(size, (int, np.integer)) else tuple(size)
    if any(not isinstance(s, (int, np.integer)) or s < 0 for s in lead):
        raise ParameterError(f"`size` must be a non-negative integer or a tuple of them; got {size!r}.")
    return lead


def broadcast_shape(name: str, shape: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(shape, batch)
    except ValueError:
        raise ParameterError(
            f"`{name}` of shape {shape} does not broadcast against the batch {batch}. For all pairs give "
            f"`{name}[..., None]` one trailing axis per batch axis."
        ) from None


def probability(name: str, value: ArrayLike) -> Array:
    """Return an array of numbers in [0, 1]."""
    x = real_array(name, value, least_axes=0).astype(np.float64)
    if np.any((x < 0.0) | (x > 1.0)):
        raise ParameterError(f"`{name}` must lie in [0, 1]; got values from {x.min()} to {x.max()}.")
    return x
