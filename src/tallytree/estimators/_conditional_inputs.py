"""Vectors that go with the rows of a conditional logistic regression: weights, offsets, counts of cases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..learn.statistics import row_weights


def row_vector(name: str, values: ArrayLike, n: int) -> Float64:
    """Finite numbers, one per row."""
    given = checks.rectangular(name, values, f"{n} finite numbers, one per row of `X`")
    if given.dtype.kind not in "fiub":
        raise ParameterError(
            f"`{name}` must have {n} finite entries, one per row of `X`; {checks.describe(given)} arrived."
        )
    array = given.astype(np.float64)
    if array.shape != (n,) or not np.isfinite(array).all():
        raise ParameterError(
            f"`{name}` must have {n} finite entries, one per row of `X`; shape {array.shape} arrived."
        )
    return array


def cases_per_group(n_cases: ArrayLike | None, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of cases, one per group."""
    k = np.asarray(1 if n_cases is None else n_cases)
    if k.shape not in ((), sizes.shape) or k.dtype.kind not in "iu":
        raise ParameterError(
            f"`n_cases` must be an integer, or {len(sizes)} integers, one per group; an array of shape {k.shape} "
            f"and dtype {k.dtype} arrived."
        )
    k = np.broadcast_to(k, sizes.shape).astype(np.int64)
    if (k < 0).any() or (k > sizes).any():
        raise ParameterError("`n_cases` must lie between 0 and the size of each group.")
    return k


def named_columns(data: Any, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Columns of a table by name."""
    for name in names:
        if name not in data:
            raise ParameterError(
                f"`sample_weight` and `cluster` must name columns of `data`; {name!r} is not one of them."
            )
    return {name: np.asarray(data[name]) for name in names}


def weights_of_strata(sample_weight: Any, codes: Ints, n_groups: int) -> Float64 | None:
    """One weight per stratum from weights per row, which must agree within each."""
    weights = row_weights(sample_weight, len(codes), name="sample_weight")
    if weights is None:
        return None
    of_group = np.zeros(n_groups)
    of_group[codes] = weights
    stray = np.flatnonzero(of_group[codes] != weights)
    if len(stray):
        raise ParameterError(
            "`sample_weight` must be constant within every group of `groups`: a stratum is observed as a whole, and "
            f"the exact likelihood has no weights for single rows of it. Row {stray[0]} has weight "
            f"{weights[stray[0]]:g}, another row of its group {of_group[codes[stray[0]]]:g}."
        )
    return of_group


def repeated_rows(sample_weight: Any, n: int) -> Ints:
    """Row numbers, each as often as its whole-numbered weight says."""
    weights = row_weights(sample_weight, n, name="sample_weight")
    if weights is None:
        return np.arange(n)
    fraction = np.flatnonzero(weights != np.rint(weights))
    if len(fraction):
        raise ParameterError(
            "`sample_weight` of single rows must be whole numbers, how often each row occurs; "
            f"{weights[fraction[0]]:g} arrived for row {fraction[0]}. Weights of whole strata may be any numbers; they "
            "need `groups`."
        )
    return np.repeat(np.arange(n), weights.astype(np.int64))
