"""An assignment problem without what its constraints decide: free cells, and the tables that are left for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..arrays import Float64, Ints
from ..errors import InfeasibleError
from ..models.factor_graph import FactorGraph
from ..models.group import Group
from .feasibility import Side, decide


@dataclass(frozen=True, eq=False)
class Cells:
    """Allowed cells of a matrix, row by row, and their log-odds; ``inf`` forces a cell."""

    shape: tuple[int, int]
    row: Ints
    column: Ints
    logits: Float64

    @property
    def places(self) -> tuple[Ints, Ints]:
        """Row and column of every cell."""
        return self.row, self.column


@dataclass(frozen=True, eq=False)
class Reduced:
    """Free cells, cells that are on in every feasible assignment, and tables for the counts of the free cells.

    ``constant`` is the log-weight of all that is decided.
    """

    free: Ints
    on: Ints
    row_tables: list[Float64]
    column_tables: list[Float64]
    constant: float


def reduce(cells: Cells, rows: Float64, columns: Float64) -> Reduced:
    """Decide what can be decided; tables (1 or I, J + 1) and (1 or J, I + 1). Raises InfeasibleError."""
    forced = cells.logits == math.inf
    open_cells = np.flatnonzero(~forced)
    sides = (("Row", cells.row, rows), ("Column", cells.column, columns))
    forced_counts = [np.bincount(at[forced], minlength=n) for at, n in zip(cells.places, cells.shape)]
    row_limits, column_limits = (
        _hull(tables, taken, name) for (name, _, tables), taken in zip(sides, forced_counts)
    )
    found = decide(row_limits, column_limits, cells.row[open_cells], cells.column[open_cells])
    on = np.concatenate([np.flatnonzero(forced), open_cells[found.cells == 1]])
    free = open_cells[found.cells == -1]
    weights = cells.logits[on]
    left, constant = [], float(weights[np.isfinite(weights)].sum())
    for (name, at, tables), taken, counts in zip(sides, forced_counts, (found.rows, found.columns)):
        decided = counts + np.where(counts >= 0, taken, 0)
        reduced, weight = _tables(tables, at[on], at[free], decided, name)
        left.append(reduced)
        constant += weight
    return Reduced(free, on, left[0], left[1], constant)


def _hull(tables: Float64, forced: Ints, name: str) -> Side:
    """Smallest and largest count beyond the forced cells."""
    possible = tables > -math.inf
    dead = np.flatnonzero(~possible.any(1))
    if len(dead):
        raise InfeasibleError(
            f"{name} {int(dead[0])} allows no count at all: its potential is zero everywhere. Relax it."
        )
    low = np.argmax(possible, axis=1)
    high = possible.shape[1] - 1 - np.argmax(possible[:, ::-1], axis=1)
    return Side(np.maximum(low - forced, 0), np.broadcast_to(high, forced.shape) - forced)


def _tables(tables: Float64, on: Ints, free: Ints, decided: Ints, name: str) -> tuple[list[Float64], float]:
    """Table of every row over the counts of its free cells, and the log-values of rows without free cells."""
    size = len(decided)
    base, left = np.bincount(on, minlength=size), np.bincount(free, minlength=size)
    out: list[Float64] = []
    constant = 0.0
    shared: dict[tuple[int, int, int, int], Float64] = {}
    for i in range(size):
        source = 0 if tables.shape[0] == 1 else i
        key = (source, int(base[i]), int(left[i]), int(decided[i]))
        table = shared.get(key)
        if table is None:
            table = tables[source, base[i] : base[i] + left[i] + 1].copy()
            if decided[i] >= 0:
                table[np.arange(len(table)) != decided[i] - base[i]] = -math.inf
            if not (table > -math.inf).any():
                one = decided[i] >= 0 or left[i] == 0
                least = max(decided[i], base[i])
                possible = f"exactly {least}" if one else f"{base[i]} to {base[i] + left[i]}"
                raise InfeasibleError(
                    f"{name} {i} can have none of the counts it allows: the other counts and the allowed cells leave "
                    f"{possible}. Relax its potential."
                )
            table.flags.writeable = False
            shared[key] = table
        out.append(table)
        if left[i] == 0:
            constant += float(table[0])
    return out, constant


def graph(cells: Cells, reduced: Reduced) -> FactorGraph:
    """Free cells as variables; rows, then columns, that have any as factors."""
    groups = []
    for index, tables in zip(cells.places, (reduced.row_tables, reduced.column_tables)):
        side = index[reduced.free]
        order = np.argsort(side, kind="stable")
        ends = np.cumsum(np.bincount(side, minlength=len(tables)))
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        groups += [Group(order[a:b], t) for a, b, t in zip(starts, ends, tables) if b > a]
    return FactorGraph(cells.logits[reduced.free], groups)
