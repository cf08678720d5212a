"""Read an assignment problem and take off what its constraints decide: free cells and their tables are left.

Whether row and column counts can be met at all, who clashes if not, and what they decide already: one maximum flow. A
cell carries a unit from its row to its column; row i carries between ``low`` and ``high`` units in, column j out. Cells
and counts that are the same in every feasible flow are those whose arc lies on no cycle of the residual graph, so its
ends are in different strong components.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_flow

from .. import checks
from ..arrays import Bools, Float64, Ints
from ..errors import InfeasibleError, ParameterError
from ..loopy.factor_graph import FactorGraph, logits_without_masks, without_masks
from ..models.group import Group
from ..potentials import Potential, as_potential

_TRIED = 32  # rows or columns with unmet needs that are tried for a small explanation


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


# -- feasibility


@dataclass(frozen=True, eq=False)
class Side:
    """Smallest and largest count of every row, or of every column; forced cells are not counted."""

    low: Ints
    high: Ints

    def __len__(self) -> int:
        return len(self.low)

    @property
    def is_uniform(self) -> bool:
        return len(self) > 0 and bool((self.low == self.low[0]).all() and (self.high == self.high[0]).all())


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


def decide(rows: Side, columns: Side, row: Ints, column: Ints) -> Decided:
    """Decided cells and counts; raises InfeasibleError if the counts cannot be met by the cells (row[e], column[e])."""
    if len(row) == len(rows) * len(columns) and rows.is_uniform and columns.is_uniform:
        found = _by_symmetry(rows, columns)
        if found is not None:
            return found
    flow = _circulation(rows, columns, row, column)
    if flow is None:
        raise InfeasibleError(_clash(rows, columns, row, column))
    return _fixed(rows, columns, row, column, flow)


def _by_symmetry(rows: Side, columns: Side) -> Decided | None:
    """All cells allowed and all rows, all columns alike: any total that suits both sides can be spread evenly."""
    n_cells = len(rows) * len(columns)
    sides = [(int(s.low[0]), min(int(s.high[0]), n_cells // len(s)), len(s)) for s in (rows, columns)]
    low, high = max(n * least for least, _, n in sides), min(n * most for _, most, n in sides)
    if low > high or any(least > most for least, most, _ in sides):
        return None
    counts = []
    for least, most, n in sides:
        at_limit = low == high and low in (n * least, n * most)
        counts.append(np.full(n, least if least == most else low // n if at_limit else -1, np.int64))
    cells = np.full(n_cells, 0 if high == 0 else 1 if low == n_cells else -1, np.int8)
    return Decided(cells, *counts)


def _network(arcs: list[tuple[Any, Any, Any]], nodes: int) -> csr_array:
    """Tails, heads and capacities, each one number or as many as there are arcs of a kind."""
    alike = [np.broadcast_arrays(*np.atleast_1d(*arc)) for arc in arcs]
    tail, head, capacity = (np.concatenate(each) for each in zip(*alike))
    used = capacity > 0
    return coo_array(
        (capacity[used].astype(np.int32), (tail[used], head[used])), shape=(nodes, nodes)
    ).tocsr()


def _circulation(rows: Side, columns: Side, row: Ints, column: Ints) -> Bools | None:
    """A feasible assignment of the cells, or None. Lower bounds go through a second source and sink."""
    if (rows.low > rows.high).any() or (columns.low > columns.high).any():
        return None
    need = int(rows.low.sum() + columns.low.sum())
    if need == 0:
        return np.zeros(len(row), bool)
    source, sink, hub = 0, 1, 2
    r, c = 3 + np.arange(len(rows)), 3 + len(rows) + np.arange(len(columns))
    arcs = [
        (source, r, rows.low),
        (hub, sink, rows.low.sum()),
        (hub, r, rows.high - rows.low),
        (r[row], c[column], 1),
        (c, sink, columns.low),
        (source, hub, columns.low.sum()),
        (c, hub, columns.high - columns.low),
    ]
    found = maximum_flow(_network(arcs, 3 + len(rows) + len(columns)), source, sink)
    if found.flow_value < need:
        return None
    return np.asarray(found.flow[r[row], c[column]]).ravel() > 0


def _fixed(rows: Side, columns: Side, row: Ints, column: Ints, flow: Bools) -> Decided:
    hub, r, c = 0, 1 + np.arange(len(rows)), 1 + len(rows) + np.arange(len(columns))
    row_count = np.bincount(row[flow], minlength=len(rows))
    column_count = np.bincount(column[flow], minlength=len(columns))
    arcs = [
        (np.where(flow, c[column], r[row]), np.where(flow, r[row], c[column]), 1),
        (hub, r, row_count < rows.high),
        (r, hub, row_count > rows.low),
        (c, hub, column_count < columns.high),
        (hub, c, column_count > columns.low),
    ]
    label = connected_components(_network(arcs, 1 + len(rows) + len(columns)), connection="strong")[1]
    free = label[r[row]] == label[c[column]]
    return Decided(
        np.where(free, -1, flow).astype(np.int8),
        np.where(label[r] == label[hub], -1, row_count),
        np.where(label[c] == label[hub], -1, column_count),
    )


# -- the clash ------------------------------------------------------------------------------------------------------


def _clash(rows: Side, columns: Side, row: Ints, column: Ints) -> str:
    """Rows (or columns) that need more than the cells and the columns (rows) let them have.

    If rows can meet their minima within the maxima of the columns, and columns theirs, then both can be met at once
    (Mendelsohn and Dulmage); so one of the two flows fails, and its minimum cut names the culprits.
    """
    for name, side in (("Row", rows), ("Column", columns)):
        empty = np.flatnonzero(side.low > side.high)
        if len(empty):
            i = int(empty[0])
            low, high = side.low[i], side.high[i]
            if high < 0:
                noun = "cell" if high == -1 else "cells"
                why = f"has {-high} {noun} more forced on than its potential allows"
            else:
                why = f"needs at least {low} more cells than are forced on, but may have at most {high} more"
            return f"{name} {i} {why}. Relax its potential or unforce a cell."
    found = _hall(rows.low, columns.high, row, column, ("row", "column"))
    if found is None:
        found = _hall(columns.low, rows.high, column, row, ("column", "row"))
    return found or "The row and column counts cannot be met together. Relax a potential or allow more cells."


def _hall(need: Ints, room: Ints, here: Ints, there: Ints, names: tuple[str, str]) -> str | None:
    n, m = len(need), len(room)
    if need.sum() == 0:
        return None
    source, sink = 0, 1
    near, far = 2 + np.arange(n), 2 + n + np.arange(m)
    arcs = [(source, near, need), (near[here], far[there], 1), (far, sink, room)]
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


_LOG_ODDS = checks.Entries(
    "log-odds", -math.inf, math.inf, hint=" Use `forbidden` for cells that must stay empty."
)


def dense(matrix: Any) -> Any:
    """A matrix that is not sparse."""
    return matrix.toarray() if bool(sparse.issparse(matrix)) else matrix


def read_cells(affinity: Any, forbidden: Any) -> Cells:
    """The allowed cells and their log-odds."""
    if bool(sparse.issparse(affinity)) and affinity.ndim == 2:
        matrix: Any = sparse.csr_array(affinity)
        matrix.sum_duplicates()
        shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        row, column = np.repeat(np.arange(shape[0]), np.diff(matrix.indptr)), matrix.indices.astype(np.int64)
        values = checks.array("affinity", matrix.data, ("cells",), _LOG_ODDS)
    else:
        given = checks.rectangular("affinity", affinity, "a matrix of log-odds")
        hint = "" if given.ndim == 2 else " Pass a matrix, rows by columns; one row is [[...]]."
        full = checks.array("affinity", given, ("rows", "columns"), _LOG_ODDS, hint=hint)
        row, column = (index.ravel() for index in np.indices(full.shape))
        values, shape = full.ravel(), (full.shape[0], full.shape[1])
    values = logits_without_masks(values)
    allowed = values > -math.inf
    if forbidden is not None:
        allowed &= ~checks.flags("forbidden", dense(forbidden), *shape)[row, column]
    return Cells(shape, row[allowed], column[allowed], values[allowed].copy())


def read_tables(value: Any, count: int, size: int, name: str) -> Float64:
    """Log-tables (1 or count, size + 1) from one potential for all, or one per row.

    Finite numbers that stand for -inf are taken for it.
    """
    found: Any
    if isinstance(value, Sequence) and any(map(_is_potential, value)):
        one_each = f"`{name}` must be one potential for all {name}, or a list of {count}, one for each"
        found = [as_potential(v).log_table(size) for v in checks.listed(value, count, one_each)]
    elif _is_potential(value):
        potential = as_potential(value)
        if potential.batch_shape not in ((), (1,), (count,)):
            raise ParameterError(
                f"`{name}` must have one parameter for all {name}, or {count}, one for each; parameters of shape "
                f"{potential.batch_shape} arrived."
            )
        found = np.atleast_2d(potential.log_table(size))
    else:
        found = np.atleast_2d(_numbers(value, count, name))
        if found.ndim > 2 or len(found) not in (1, count):
            raise ParameterError(
                f"`{name}` must be a log-table of {size + 1} values, or {count} of them; shape {found.shape} arrived."
            )
    checked = [without_masks(checks.log_table(table, size, name=f"`{name}`")) for table in found]
    return np.stack(checked) if checked else np.zeros((1, size + 1))


def _is_potential(value: Any) -> bool:
    return value is None or isinstance(value, Potential) or callable(value)


def _numbers(value: Any, count: int, name: str) -> Float64:
    """Numbers of log-tables; counts are refused."""
    if isinstance(value, (bool, int, np.integer)):
        raise ParameterError(
            f"`{name}` must be a potential; the number {value} arrived. Did you mean exactly({value})?"
        )
    given, _ = checks.real_array(name, value, "counts")
    if given.shape == (count,) and np.asarray(value).dtype.kind in "iu":
        listed = np.asarray(value).tolist()
        shown = listed if count <= 4 else f"[{', '.join(map(str, listed[:3]))}, ...]"
        raise ParameterError(
            f"`{name}` must be potentials; {count} whole numbers arrived, one for each of the {name}. For the counts "
            f"themselves write exactly({shown}), for the most that are allowed at_most({shown}); a log-table is "
            "table([0.0, ...])."
        )
    return given
