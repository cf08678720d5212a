"""Configurations, variables and evidence as users pass them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..arrays import Float64
from ..errors import ParameterError

_ZERO_OR_ONE = checks.Entries("0 and 1", look=False)


def states(
    y: ArrayLike, n: int, batch_shape: tuple[int, ...] = (), *, lead: bool = True
) -> NDArray[np.bool_]:
    """Configurations (..., D) of zeros and ones, whose leading axes, if allowed, broadcast against the batch."""
    found = checks.array("y", y, (..., n) if lead else (n,), _ZERO_OR_ONE)
    on: NDArray[np.bool_] = found > 0.5
    if not (found == on).all():
        raise ParameterError("`y` must contain only 0 and 1, but other values arrived.")
    if batch_shape and on.ndim > 1:
        checks.broadcast(batch_shape, [("`y`", on.shape[:-1])])
    return on


def variables(
    value: ArrayLike | None, n: int, name: str, shape: tuple[Any, ...] = (...,)
) -> NDArray[np.int64]:
    """Variable numbers, checked; None: all of them."""
    known = checks.integers(0, n - 1, "numbers of variables")
    return np.arange(n) if value is None else checks.array(name, value, shape, known)


def one_hot(count: int, n: int) -> Float64:
    """Log-table of "exactly `count`"."""
    table = np.full(n + 1, -math.inf)
    table[count] = 0.0
    return table


def evidence(values: Mapping[int, int], n: int, outcomes: int = 2) -> tuple[NDArray[np.int64], list[Float64]]:
    """Variables and one-hot leaf tables from {variable: value}."""
    checks.instance("evidence", values, Mapping, " {variable: 0 or 1}, such as {3: 1}")
    variables, tables = [], []
    for variable, value in values.items():
        v = checks.integer("evidence", variable)
        if not 0 <= v < n:
            raise ParameterError(f"`evidence` names variable {v}, but variables are numbered 0 to {n - 1}.")
        if not isinstance(value, (int, np.integer, np.bool_)) or value not in range(outcomes):
            allowed = "0 or 1" if outcomes == 2 else f"0 to {outcomes - 1}"
            raise ParameterError(
                f"`evidence` must say {allowed} for variable {v}; {checks.describe(value)} arrived."
            )
        variables.append(v)
        tables.append(one_hot(int(value), outcomes - 1))
    return np.array(variables, np.int64), tables
