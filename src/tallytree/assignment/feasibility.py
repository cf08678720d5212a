"""Whether row and column counts can be met at all, who clashes if not, and what they decide already: one maximum flow.

A cell carries a unit from its row to its column; row i carries between ``low`` and ``high`` units in, column j
out. Cells and counts that are the same in every feasible flow are those whose arc lies on no cycle of the
residual graph, so its ends are in different strong components.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_flow

from ..arrays import Bools, Ints
from ..errors import InfeasibleError

_TRIED = 32  # rows or columns with unmet needs that are tried for a small explanation


@dataclass(frozen=True, eq=False)
class Counts:
    """Smallest and largest count of every row and column; forced cells are not counted."""

    row_low: Ints
    row_high: Ints
    column_low: Ints
    column_high: Ints

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.row_low), len(self.column_low)


@dataclass(frozen=True, eq=False)
class Decided:
    """What every feasible assignment agrees on.

    ``cells`` is 1 or 0 where a cell is decided and -1 where it is free; ``rows`` and ``columns`` hold the
    count where it is decided and -1 elsewhere. Counts strictly between their limits are left alone: they send no
    message to infinity.
    """

    cells: NDArray[np.int8]
    rows: Ints
    columns: Ints


def decide(counts: Counts, row: Ints, column: Ints) -> Decided:
    """Decided cells and counts; raises InfeasibleError if the counts cannot be met by the cells (row[e], column[e])."""
    if len(row) == counts.shape[0] * counts.shape[1] and _uniform(counts):
        found = _by_symmetry(counts)
        if found is not None:
            return found
    flow = _circulation(counts, row, column)
    if flow is None:
        raise InfeasibleError(_clash(counts, row, column))
    return _fixed(counts, row, column, flow)


def _uniform(counts: Counts) -> bool:
    sides = (counts.row_low, counts.row_high, counts.column_low, counts.column_high)
    return all(len(side) > 0 and bool((side == side[0]).all()) for side in sides)


def _by_symmetry(counts: Counts) -> Decided | None:
    """All cells allowed and all rows, all columns alike: any total that suits both sides can be spread evenly."""
    n_rows, n_columns = counts.shape
    row_low, row_high = int(counts.row_low[0]), min(int(counts.row_high[0]), n_columns)
    column_low, column_high = int(counts.column_low[0]), min(int(counts.column_high[0]), n_rows)
    low = max(n_rows * row_low, n_columns * column_low)
    high = min(n_rows * row_high, n_columns * column_high)
    if low > high or row_low > row_high or column_low > column_high:
        return None
    cells = np.full(n_rows * n_columns, -1, np.int8)
    if high == 0:
        cells[:] = 0
    elif low == n_rows * n_columns:
        cells[:] = 1
    rows, columns = np.full(n_rows, -1, np.int64), np.full(n_columns, -1, np.int64)
    if low == high and low in (n_rows * row_low, n_rows * row_high):
        rows[:] = low // n_rows
    if low == high and low in (n_columns * column_low, n_columns * column_high):
        columns[:] = low // n_columns
    if row_low == row_high:
        rows[:] = row_low
    if column_low == column_high:
        columns[:] = column_low
    return Decided(cells, rows, columns)


def _network(arcs: list[tuple[Any, Any, Any]], nodes: int) -> csr_array:
    tail = np.concatenate([np.atleast_1d(a) for a, _, _ in arcs])
    head = np.concatenate([np.atleast_1d(b) for _, b, _ in arcs])
    capacity = np.concatenate([np.atleast_1d(c) for _, _, c in arcs]).astype(np.int32)
    used = capacity > 0
    return coo_array((capacity[used], (tail[used], head[used])), shape=(nodes, nodes)).tocsr()


def _circulation(counts: Counts, row: Ints, column: Ints) -> Bools | None:
    """A feasible assignment of the cells, or None. Lower bounds go through a second source and sink."""
    n_rows, n_columns = counts.shape
    if (counts.row_low > counts.row_high).any() or (counts.column_low > counts.column_high).any():
        return None
    source, sink, hub = 0, 1, 2
    rows, columns = 3 + np.arange(n_rows), 3 + n_rows + np.arange(n_columns)
    need = int(counts.row_low.sum() + counts.column_low.sum())
    one = np.ones(len(row), np.int32)
    arcs = [
        (np.full(n_rows, source), rows, counts.row_low),
        (hub, sink, counts.row_low.sum()),
        (np.full(n_rows, hub), rows, counts.row_high - counts.row_low),
        (rows[row], columns[column], one),
        (columns, np.full(n_columns, sink), counts.column_low),
        (source, hub, counts.column_low.sum()),
        (columns, np.full(n_columns, hub), counts.column_high - counts.column_low),
    ]
    if need == 0:
        return np.zeros(len(row), bool)
    found = maximum_flow(_network(arcs, 3 + n_rows + n_columns), source, sink)
    if found.flow_value < need:
        return None
    return np.asarray(found.flow[rows[row], columns[column]]).ravel() > 0


def _fixed(counts: Counts, row: Ints, column: Ints, flow: Bools) -> Decided:
    n_rows, n_columns = counts.shape
    hub, rows, columns = 0, 1 + np.arange(n_rows), 1 + n_rows + np.arange(n_columns)
    row_count = np.bincount(row[flow], minlength=n_rows)
    column_count = np.bincount(column[flow], minlength=n_columns)
    hubs_r, hubs_c = np.full(n_rows, hub), np.full(n_columns, hub)
    arcs = [
        (
            np.where(flow, columns[column], rows[row]),
            np.where(flow, rows[row], columns[column]),
            np.ones(len(row)),
        ),
        (hubs_r, rows, row_count < counts.row_high),
        (rows, hubs_r, row_count > counts.row_low),
        (columns, hubs_c, column_count < counts.column_high),
        (hubs_c, columns, column_count > counts.column_low),
    ]
    label = connected_components(_network(arcs, 1 + n_rows + n_columns), connection="strong")[1]
    free = label[rows[row]] == label[columns[column]]
    return Decided(
        np.where(free, -1, flow).astype(np.int8),
        np.where(label[rows] == label[hub], -1, row_count),
        np.where(label[columns] == label[hub], -1, column_count),
    )


# -- the clash ------------------------------------------------------------------------------------------------------


def _clash(counts: Counts, row: Ints, column: Ints) -> str:
    """Rows (or columns) that need more than the cells and the columns (rows) let them have.

    If rows can meet their minima within the maxima of the columns, and columns theirs, then both can be met at once
    (Mendelsohn and Dulmage); so one of the two flows fails, and its minimum cut names the culprits.
    """
    empty_r = np.flatnonzero(counts.row_low > counts.row_high)
    empty_c = np.flatnonzero(counts.column_low > counts.column_high)
    for name, side, low, high in (
        ("Row", empty_r, counts.row_low, counts.row_high),
        ("Column", empty_c, counts.column_low, counts.column_high),
    ):
        if len(side):
            i = int(side[0])
            if high[i] < 0:
                noun = "cell" if high[i] == -1 else "cells"
                why = f"has {-high[i]} {noun} more forced on than its potential allows"
            else:
                why = f"needs at least {low[i]} more cells than are forced on, but may have at most {high[i]} more"
            return f"{name} {i} {why}. Relax its potential or unforce a cell."
    found = _hall(counts.row_low, counts.column_high, row, column, ("row", "column"))
    if found is None:
        found = _hall(counts.column_low, counts.row_high, column, row, ("column", "row"))
    return found or "The row and column counts cannot be met together. Relax a potential or allow more cells."


def _hall(need: Ints, room: Ints, here: Ints, there: Ints, names: tuple[str, str]) -> str | None:
    n, m = len(need), len(room)
    if need.sum() == 0:
        return None
    source, sink = 0, 1
    near, far = 2 + np.arange(n), 2 + n + np.arange(m)
    arcs = [
        (np.full(n, source), near, need),
        (near[here], far[there], np.ones(len(here), np.int32)),
        (far, np.full(m, sink), room),
    ]
    network = _network(arcs, 2 + n + m)
    found = maximum_flow(network, source, sink)
    if found.flow_value >= need.sum():
        return None
    residual = csr_array(network - found.flow)[2:, 2:]
    residual.data = np.maximum(residual.data, 0)
    residual.eliminate_zeros()
    served = np.asarray(found.flow[[source], :].toarray()).ravel()[near]
    these, full = _smallest(residual, np.flatnonzero(served < need), n)
    cells = int((np.isin(here, these) & ~np.isin(there, full)).sum())
    wanted, space = int(need[these].sum()), int(room[full].sum())
    parts = []
    if len(full):
        parts.append(f"{_named(names[1], full)} can take at most {space}")
    if cells or not parts:
        parts.append(f"{'the other ' if len(full) else ''}{names[1]}s offer {cells} allowed cells")
    needs = "need at least {} together" if len(these) > 1 else "needs at least {}"
    return (
        f"{_named(names[0], these).capitalize()} {needs.format(wanted)}, but can have at most "
        f"{space + cells}: {' and '.join(parts)}. Lower the minimum of these {names[0]}s, raise the maximum of these "
        f"{names[1]}s, or allow more cells."
    )


def _smallest(residual: csr_array, short: Ints, n: int) -> tuple[Ints, Ints]:
    """The smallest set among those that nodes with unmet needs can reach: none of them has any room left."""
    best: tuple[Ints, Ints] | None = None
    for start in short[:_TRIED].tolist():
        reached = np.sort(breadth_first_order(residual, start, return_predecessors=False)).astype(np.int64)
        cut = int(np.searchsorted(reached, n))
        if best is None or len(reached) < len(best[0]) + len(best[1]):
            best = (reached[:cut], reached[cut:] - n)
    assert best is not None
    return best


def _named(name: str, which: Ints) -> str:
    shown = ", ".join(map(str, which[:8].tolist()))
    more = f" and {len(which) - 8} more" if len(which) > 8 else ""
    return f"{name}{'s' if len(which) > 1 else ''} {shown}{more}"
