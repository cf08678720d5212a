"""Configurations, variables and evidence as users pass them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..arrays import Float64


def states(
    y: ArrayLike, n: int, batch_shape: tuple[int, ...] = (), *, lead: bool = True
) -> NDArray[np.bool_]:
    """Configurations (..., D) of zeros and ones, whose leading axes, if allowed, broadcast against the batch."""
    on = checks.array("y", y, (..., n) if lead else (n,), checks.ZERO_OR_ONE).astype(np.bool_)
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
    """Variables and one-hot leaf tables from {variable: value}; a chain has positions and their labels."""
    checks.instance(
        "evidence", values, Mapping, f" from 0 ... {n - 1} to 0 ... {outcomes - 1}, such as {{3: 1}}"
    )
    variables = [checks.integer("evidence", v, 0, n - 1, "the number of a variable") for v in values]
    tables = []
    for value in values.values():
        whole = int(value) if isinstance(value, (bool, np.bool_)) else value
        c = checks.integer("evidence", whole, 0, outcomes - 1, "the value of a variable")
        tables.append(one_hot(c, outcomes - 1))
    return np.array(variables, np.int64), tables
