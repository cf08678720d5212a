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


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
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

    def __len__(self) -> int:
        return len(self.nu)

    def take(self, rows: Ints) -> Problem:
        """Some models of the batch."""
        tables = self.tables if len(self.tables) == 1 else self.tables[rows]
        return Problem(self.tree, self.nu[rows], tables, self.mixtures)

    def given(self, b: int, rows: Ints, value: float) -> Problem:
        """Model `b` once for every variable in `rows`, whose log-odds become `value`."""
        nu = np.repeat(self.nu[b : b + 1], len(rows), axis=0)
        nu[np.arange(len(rows)), rows] = value
        tables = self.tables if len(self.tables) == 1 else self.tables[b : b + 1]
        return Problem(self.tree, nu, tables)
