"""What a model asks of the engine: a structure and numbers on it, for a batch of models at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64, Ints
from ..structure.nested.count_tree import CountTree

Mixture = tuple[NDArray[Any], NDArray[Any]]


class _Batch:
    """Models side by side: log-odds ``nu`` (B, n), and ``tables``, one row for all or one for each."""

    __slots__ = ()
    nu: Float64
    tables: Float64

    def __len__(self) -> int:
        return len(self.nu)

    @property
    def full_tables(self) -> Float64:
        """The tables of every model, (B, T)."""
        return np.broadcast_to(self.tables, (len(self.nu), self.tables.shape[1]))

    def _tables_of(self, rows: Ints) -> Float64:
        return self.tables if len(self.tables) == 1 else self.tables[rows]


@dataclass(frozen=True, eq=False, slots=True)
class Rows(_Batch):
    """Models on one component of a structure: log-odds (B, n) and tables (1 or B, T)."""

    nu: Float64
    tables: Float64

    def take(self, rows: Ints) -> Rows:
        """Some models of the batch."""
        return Rows(self.nu[rows], self._tables_of(rows))


@dataclass(frozen=True, eq=False, slots=True)
class Problem(_Batch):
    """A batch of models on one structure: independent log-odds and packed tables.

    Attributes
    ----------
    tree : CountTree
    nu : (B, D)
        Log-odds, tables of single variables included.
    tables : (1 or B, T)
        Log-tables of the sets, one after the other.
    mixtures
        The exponential mixture that a set's table is, where that is known.
    constant : () or (B,)
        Part of log Z that no variable can change.
    log_leaves : (B,) or None
        `constant` plus the sum of ``log(1 + e^nu)``, where tables of single variables would lose digits of it.
    """

    tree: CountTree
    nu: Float64
    tables: Float64
    mixtures: Mapping[int, Mixture] = field(default_factory=dict)
    constant: Any = 0.0
    log_leaves: Float64 | None = None

    def take(self, rows: Ints) -> Problem:
        """Some models of the batch."""
        return Problem(self.tree, self.nu[rows], self._tables_of(rows), self.mixtures)

    def given(self, b: int, rows: Ints, value: float) -> Problem:
        """Model `b` once for every variable in `rows`, whose log-odds become `value`."""
        nu = np.repeat(self.nu[b : b + 1], len(rows), axis=0)
        nu[np.arange(len(rows)), rows] = value
        tables = self.tables if len(self.tables) == 1 else self.tables[b : b + 1]
        return Problem(self.tree, nu, tables)
