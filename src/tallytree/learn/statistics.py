"""Sufficient statistics of binary rows: which variables are on, which counts and which pairs occur."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..memo import cached
from ..structure.nested.count_tree import CountTree

_ROWS = 4096  # rows handled at a time


@dataclass(frozen=True, eq=False)
class Statistics:
    """Weighted means over rows, made by :meth:`CountFeatures.mean`.

    Attributes
    ----------
    logits : (D,)
        Mean of y, the frequency with which each variable is on.
    tables : (T,)
        Frequencies of the counts of every group, one group after the other.
    weight : float
        Total weight of the rows.
    edges : (4 E,)
        Frequencies of the states 00, 01, 10, 11 of every pair, one edge after the other.

    See Also
    --------
    tallytree.learn.CountFeatures
    tallytree.learn.fit

    Examples
    --------
    >>> found = tt.learn.CountFeatures(tt.CountTree.flat(2)).mean(np.array([[1, 1], [0, 1]], np.uint8))
    >>> found.logits, found.weight
    (array([0.5, 1. ]), 2.0)
    """

    logits: Float64
    tables: Float64
    weight: float
    edges: Float64 = field(default_factory=lambda: np.zeros(0))

    @property
    def packed(self) -> Float64:
        """``logits``, ``tables`` and ``edges`` in one array.

        See Also
        --------
        CountFeatures.mean

        Examples
        --------
        >>> tt.learn.CountFeatures(tt.CountTree.flat(2)).mean(np.array([[0, 1], [1, 1]])).packed
        array([0.5, 1. , 0. , 0.5, 0.5])
        """
        return np.concatenate([self.logits, self.tables, self.edges])


class CountFeatures:
    """What :func:`fit` needs to know of rows: how often each variable is on, and how often each count occurs.

    The tables of all groups are stored in one array of T entries, one table after the other, and likewise those of all
    edges; both are called packed. An entry of a packed array is a cell.

    Parameters
    ----------
    tree : CountTree
        The groups.
    pairs : (E, 2) array of int, optional
        The pairs of variables that are joined by edges; default none.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.Statistics
    tallytree.learn.fit

    Examples
    --------
    >>> features = tt.learn.CountFeatures(tt.CountTree.flat(2))
    >>> features.mean(np.array([[1, 1], [0, 1]], np.uint8)).tables
    array([0. , 0.5, 0.5])
    """

    def __init__(self, tree: CountTree, pairs: ArrayLike | None = None) -> None:
        self.tree: CountTree = checks.instance("tree", tree, CountTree, ", as from CountTree.from_groups")
        inside = checks.integers(0, tree.n_variables - 1, "variables")
        given = checks.rectangular("pairs", () if pairs is None else pairs, "pairs of variables (E, 2)")
        self.pairs: Ints = checks.array(
            "pairs", given if given.size else np.zeros((0, 2), int), ("E", 2), inside
        )
        family = tree.family
        sizes = np.array([tree.group_size(g) for g in range(family.n_groups)], np.int64)
        self.offset: Ints = np.concatenate([[0], np.cumsum(sizes + 1)]).astype(np.int64)
        position = np.empty(family.n_variables, np.int64)
        position[family.order] = np.arange(family.n_variables)
        alone = family.set_of_group < 0
        sets = np.where(alone, 0, family.set_of_group)
        single = position[np.where(alone, family.variable_of_group, 0)] if family.n_variables else sets
        # Every group is a contiguous range of the family's order: counts are differences of running sums.
        self._start = np.where(alone, single, family.start[sets] if family.n_sets else 0)
        self._stop = np.where(alone, single + 1, family.stop[sets] if family.n_sets else 0)

    @property
    def n_cells(self) -> int:
        """Number T of table entries of all groups together.

        See Also
        --------
        group_of_cell

        Examples
        --------
        >>> features = tt.learn.CountFeatures(tt.CountTree.balanced(4))
        >>> features.n_cells
        11
        """
        return int(self.offset[-1])

    @cached
    def group_of_cell(self) -> Ints:
        """Number of the group to which each cell belongs, (T,).

        See Also
        --------
        n_cells, cells

        Examples
        --------
        >>> features = tt.learn.CountFeatures(tt.CountTree.balanced(4))
        >>> features.group_of_cell
        array([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
        """
        return np.repeat(np.arange(len(self.offset) - 1), np.diff(self.offset))

    def cells(self, rows: NDArray[Any]) -> Ints:
        """Cell of the packed tables for the count of each row in each group, (N, n_groups).

        Parameters
        ----------
        rows : (N, D) array
            Zeros and ones.

        Returns
        -------
        ndarray of int, (N, n_groups)
            Indices from 0 to T - 1.

        Raises
        ------
        ParameterError
            If ``rows`` are not rows of zeros and ones.

        See Also
        --------
        pair_cells, mean

        Examples
        --------
        >>> tt.learn.CountFeatures(tt.CountTree.flat(2)).cells(np.array([[0, 0], [1, 1]]))
        array([[0],
               [2]])
        """
        return self._cells(self._rows(rows))

    def _rows(self, rows: Any) -> NDArray[Any]:
        return binary_rows(rows, self.tree.n_variables, "rows")

    def _cells(self, rows: NDArray[Any]) -> Ints:
        family = self.tree.family
        running = np.zeros((len(rows), family.n_variables + 1), np.int32)
        np.cumsum(rows[:, family.order], axis=1, dtype=np.int32, out=running[:, 1:])
        counts = running[:, self._stop] - running[:, self._start]
        return np.asarray(counts + self.offset[:-1], np.int64)

    def pair_cells(self, rows: NDArray[Any]) -> Ints:
        """Cell of the packed tables of edges for the states of each row, (N, E).

        Parameters
        ----------
        rows : (N, D) array
            Zeros and ones.

        Returns
        -------
        ndarray of int, (N, E)
            Indices from 0 to 4 E - 1: edge e has the cells 4 e + 0, ..., 4 e + 3 for the states 00, 01, 10, 11.

        Raises
        ------
        ParameterError
            If ``rows`` are not rows of zeros and ones.

        See Also
        --------
        cells, mean

        Examples
        --------
        >>> features = tt.learn.CountFeatures(tt.CountTree.flat(2), [(0, 1)])
        >>> features.pair_cells(np.array([[0, 0], [0, 1], [1, 1]]))
        array([[0],
               [1],
               [3]])
        """
        return self._pair_cells(self._rows(rows))

    def _pair_cells(self, rows: NDArray[Any]) -> Ints:
        first, second = (rows[:, self.pairs[:, k]].astype(np.int64) for k in (0, 1))
        return np.asarray(4 * np.arange(len(self.pairs)) + 2 * first + second, np.int64)

    def mean(self, rows: NDArray[Any], weights: Float64 | None = None) -> Statistics:
        """Weighted means over the rows.

        Parameters
        ----------
        rows : (N, D) array
            Zeros and ones.
        weights : (N,) array, optional
            Weights of the rows.

        Returns
        -------
        Statistics
            Frequencies of the variables, of the counts and of the states of the edges.

        Raises
        ------
        ParameterError
            If ``rows`` are not rows of zeros and ones, or ``weights`` do not fit them.

        See Also
        --------
        cells, Statistics

        Examples
        --------
        >>> found = tt.learn.CountFeatures(tt.CountTree.flat(2)).mean(np.array([[0, 1], [1, 1]]))
        >>> found.logits, found.tables
        (array([0.5, 1. ]), array([0. , 0.5, 0.5]))
        """
        rows = self._rows(rows)
        given = row_weights(weights, len(rows))
        weight = np.ones(len(rows)) if given is None else given
        if not len(rows):
            raise ParameterError("`rows` must hold at least one row; none arrived.")
        total = float(weight.sum())
        tables, edges = np.zeros(self.n_cells), np.zeros(4 * len(self.pairs))
        for start in range(0, len(rows), _ROWS):
            part = slice(start, start + _ROWS)
            tables += _sums(self._cells(rows[part]), weight[part], len(tables))
            edges += _sums(self._pair_cells(rows[part]), weight[part], len(edges))
        return Statistics(frequencies(rows, weight, total), tables / total, total, edges / total)

    def log_weight(self, rows: NDArray[Any], logits: Float64, packed: Float64) -> Float64:
        """Logarithm of the unnormalised probability of rows under logits and log-tables, without edges, (N,).

        Parameters
        ----------
        rows : (N, D) array
            Zeros and ones.
        logits : (D,) array
            Log-odds.
        packed : (T,) array
            Packed log-tables.

        Returns
        -------
        ndarray, (N,)
            Logarithms.

        Raises
        ------
        ParameterError
            If an argument has the wrong shape or value.

        See Also
        --------
        cells

        Examples
        --------
        >>> features = tt.learn.CountFeatures(tt.CountTree.flat(2))
        >>> features.log_weight(np.array([[0, 1], [1, 1]]), np.array([1.0, 2.0]), np.array([0.0, 10.0, 20.0]))
        array([12., 23.])
        """
        rows, anything = self._rows(rows), checks.Entries("log-odds", -np.inf, np.inf)
        theta = checks.array("logits", logits, (self.tree.n_variables,), anything)
        tables = checks.array("packed", packed, (self.n_cells,), checks.LOGS)
        out = np.empty(len(rows))
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            out[start : start + _ROWS] = unary_log_weight(part, theta) + tables[self._cells(part)].sum(1)
        return out


class TrainingRows:
    """Rows whose statistics are asked for again and again with other weights; their cells are kept.

    Memory: 4 bytes per row and group.
    """

    def __init__(self, features: CountFeatures, rows: NDArray[Any]) -> None:
        self._features, self._rows = features, rows.astype(np.float64)
        self._cells = features._cells(rows).astype(np.int32)

    def mean(self, weights: Float64) -> Statistics:
        """Weighted means."""
        total = float(weights.sum())
        tables = _sums(self._cells, weights, self._features.n_cells)
        return Statistics(frequencies(self._rows, weights, total), tables / total, total)

    def log_weight(self, logits: Float64, packed: Float64) -> Float64:
        """Log of the unnormalised probability of every row, (N,)."""
        return np.asarray(unary_log_weight(self._rows, logits) + packed[self._cells].sum(1))


def _sums(cells: NDArray[Any], weights: Float64, size: int) -> Float64:
    """Weights of the rows that use each of `size` cells; `cells` are (N, groups)."""
    return np.bincount(cells.reshape(-1), np.repeat(weights, cells.shape[1]), size).astype(np.float64)


def frequencies(rows: NDArray[Any], weights: Float64, total: float) -> Float64:
    """Weighted means of the columns, (D,); exactly 1 where every row of positive weight is on."""
    found = np.asarray(weights @ rows / total)
    full = np.flatnonzero(found > 1.0 - 1e-6)  # sums that round cannot tell these from 1
    if len(full):
        chosen = rows[:, full].astype(np.float64)
        on, off = weights @ chosen, weights @ (1.0 - chosen)
        found[full] = on / (on + off)
        # A rest below the rounding of 1 is a rest all the same: the largest number below 1 says so.
        found[full] = np.where((off > 0) & (found[full] >= 1.0), np.nextafter(1.0, 0.0), found[full])
    return found


def unary_log_weight(rows: NDArray[Any], logits: Float64) -> Float64:
    """``sum_d logits_d y_d`` of rows, (N,); infinite logits weigh 1 where the row agrees with them, else nothing."""
    endless = np.flatnonzero(np.isinf(logits))
    if not len(endless):
        return np.asarray(rows @ logits)
    finite = rows @ np.where(np.isinf(logits), 0.0, logits)
    agrees = ((rows[:, endless] != 0) == (logits[endless] > 0)).all(1)
    return np.where(agrees, finite, -np.inf)


def mean_of_batches(features: CountFeatures, batches: Iterable[Any]) -> Statistics:
    """Statistics of rows that arrive in batches: arrays (N, D), or pairs (rows, weights)."""
    ends = np.cumsum([features.tree.n_variables, features.n_cells, 4 * len(features.pairs)])
    sums, total = np.zeros(ends[-1]), 0.0
    for batch in batches:
        rows, weights = batch if isinstance(batch, tuple) else (batch, None)
        checked = binary_rows(rows, features.tree.n_variables)
        own = row_weights(weights, len(checked), some=False)
        if not (len(checked) if own is None else own.sum()) > 0:
            continue
        found = features.mean(checked, own)
        sums += found.weight * found.packed
        total += found.weight
    if not total > 0:
        raise ParameterError("`data` must hold at least one row of positive weight; none arrived.")
    logits, tables, edges = np.split(sums / total, ends[:-1])
    return Statistics(logits, tables, total, edges)


def binary_rows(data: ArrayLike, n_variables: int, name: str = "data") -> NDArray[Any]:
    """Rows (N, D) of zeros and ones, checked."""
    return checks.array(name, data, ("N", n_variables), checks.ZERO_OR_ONE)


def row_weights(
    weights: ArrayLike | None, n: int, *, name: str = "weights", some: bool = True
) -> Float64 | None:
    """Non-negative weights (N,) with a finite sum, not all zero if `some`."""
    if weights is None:
        return None
    largest = float(np.finfo(np.float64).max) / max(n, 1)
    entries = checks.Entries("non-negative numbers with a finite sum", 0.0, largest)
    found = checks.array(name, weights, (n,), entries, hint=" Weight 0 leaves a row out.")
    if some and not found.any():
        raise ParameterError(f"`{name}` must not all be zero: no row would be left.")
    return found
