"""Configurations, variables and evidence as users pass them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..arrays import Float64
from ..errors import ParameterError


def states(y: ArrayLike, n: int) -> NDArray[np.bool_]:
    """Configurations (..., D) of zeros and ones."""
    array = checks.rectangular("y", y, f"an array of 0 and 1 with {n} entries on the last axis")
    if array.dtype.kind not in "fiub" or array.ndim == 0 or array.shape[-1] != n:
        raise ParameterError(
            f"`y` must be an array of 0 and 1 with {n} entries on the last axis; {checks.describe(array)} arrived."
        )
    on: NDArray[np.bool_] = array != 0
    if not np.all((array == 1) == on):
        raise ParameterError("`y` must contain only 0 and 1, but other values arrived.")
    return on


def variables(value: ArrayLike | None, n: int, name: str) -> NDArray[np.int64]:
    """Variable numbers, checked; None: all of them."""
    if value is None:
        return np.arange(n)
    array = checks.rectangular(name, value, "an array of variable numbers")
    if array.dtype.kind not in "iu" and array.size:
        raise ParameterError(
            f"`{name}` must hold the numbers of variables; {checks.describe(array)} arrived."
        )
    array = array.astype(np.int64)
    if array.size and (array.min() < 0 or array.max() >= n):
        bad = int(array[(array < 0) | (array >= n)].flat[0])
        raise ParameterError(f"`{name}` names variable {bad}, but variables are numbered 0 to {n - 1}.")
    return array


def one_hot(count: int, n: int) -> Float64:
    """Log-table of "exactly `count`"."""
    table = np.full(n + 1, -math.inf)
    table[count] = 0.0
    return table


def evidence(values: Mapping[int, int], n: int) -> tuple[NDArray[np.int64], list[Float64]]:
    """Variables and one-hot leaf tables from {variable: value}."""
    if not isinstance(values, Mapping):
        raise ParameterError(
            "`evidence` must be a mapping {variable: 0 or 1}, such as {3: 1}; "
            f"{checks.describe(values)} arrived."
        )
    variables, tables = [], []
    for variable, value in values.items():
        v = checks.integer("evidence", variable)
        if not 0 <= v < n:
            raise ParameterError(f"`evidence` names variable {v}, but variables are numbered 0 to {n - 1}.")
        if not isinstance(value, (int, np.integer, np.bool_)) or value not in (0, 1):
            raise ParameterError(
                f"`evidence` must say 0 or 1 for variable {v}; {checks.describe(value)} arrived."
            )
        variables.append(v)
        tables.append(one_hot(int(value), 1))
    return np.array(variables, np.int64), tables
