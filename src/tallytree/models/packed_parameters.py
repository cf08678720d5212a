"""Tables that arrive packed: all of them one after the other in one array, which is kept as it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..arrays import Float64
from ..engine import far
from ..engine.memory import frozen_copies
from ..memo import lazy
from ..structure.nested.count_tree import CountTree
from .parameters import Parameters, checked_logits, collect, table_name
from .tables_argument import check_packed_length, is_packed, unpack


class PackedParameters(Parameters):
    """Parameters whose tables arrived in one array (..., T), group after group; tables of their own are views of it."""

    def __init__(
        self,
        tree: CountTree,
        logits: NDArray[np.floating[Any]],
        dtype: np.dtype[Any],
        given: Float64,
        batch_shape: tuple[int, ...],
    ) -> None:
        self.tree = tree
        self.logits = logits
        self.dtype = dtype
        self.given = given
        self.batch_shape = batch_shape
        self.own_constant = 0.0

    def _changed(
        self, logits: NDArray[np.floating[Any]], dtype: np.dtype[Any], batch_shape: Any
    ) -> Parameters:
        return PackedParameters(self.tree, logits, dtype, self.given, batch_shape)

    def _tables_near(self) -> bool:
        return self.near_tables or far.all_near(self.given)

    @lazy
    def tables(self) -> tuple[Float64, ...]:
        """One view per group."""
        views = tuple(np.split(self.given, self.tree.family.group_offset[1:-1], axis=-1))
        for view in views:
            view.setflags(write=False)
        return views

    @lazy
    def potentials(self) -> tuple[Any, ...]:
        """The tables themselves."""
        return self.tables

    @lazy
    def tables_batch(self) -> tuple[int, ...]:
        """Batch shape of the tables alone."""
        return self.given.shape[:-1]

    @lazy
    def packed(self) -> Float64:
        """As in `Parameters`; the order of the groups is often that of the sets already."""
        family = self.tree.family
        if self._replaced is not None or not family.groups_are_sets:
            return super().packed
        shape = self.batch_shape if self.given.ndim > 1 else ()
        rows = np.broadcast_to(self.given, (*shape, self.given.shape[-1])).reshape(-1, self.given.shape[-1])
        cells = family.set_cells
        return rows if cells is None else np.take(rows, cells, axis=1)


def from_user(
    tree: CountTree, logits: Float64, dtype: np.dtype[Any], tables: Any, constant: Any = None
) -> Parameters:
    """Parameters from a sequence with one entry per group, or from all tables packed in one array."""
    if is_packed(tables) and tree.family.n_groups:
        return _collect_packed(tree, logits, dtype, tables)
    return collect(tree, logits, dtype, unpack(tree, tables), constant)


def _collect_packed(
    tree: CountTree, logits: Float64, dtype: np.dtype[Any], tables: NDArray[Any]
) -> Parameters:
    check_packed_length(tree, tables)
    array, _ = checks.real_array("tables", tables, axis="counts")
    copies, extremes = frozen_copies([array, logits])
    given = copies[0]
    largest = extremes[0][1] if extremes is not None else float(given.max(initial=-math.inf))
    if not largest < math.inf:
        for g, table in enumerate(np.split(given, tree.family.group_offset[1:-1], axis=-1)):
            checks.log_table(table, tree.group_size(g), name=table_name(g, tree.family.n_groups == 1))
    batch_shape = checks.broadcast(logits.shape[:-1], [("`tables`", given.shape[:-1])])
    return PackedParameters(tree, checked_logits(copies[1], extremes, dtype), dtype, given, batch_shape)
