"""Markov chains on assignments that respect every count exactly; many chains side by side.

All moves draw from an exact conditional distribution (Gibbs), so none is ever rejected:

* 2x2 blocks: four cells of two rows and two columns (Tarlow et al. 2012); two cells where there is only one row or
  column;
* row blocks: a whole row, log-odds ``theta_ij + log f_j(n_j + 1) - log f_j(n_j)`` with n_j the rest of column
  j, under the
  potential of the row; column blocks likewise;
* trades: two rows exchange, in the columns where they differ, which of them has the cell; column counts stay
  as they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..arrays import Bools, Float64
from ..loopy.messages import count_sums
from .draws import draw


@dataclass(frozen=True, eq=False)
class Grid:
    """Log-odds (I, J), infinite where a cell is decided, and the log-tables of rows (1 or I, J + 1) and columns."""

    theta: Float64
    rows: Float64
    columns: Float64

    @property
    def transposed(self) -> Grid:
        return Grid(np.ascontiguousarray(self.theta.T), self.columns, self.rows)


def _pick(tables: Float64, which: NDArray[np.intp], counts: NDArray[np.intp]) -> Float64:
    """Values log f_i(c), -inf for counts outside the table."""
    inside = (counts >= 0) & (counts < tables.shape[1])
    row = np.zeros_like(which) if tables.shape[0] == 1 else which
    return np.where(inside, tables[row, np.where(inside, counts, 0)], -math.inf)


def row_log_odds(grid: Grid, y: Bools, totals: NDArray[np.intp], i: int) -> Float64:
    """Log-odds of row i given the rest, (C, J): own ones and what the potentials of the columns add."""
    rest = totals - y[:, i]
    j = np.arange(rest.shape[1])
    without, with_one = _pick(grid.columns, j, rest), _pick(grid.columns, j, rest + 1)
    with np.errstate(invalid="ignore"):
        change = np.where(without == -math.inf, math.inf, with_one - without)
        return np.asarray(np.where(np.isinf(grid.theta[i]), grid.theta[i], grid.theta[i] + change))


def _exact(tables: Float64) -> bool:
    """Whether every table allows a single count."""
    return bool(((tables > -math.inf).sum(1) == 1).all())


def row_blocks(grid: Grid, y: Bools, rng: np.random.Generator, marginals: Float64 | None = None) -> None:
    """Redraw every row of all chains y (C, I, J) in place; adds the conditional marginals to ``marginals``, alike."""
    if y.shape[2] == 0:
        return
    if _exact(grid.columns):  # the rest of the columns decides every row
        if marginals is not None:
            marginals += y
        return
    totals = y.sum(1)
    for i in rng.permutation(y.shape[1]).tolist():
        nu = row_log_odds(grid, y, totals, i)
        table = grid.rows if grid.rows.shape[0] == 1 else grid.rows[i : i + 1]
        totals -= y[:, i]
        y[:, i] = draw(nu, table, rng)
        totals += y[:, i]
        if marginals is not None:
            _, messages = count_sums(nu, table)
            with np.errstate(invalid="ignore"):
                marginals[:, i] += expit(np.where(np.isinf(nu), nu, nu + messages))


def trades(grid: Grid, y: Bools, rng: np.random.Generator) -> None:
    """Rows in random pairs redraw, in place, who has the cell in the columns where they differ; all pairs at once."""
    _, n_rows, n_columns = y.shape
    order = rng.permutation(n_rows)
    a, b = order[: n_rows // 2], order[n_rows // 2 : 2 * (n_rows // 2)]
    if len(a) == 0 or n_columns == 0:
        return
    ya, yb = y[:, a], y[:, b]
    swap = (ya != yb) & np.isfinite(grid.theta[a]) & np.isfinite(grid.theta[b])
    size = swap.sum(-1)
    width = int(size.max(initial=0))
    if width == 0:
        return
    base_a, base_b = (ya & ~swap).sum(-1), (yb & ~swap).sum(-1)
    # Rows differ in few columns: those come first, and the others are left out.
    at = np.argsort(~swap, axis=-1, kind="stable")[..., :width]
    c = np.arange(width + 1)
    with np.errstate(invalid="ignore"):
        nu = np.take_along_axis(np.broadcast_to(grid.theta[a] - grid.theta[b], swap.shape), at, -1)
    nu = np.where(c[:-1] < size[..., None], nu, -math.inf)
    log_f = _pick(grid.rows, a[:, None], base_a[..., None] + c)
    log_f = log_f + _pick(grid.rows, b[:, None], base_b[..., None] + size[..., None] - c)
    log_f = np.where(c <= size[..., None], log_f, -math.inf)
    fresh = draw(nu.reshape(-1, width), log_f.reshape(-1, width + 1), rng).reshape(at.shape)
    taken = ya.copy()
    np.put_along_axis(
        taken, at, np.where(c[:-1] < size[..., None], fresh, np.take_along_axis(ya, at, -1)), -1
    )
    y[:, a] = taken
    y[:, b] = np.where(swap, ~taken, yb)


def mixed_sweep(grid: Grid, y: Bools, rng: np.random.Generator, marginals: Float64 | None = None) -> None:
    """Row blocks, column blocks and trades of both kinds, in place."""
    turned, view = grid.transposed, y.swapaxes(1, 2)
    row_blocks(grid, y, rng, marginals)
    trades(grid, y, rng)
    columns = np.ascontiguousarray(view)
    row_blocks(turned, columns, rng)
    trades(turned, columns, rng)
    view[...] = columns


def square_blocks(grid: Grid, y: Bools, rng: np.random.Generator) -> None:
    """One step of 2x2 block Gibbs in place: as many blocks without a common row or column as fit, at random.

    A matrix with a single row has blocks of two cells in it, one with a single column likewise.
    """
    _, n_rows, n_columns = y.shape
    high, wide = min(2, n_rows), min(2, n_columns)
    if high == 0 or wide == 0:
        return
    size = min(n_rows // high, n_columns // wide)
    i = rng.permutation(n_rows)[: high * size].reshape(size, high)
    j = rng.permutation(n_columns)[: wide * size].reshape(size, wide)
    at_i, at_j = np.repeat(i, wide, axis=1), np.tile(j, (1, high))  # (P, cells), row by row
    blocks = np.array(list(itertools.product((0, 1), repeat=high * wide)), np.intp)
    theta = grid.theta[at_i, at_j][:, None, :]  # (P, 1, cells)
    on = np.where(theta == math.inf, 0.0, theta)
    off = np.where(theta == math.inf, -math.inf, 0.0)
    score = np.where(blocks[None] == 1, on, off).sum(-1)  # (P, states)
    now = y[:, at_i, at_j].astype(np.intp)  # (C, P, cells)
    square = now.reshape(*now.shape[:2], high, wide)
    row_rest = y.sum(2)[:, i] - square.sum(-1)
    column_rest = y.sum(1)[:, j] - square.sum(-2)
    new = blocks.reshape(-1, high, wide)
    total = np.broadcast_to(score, (*now.shape[:2], len(blocks))).copy()
    for k in range(high):
        total += _pick(grid.rows, i[:, k, None], row_rest[..., k, None] + new[:, k].sum(-1))
    for k in range(wide):
        total += _pick(grid.columns, j[:, k, None], column_rest[..., k, None] + new[:, :, k].sum(-1))
    weights = np.exp(total - total.max(-1, keepdims=True)).cumsum(-1)
    u = rng.random(weights.shape[:2])[..., None] * weights[..., -1:]
    y[:, at_i, at_j] = blocks[(u >= weights).sum(-1)] == 1


def square_sweep(grid: Grid, y: Bools, rng: np.random.Generator) -> None:
    """As many steps as touch every cell once on average."""
    high, wide = min(2, y.shape[1]), min(2, y.shape[2])
    if high == 0 or wide == 0:
        return
    cells = high * wide * min(y.shape[1] // high, y.shape[2] // wide)
    for _ in range(math.ceil(y.shape[1] * y.shape[2] / cells)):
        square_blocks(grid, y, rng)


def run(
    grid: Grid, start: Bools, kind: str, sweeps: int, burn_in: int, chains: int, rng: np.random.Generator
) -> Iterator[tuple[bool, Bools, Float64 | None]]:
    """After every sweep: whether it is kept, the states (C, I, J), and the conditional marginals it went through.

    ``kind`` is "square" or "states", which have no such marginals, "rows" or "mixed".
    """
    y = np.repeat(start[None], chains, axis=0)
    for s in range(burn_in + sweeps):
        keep = s >= burn_in
        marginals = np.zeros(y.shape) if keep and kind in ("rows", "mixed") else None
        if kind == "square":
            square_sweep(grid, y, rng)
        elif kind == "rows":
            row_blocks(grid, y, rng, marginals)
        else:
            mixed_sweep(grid, y, rng, marginals)
        yield keep, y, marginals
