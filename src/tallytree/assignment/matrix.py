"""What an assignment problem is: cells, counts of rows and columns, what they decide, and the weight of a matrix."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from .. import _display, checks
from ..arrays import Bools
from ..checks.sums import read_only
from ..errors import ParameterError
from ..loopy.linear_program import best_configuration
from ..models.factor_graph import FactorGraph
from . import arguments, reduction
from .reduction import Reduced


class MatrixProblem:
    """Binary matrix with log-odds of its cells and potentials on the counts of its rows and of its columns."""

    def __init__(self, affinity: Any, rows: Any = None, columns: Any = None, forbidden: Any = None) -> None:
        self._sparse = sparse.issparse(affinity)
        self._cells = arguments.cells(affinity, forbidden)
        n_rows, n_columns = self._cells.shape
        self._tables = (
            arguments.tables(rows, n_rows, n_columns, "rows"),
            arguments.tables(columns, n_columns, n_rows, "columns"),
        )
        self._reduced: Reduced = reduction.reduce(self._cells, *self._tables)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self._cells.shape

    @property
    def n_cells(self) -> int:
        """Number of allowed cells."""
        return len(self._cells.logits)

    @property
    def n_free(self) -> int:
        """Number of cells that the constraints do not decide.

        See Also
        --------
        decided, n_cells

        Examples
        --------
        >>> problem = tt.assignment([[0.0, 1.0], [-np.inf, 2.0]], rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.n_cells, problem.n_free
        (3, 0)
        """
        return len(self._reduced.free)

    @cached_property
    def graph(self) -> FactorGraph:
        """Factor graph of the free cells: rows first, then columns; log-weights differ by a constant.

        See Also
        --------
        loopy_bp, FactorGraph

        Examples
        --------
        >>> tt.assignment(np.zeros((2, 3)), rows=tt.exactly(1), columns=tt.at_most(1)).graph.n_groups
        5
        """
        return reduction.graph(self._cells, self._reduced)

    @cached_property
    def decided(self) -> Any:
        """Matrix of 1 and 0 where every feasible assignment agrees, and -1 elsewhere.

        See Also
        --------
        n_free

        Examples
        --------
        >>> problem = tt.assignment([[0.0, 1.0], [-np.inf, 2.0]], rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.decided
        array([[1, 0],
               [0, 1]], dtype=int8)
        """
        values = np.zeros(self.n_cells, np.int8)
        values[self._reduced.free] = -1
        values[self._reduced.on] = 1
        return self._matrix(values, 0)

    def log_weight(self, y: Any) -> float:
        """Log of the unnormalised weight of one assignment, a dense or sparse matrix of 0 and 1.

        Parameters
        ----------
        y : (I, J) array or sparse matrix
            An assignment.

        Returns
        -------
        float
            Its logarithm; ``-inf`` for an assignment that breaks a count.

        Raises
        ------
        ParameterError
            If ``y`` is no matrix of 0 and 1 of this shape.

        See Also
        --------
        mode

        Examples
        --------
        >>> problem = tt.assignment([[3.0, 1.0], [2.0, 2.5]], rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.log_weight([[1, 0], [0, 1]]), problem.log_weight([[1, 1], [0, 0]])
        (5.5, -inf)
        """
        on, outside = self._chosen(y)
        if outside or not on[self._cells.logits == math.inf].all():
            return -math.inf
        return self._weight(on)

    @cached_property
    def _best_cells(self) -> Bools:
        reduced, cells = self._reduced, self._cells
        row, column = cells.row[reduced.free], cells.column[reduced.free]
        each = np.arange(len(reduced.free))
        found = best_configuration(
            cells.logits[reduced.free],
            np.concatenate([row, self.shape[0] + column]),
            np.concatenate([each, each]),
            [*reduced.row_tables, *reduced.column_tables],
        )
        return np.asarray(self._scatter(found, True, False))

    def _scatter(self, free: Any, on: Any, off: Any) -> Any:
        """Values of all allowed cells from those of the free ones and of the decided ones."""
        out = np.full(self.n_cells, off, dtype=np.asarray(free).dtype)
        out[self._reduced.free] = free
        out[self._reduced.on] = on
        return out

    def _matrix(self, values: NDArray[Any], fill: Any) -> Any:
        """Values of the allowed cells in the form of the affinities, read-only where it is dense."""
        if self._sparse:
            return sparse.csr_array((values, self._cells.places), shape=self.shape)
        out = np.full(self.shape, fill, dtype=values.dtype)
        out[self._cells.places] = values
        read_only(out)
        return out

    def _affinity(self, on: Bools) -> float:
        chosen = self._cells.logits[on]
        return float(chosen[np.isfinite(chosen)].sum())

    def _weight(self, on: Bools) -> float:
        total = self._affinity(on)
        for index, tables, size in zip(self._cells.places, self._tables, self.shape):
            counts = np.bincount(index[on], minlength=size)
            total += float(tables[0 if len(tables) == 1 else np.arange(size), counts].sum())
        return total

    def _chosen(self, y: Any) -> tuple[Bools, bool]:
        dense = arguments.dense(y, "y")
        if dense.shape != self.shape or not np.isin(dense, (0, 1)).all():
            raise ParameterError(
                f"`y` must be a matrix of 0 and 1 with shape {self.shape}; {checks.describe(dense)} arrived."
            )
        on = dense[self._cells.places] != 0
        return on, int(on.sum()) != int((dense != 0).sum())

    def __repr__(self) -> str:
        cells = f"n_cells={self.n_cells}, n_free={self.n_free}"
        return f"Assignment(shape={self.shape}, {cells}{', sparse' if self._sparse else ''})"

    def _repr_html_(self) -> str:
        """No answers: the approximate ones take time. Forbidden cells stay blank."""
        cells = self._cells
        alone = expit(cells.logits) if self.n_cells <= _display.MOST_CELLS else np.empty(0)
        title = "P(cell is on) without rows and columns"
        return _display.page(
            repr(self), [_display.heat_of_cells(cells.row, cells.column, alone, self.shape, title)]
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MatrixProblem):
            return NotImplemented
        mine, theirs = ((*p._cells.places, p._cells.logits, *p._tables) for p in (self, other))
        alike = self.shape == other.shape and self._sparse == other._sparse
        return alike and all(map(np.array_equal, mine, theirs))

    def __hash__(self) -> int:
        return hash((self.shape, self._cells.logits.tobytes()))
