"""Markov chains on assignments that respect every count exactly; many chains side by side.

All moves draw from an exact conditional distribution (Gibbs), so none is ever rejected:

* 2x2 blocks: four cells of two rows and two columns (Tarlow et al. 2012);
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

_BLOCKS = np.array(list(itertools.product((0, 1), repeat=4)), np.intp)  # y11 y12 y21 y22


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


def row_blocks(grid: Grid, y: Bools, rng: np.random.Generator, marginals: Float64 | None = None) -> None:
    """Redraw every row of all chains y (C, I, J) in place; adds the conditional marginals to ``marginals`` (I, J)."""
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
                marginals[i] += expit(np.where(np.isinf(nu), nu, nu + messages)).sum(0)


def trades(grid: Grid, y: Bools, rng: np.random.Generator) -> None:
    """Rows in random pairs redraw, in place, who has the cell in the columns where they differ; all pairs at once."""
    _, n_rows, n_columns = y.shape
    order = rng.permutation(n_rows)
    a, b = order[: n_rows // 2], order[n_rows // 2 : 2 * (n_rows // 2)]
    if len(a) == 0:
        return
    ya, yb = y[:, a], y[:, b]
    open_cells = np.isfinite(grid.theta[a]) & np.isfinite(grid.theta[b])
    swap = (ya != yb) & open_cells
    with np.errstate(invalid="ignore"):
        nu = np.where(swap, grid.theta[a] - grid.theta[b], -math.inf)
    size = swap.sum(-1)
    base_a, base_b = (ya & ~swap).sum(-1), (yb & ~swap).sum(-1)
    c = np.arange(n_columns + 1)
    log_f = _pick(grid.rows, a[:, None], base_a[..., None] + c)
    log_f = log_f + _pick(grid.rows, b[:, None], base_b[..., None] + size[..., None] - c)
    log_f = np.where(c <= size[..., None], log_f, -math.inf)
    fresh = draw(nu.reshape(-1, n_columns), log_f.reshape(-1, n_columns + 1), rng).reshape(swap.shape)
    y[:, a] = np.where(swap, fresh, ya)
    y[:, b] = np.where(swap, ~fresh, yb)


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
    """One step of 2x2 block Gibbs in place: as many blocks without a common row or column as fit, at random."""
    _, n_rows, n_columns = y.shape
    size = min(n_rows // 2, n_columns // 2)
    if size == 0:
        return
    i = rng.permutation(n_rows)[: 2 * size].reshape(size, 2)
    j = rng.permutation(n_columns)[: 2 * size].reshape(size, 2)
    at_i, at_j = i[:, [0, 0, 1, 1]], j[:, [0, 1, 0, 1]]
    theta = grid.theta[at_i, at_j][:, None, :]  # (P, 1, 4)
    on = np.where(theta == math.inf, 0.0, theta)
    off = np.where(theta == math.inf, -math.inf, 0.0)
    score = np.where(_BLOCKS[None] == 1, on, off).sum(-1)  # (P, 16)
    now = y[:, at_i, at_j].astype(np.intp)  # (C, P, 4)
    row_rest = y.sum(2)[:, i] - now.reshape(*now.shape[:2], 2, 2).sum(-1)
    column_rest = y.sum(1)[:, j] - now.reshape(*now.shape[:2], 2, 2).sum(-2)
    new = _BLOCKS.reshape(16, 2, 2)
    total = np.broadcast_to(score, (*now.shape[:2], 16)).copy()
    for k in range(2):
        total += _pick(grid.rows, i[:, k, None], row_rest[..., k, None] + new[:, k].sum(-1))
        total += _pick(grid.columns, j[:, k, None], column_rest[..., k, None] + new[:, :, k].sum(-1))
    weights = np.exp(total - total.max(-1, keepdims=True)).cumsum(-1)
    u = rng.random(weights.shape[:2])[..., None] * weights[..., -1:]
    y[:, at_i, at_j] = _BLOCKS[(u >= weights).sum(-1)] == 1


def square_sweep(grid: Grid, y: Bools, rng: np.random.Generator) -> None:
    """As many steps as touch every cell once on average."""
    size = max(1, min(y.shape[1] // 2, y.shape[2] // 2))
    for _ in range(max(1, math.ceil(y.shape[1] * y.shape[2] / (4 * size)))):
        square_blocks(grid, y, rng)


def run(
    grid: Grid, start: Bools, kind: str, sweeps: int, burn_in: int, chains: int, rng: np.random.Generator
) -> Iterator[tuple[Bools, Float64 | None]]:
    """States (C, I, J) after every kept sweep, and the sum over chains of conditional marginals if there are any."""
    y = np.repeat(start[None], chains, axis=0)
    for s in range(burn_in + sweeps):
        keep = s >= burn_in
        marginals = np.zeros(start.shape) if keep and kind != "square" else None
        if kind == "square":
            square_sweep(grid, y, rng)
        elif kind == "rows":
            row_blocks(grid, y, rng, marginals)
        else:
            mixed_sweep(grid, y, rng, marginals)
        if keep:
            yield y, marginals
