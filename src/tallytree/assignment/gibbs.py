"""A Markov chain on assignments that respects every count exactly; many chains side by side.

All moves draw from an exact conditional distribution (Gibbs), so none is ever rejected:

* row blocks: a whole row, log-odds ``theta_ij + log f_j(n_j + 1) - log f_j(n_j)`` with n_j the rest of column j, under
  the potential of the row; column blocks likewise;
* trades: two rows, or two columns, exchange which of them has the cell where they differ; the counts of the other side
  stay as they are.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from ..arrays import Bools, Float64, Ints
from ..engine import masks, native
from ..engine.problem import Problem
from ..engine.sample.sampler import Sampler
from ..errors import InfeasibleError
from ..loopy.dual import best_configuration, is_concave, one_by_one
from ..loopy.factor_graph import FactorGraph
from ..loopy.messages import count_sums
from ..structure.nested.count_tree import CountTree


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


def _draw(nu: Float64, log_f: Float64, rng: np.random.Generator) -> Bools:
    """One configuration (B, n) per model with log-odds (B, n) and tables (1 or B, n + 1)."""
    nu = nu if masks.absent(nu) else _without_masks(nu, log_f)
    if native.present() and nu.shape[1] > 1:  # of one variable there is no tree
        problem = Problem(CountTree.flat(nu.shape[1]), np.ascontiguousarray(nu), log_f, {})
        return np.asarray(Sampler(problem).draw(1, rng)[0], bool)
    return _draw_in_order(nu, log_f, rng)


def _without_masks(nu: Float64, log_f: Float64) -> Float64:
    """Log-odds with infinities for masks, in the rows that stay possible."""
    certain, _ = masks.resolve_logits(nu)
    count = np.arange(log_f.shape[1])
    on, open_ = ((certain > low).sum(1, keepdims=True) for low in (masks.MASK, -math.inf))
    possible = (log_f > -math.inf) & (count >= on) & (count <= open_)
    return np.where(possible.any(1, keepdims=True), certain, nu)


def _draw_in_order(nu: Float64, log_f: Float64, rng: np.random.Generator) -> Bools:
    """One variable after the other, by the weights of all completions: quicker than array code on trees."""
    batch, n = nu.shape
    log_on, log_off = np.asarray(log_expit(nu)).T, np.asarray(log_expit(-nu)).T
    most = int(np.flatnonzero((log_f > -math.inf).any(0))[-1])
    rest = np.full((n + 1, most + 2, batch), -math.inf)  # log-weight of what follows, by the count so far
    rest[n, :-1] = log_f.T[: most + 1]
    for i in range(n - 1, -1, -1):
        rest[i, :-1] = np.logaddexp(log_off[i] + rest[i + 1, :-1], log_on[i] + rest[i + 1, 1:])
    y, each, count = np.empty((n, batch), bool), np.arange(batch), np.zeros(batch, np.intp)
    for i in range(n):
        on = log_on[i] + rest[i + 1, count + 1, each]
        y[i] = rng.random(batch) < np.exp(on - rest[i, count, each])
        count += y[i]
    return np.ascontiguousarray(y.T)


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
        y[:, i] = _draw(nu, table, rng)
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
    fresh = _draw(nu.reshape(-1, width), log_f.reshape(-1, width + 1), rng).reshape(at.shape)
    taken = ya.copy()
    np.put_along_axis(
        taken, at, np.where(c[:-1] < size[..., None], fresh, np.take_along_axis(ya, at, -1)), -1
    )
    y[:, a] = taken
    y[:, b] = np.where(swap, ~taken, yb)


def counts_of(graph: FactorGraph) -> tuple[list[NDArray[np.intp]], list[Float64]]:
    """The variables of every count factor, and its log-table."""
    members = [graph.members(i) for i in range(graph.n_groups)]
    return members, [table for table in graph.tables if table is not None]


def possible(graph: FactorGraph) -> Bools:
    """Free cells that a chain can start from, where potentials have gaps: decided one by one, or by linear programs.

    A program without the gaps finds counts; rows, then columns, move from gaps to the next allowed counts, as many of
    them up as keep the total. Where no cells have these counts, a mixed-integer program decides.
    """
    quick = one_by_one(graph, np.asarray(expit(graph.logits)))
    if graph.log_weight(quick) > -math.inf:
        return quick
    members, tables = counts_of(graph)
    told = [table if is_concave(table) else _without_gaps(table) for table in tables]
    in_rows = np.cumsum([len(at) for at in members]) <= graph.n_variables
    with contextlib.suppress(InfeasibleError):
        for side in (np.flatnonzero(in_rows), np.flatnonzero(~in_rows)):
            if any(told[i] is not tables[i] for i in side):
                cells = best_configuration(graph.logits, members, told)
                counts = np.array([cells[members[i]].sum() for i in side])
                for i, count in zip(side, _beside_gaps(counts, [tables[i] for i in side])):
                    told[i] = np.where(np.arange(len(tables[i])) == count, 0.0, -math.inf)
        return best_configuration(graph.logits, members, told)
    return best_configuration(graph.logits, members, tables, any_will_do=True)


def _without_gaps(table: Float64) -> Float64:
    """Zero from the lowest to the highest allowed count."""
    allowed, count = np.flatnonzero(table > -math.inf), np.arange(len(table))
    return np.where((count >= allowed[0]) & (count <= allowed[-1]), 0.0, -math.inf)


def _beside_gaps(counts: Ints, tables: list[Float64]) -> Ints:
    """Allowed counts next to these, the nearest to the upper ones moved up, with a sum that is not larger."""
    allowed = [np.flatnonzero(table > -math.inf) for table in tables]
    low = np.array([a[a <= c].max() for a, c in zip(allowed, counts)])
    high = np.array([a[a >= c].min() for a, c in zip(allowed, counts)])
    left = (counts - low).sum()
    for i in np.argsort(high - counts, kind="stable"):
        if 0 < high[i] - low[i] <= left:
            left -= high[i] - low[i]
            low[i] = high[i]
    return low


def sweep(grid: Grid, y: Bools, rng: np.random.Generator, marginals: Float64 | None = None) -> None:
    """Row blocks, column blocks and trades of both kinds, in place."""
    turned, view = grid.transposed, y.swapaxes(1, 2)
    row_blocks(grid, y, rng, marginals)
    trades(grid, y, rng)
    columns = np.ascontiguousarray(view)
    row_blocks(turned, columns, rng)
    trades(turned, columns, rng)
    view[...] = columns


def run(
    grid: Grid,
    start: Bools,
    sweeps: int,
    chains: int,
    rng: np.random.Generator,
    burn_in: int,
    *,
    average: bool,
) -> Iterator[tuple[bool, Bools, Float64 | None]]:
    """After every sweep: whether it is kept, the states (C, I, J), and with `average` its conditional marginals."""
    y = np.repeat(start[None], chains, axis=0)
    for s in range(burn_in + sweeps):
        marginals = np.zeros(y.shape) if average and s >= burn_in else None
        sweep(grid, y, rng, marginals)
        yield s >= burn_in, y, marginals


class ErgodicityWarning(UserWarning):
    """A Markov chain cannot reach every configuration, so its averages may be wrong.

    See Also
    --------
    tallytree.assignment.Assignment

    Examples
    --------
    >>> from tallytree.assignment import ErgodicityWarning
    >>> issubclass(ErgodicityWarning, UserWarning)
    True
    """


def warn_if_trapped(grid: Grid, free_tables: list[Float64], blocked: bool) -> None:
    """The moves connect all but contrived problems; warn of those. `free_tables` are those of the free cells."""
    why = ""
    if _gaps(grid.rows) and _gaps(grid.columns):
        why = "Allowed row and column counts are both disjoint, and the moves may not connect all assignments"
    elif blocked and all((t > -math.inf).sum() == 1 for t in free_tables):
        why = (
            "With forbidden cells and exact counts in rows and columns, trades between pairs may not connect all "
            "assignments"
        )
    if why:
        text = (
            f"{why}: the samples may depend on the start. `Assignment.exact(limit=...)` is exact where you allow its "
            "price, `Assignment.width`; or compare with `Assignment.loopy_bp`."
        )
        warnings.warn(text, ErgodicityWarning, stacklevel=4)


def _gaps(tables: Float64) -> bool:
    """Whether a table allows counts that are not an interval."""
    possible = tables > -math.inf
    span = possible.shape[1] - np.argmax(possible, axis=1) - np.argmax(possible[:, ::-1], axis=1)
    return bool((possible.sum(1) != span).any())
