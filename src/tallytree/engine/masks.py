"""Masks: finite numbers that stand for infinite ones, such as -1e20, the smallest float32, -1e300.

Beside a number of size 1e12 a double resolves no probability any more, and sums of such numbers leave the exponents
that the engines count in. So one rule holds everywhere: log-odds beyond ``MASK`` are infinite, entries of a log-table
below ``-MASK`` are -inf, and so are those that lie ``MASK`` below its largest. What every possible configuration
shares (log-odds beyond ``MASK`` of variables that are then forced on, a largest entry beyond ``MASK``) is a constant
of log Z and enters no other answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64

MASK = 1e12
SMALL_SQUARE = 0.25 * MASK * MASK  # numbers whose squares add up to less than this hold no mask
_FEW = 8192  # up to here a BLAS keeps to one thread


def absent(values: NDArray[np.floating[Any]]) -> bool:
    """Whether no finite entry is as large as ``MASK / 2``; infinite ones are no matter."""
    if values.size <= _FEW and np.vdot(values, values) < SMALL_SQUARE:
        return True  # the quickest way for a few finite numbers
    if values.size == 0 or absent_between(values.min(), values.max()):
        return True
    far_down = np.count_nonzero(values < -0.5 * MASK) - np.count_nonzero(values == -math.inf)
    far_up = np.count_nonzero(values > 0.5 * MASK) - np.count_nonzero(values == math.inf)
    return bool(far_down == 0 and far_up == 0)


def absent_between(smallest: float, largest: float) -> bool:
    """Whether numbers with these extremes are finite and none of them is a mask."""
    return bool(smallest > -0.5 * MASK and largest < 0.5 * MASK)


def remark(*numbers: Any) -> str:
    """What messages about impossible models say of their masks, if there are any."""
    found = not all(absent(values) for values in numbers)
    return f" (finite numbers beyond {MASK:.0e} count as infinite)" * found


class Resolved(NamedTuple):
    """Numbers with infinities for masks, and what these add to log Z, (...,)."""

    logits: Float64
    tables: tuple[Float64, ...]
    potentials: tuple[Any, ...]
    constant: Float64


def resolve(logits: Float64, tables: Sequence[Float64], potentials: Sequence[Any]) -> Resolved:
    """Log-odds, tables and the potentials that they come from, without masks."""
    masked = [g for g, table in enumerate(tables) if not absent(table)]
    logits, constant = resolve_logits(logits)
    new_tables, new_potentials = list(tables), list(potentials)
    for g in masked:
        new_tables[g], added = resolve_table(tables[g])
        new_potentials[g] = new_tables[g]
        constant = constant + added
    return Resolved(logits, tuple(new_tables), tuple(new_potentials), constant)


def resolve_logits(logits: Any, xp: Any = np) -> tuple[Any, Any]:
    """Log-odds (..., D) with infinities for masks, and what the forced ones add to log Z, (...,)."""
    forced = (logits > MASK) & (logits < math.inf)
    resolved = xp.where(xp.abs(logits) > MASK, xp.where(logits > 0, math.inf, -math.inf), logits)
    return resolved, xp.sum(xp.where(forced, logits, 0.0), -1)


def resolve_tables(tables: Float64, axes: int) -> tuple[Float64, Float64]:
    """Log-tables over the last `axes` axes as `resolve_table` makes them, and what each adds to log Z."""
    if absent(tables):
        return tables, np.zeros(tables.shape[: tables.ndim - axes])
    resolved, base = resolve_table(tables.reshape(*tables.shape[: tables.ndim - axes], -1))
    return resolved.reshape(tables.shape), base


def resolve_table(table: Any, xp: Any = np, hold: Any = None) -> tuple[Any, Any]:
    """A log-table (..., n + 1) with -inf for masks, and what it adds to log Z, (...,).

    `hold` keeps derivatives from the largest entry, where there are any.
    """
    top = xp.max(table, -1, keepdims=True)
    top = xp.where(top > -math.inf, top, 0.0)
    top = top if hold is None else hold(top)
    base = xp.where(top > MASK, top, 0.0)
    masked = (table < -MASK) | (table - top < -MASK)
    return xp.where(masked, -math.inf, table - base), base[..., 0]
