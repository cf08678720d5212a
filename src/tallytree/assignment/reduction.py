"""An assignment problem without what its constraints decide: free cells, and the tables that are left for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..arrays import Float64, Ints
from ..errors import InfeasibleError
from ..models.factor_graph import FactorGraph
from ..models.group import Group
from .feasibility import Counts, decide


@dataclass(frozen=True, eq=False)
class Cells:
    """Allowed cells of a matrix, row by row, and their log-odds; ``inf`` forces a cell."""

    shape: tuple[int, int]
    row: Ints
    column: Ints
    logits: Float64


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
    forced_rows = np.bincount(cells.row[forced], minlength=cells.shape[0])
    forced_columns = np.bincount(cells.column[forced], minlength=cells.shape[1])
    row_low, row_high = _hull(rows, forced_rows, "Row")
    column_low, column_high = _hull(columns, forced_columns, "Column")
    open_cells = np.flatnonzero(~forced)
    row, column = cells.row[open_cells], cells.column[open_cells]
    found = decide(Counts(row_low, row_high, column_low, column_high), row, column)
    on = np.concatenate([np.flatnonzero(forced), open_cells[found.cells == 1]])
    free = open_cells[found.cells == -1]
    row_tables, row_constant = _tables(
        rows,
        cells.row[on],
        cells.row[free],
        found.rows + np.where(found.rows >= 0, forced_rows, 0),
        cells.shape[0],
        "Row",
    )
    column_tables, column_constant = _tables(
        columns,
        cells.column[on],
        cells.column[free],
        found.columns + np.where(found.columns >= 0, forced_columns, 0),
        cells.shape[1],
        "Column",
    )
    weights = cells.logits[on]
    constant = float(weights[np.isfinite(weights)].sum()) + row_constant + column_constant
    return Reduced(free, on, row_tables, column_tables, constant)


def _hull(tables: Float64, forced: Ints, name: str) -> tuple[Ints, Ints]:
    """Smallest and largest count beyond the forced cells."""
    possible = tables > -math.inf
    dead = np.flatnonzero(~possible.any(1))
    if len(dead):
        raise InfeasibleError(
            f"{name} {int(dead[0])} allows no count at all: its potential is zero everywhere. Relax it."
        )
    low = np.argmax(possible, axis=1)
    high = possible.shape[1] - 1 - np.argmax(possible[:, ::-1], axis=1)
    return np.maximum(low - forced, 0), np.broadcast_to(high, forced.shape) - forced


def _tables(
    tables: Float64, on: Ints, free: Ints, decided: Ints, size: int, name: str
) -> tuple[list[Float64], float]:
    """Table of every row over the counts of its free cells, and the log-values of rows without free cells."""
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
    for index, tables in ((cells.row, reduced.row_tables), (cells.column, reduced.column_tables)):
        side = index[reduced.free]
        order = np.argsort(side, kind="stable")
        ends = np.cumsum(np.bincount(side, minlength=len(tables)))
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        groups += [Group(order[a:b], t) for a, b, t in zip(starts, ends, tables) if b > a]
    return FactorGraph(cells.logits[reduced.free], groups)
