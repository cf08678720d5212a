"""Finite numbers that stand for infinite ones: masks of -1e20, the smallest float32, -1e300.

Beside a number of size 1e12 a double resolves no probability any more, and sums of such numbers leave the exponents
that the engines count in. So one rule holds for all engines: log-odds beyond ``FAR`` are infinite, entries of a
log-table below ``-FAR`` are -inf, and so are those that lie ``FAR`` below its largest. What every possible
configuration shares (far log-odds of variables that are then forced on, a far largest entry) is a constant of log Z
and enters no other answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64

FAR = 1e12
SMALL_SQUARE = 0.25 * FAR * FAR  # numbers whose squares add up to less than this are near
_FEW = 4096  # up to here a BLAS keeps to one thread


def all_near(values: NDArray[np.floating[Any]]) -> bool:
    """Whether no finite entry is as large as ``FAR / 2``; infinite ones are no matter."""
    if values.size <= _FEW and np.vdot(values, values) < SMALL_SQUARE:
        return True  # the quickest way for a few finite numbers
    lowest = values.min(where=values > -math.inf, initial=0.0)
    highest = values.max(where=values < math.inf, initial=0.0)
    return bool(lowest > -0.5 * FAR and highest < 0.5 * FAR)


class Replaced(NamedTuple):
    """Numbers with infinities for far ones, and what these add to log Z, (...,)."""

    logits: Float64
    tables: tuple[Float64, ...]
    potentials: tuple[Any, ...]
    constant: Float64


def replaced(logits: Float64, tables: Sequence[Float64], potentials: Sequence[Any]) -> Replaced:
    """Log-odds, tables and the potentials that they come from without far numbers."""
    far = [g for g, table in enumerate(tables) if not all_near(table)]
    logits, constant = near_logits(logits)
    new_tables, new_potentials = list(tables), list(potentials)
    for g in far:
        new_tables[g], added = near_table(tables[g])
        new_potentials[g] = new_tables[g]
        constant = constant + added
    return Replaced(logits, tuple(new_tables), tuple(new_potentials), constant)


def near_logits(logits: Float64) -> tuple[Float64, Float64]:
    """Log-odds (..., D) with far ones infinite, and what the forced ones add to log Z, (...,)."""
    forced = (logits > FAR) & (logits < math.inf)
    near = np.where(np.abs(logits) > FAR, np.copysign(math.inf, logits), logits)
    return near, np.where(forced, logits, 0.0).sum(-1)


def near_tables(tables: Float64, axes: int) -> tuple[Float64, Float64]:
    """Log-tables over the last `axes` axes as `near_table` makes them, and what each adds to log Z."""
    if all_near(tables):
        return tables, np.zeros(tables.shape[: tables.ndim - axes])
    near, base = near_table(tables.reshape(*tables.shape[: tables.ndim - axes], -1))
    return near.reshape(tables.shape), base


def near_table(table: Float64) -> tuple[Float64, Float64]:
    """A log-table (..., n + 1) with far entries -inf, and what it adds to log Z, (...,)."""
    top = table.max(-1, keepdims=True)
    base = np.where(top > FAR, top, 0.0)
    below = table - base
    return np.where(below < -FAR, -math.inf, below), base[..., 0]
