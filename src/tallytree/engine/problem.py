"""What a model asks of the engine: a structure and numbers on it, for a batch of models at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64, Ints
from ..memo import once
from ..structure.forest.clusters import ClusterProgram
from ..structure.forest.structure import ForestStructure
from ..structure.nested.count_tree import CountTree
from ..structure.nested.tree import TreeProgram, family_of_program

Mixture = tuple[NDArray[Any], NDArray[Any]]

_NO_SETS = np.zeros(1, np.int64)


class Models:
    """Models side by side: log-odds ``nu`` (B, n), and ``tables``, one row for all or one for each."""

    __slots__ = ()
    nu: Float64
    tables: Float64

    def __len__(self) -> int:
        return len(self.nu)

    @property
    def full_tables(self) -> Float64:
        """The tables of every model, (B, T)."""
        return np.broadcast_to(self.tables, (len(self), self.tables.shape[1]))

    def _tables_of(self, rows: Ints) -> Float64:
        return self.tables if len(self.tables) == 1 else self.tables[rows]


@dataclass(frozen=True, eq=False, slots=True)
class Rows(Models):
    """Models on one component of a structure: log-odds (B, n) and tables (1 or B, T)."""

    nu: Float64
    tables: Float64

    def take(self, rows: Ints) -> Rows:
        """Some models of the batch."""
        return Rows(self.nu[rows], self._tables_of(rows))


@dataclass(eq=False, slots=True)  # not frozen, because that costs a small model half a microsecond
class Problem(Models):
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
    folded
        Sum of the magnitudes at which tables were added to others when the problem was made: there they were rounded.
    """

    tree: CountTree
    nu: Float64
    tables: Float64
    mixtures: Mapping[int, Mixture] = field(default_factory=dict)
    constant: Any = 0.0
    log_leaves: Float64 | None = None
    folded: float = 0.0

    def take(self, rows: Ints) -> Problem:
        """Some models of the batch."""
        return Problem(self.tree, self.nu[rows], self._tables_of(rows), self.mixtures)

    def given(self, b: int, rows: Ints, value: float) -> Problem:
        """Model `b` once for every variable in `rows`, whose log-odds become `value`."""
        nu = np.repeat(self.nu[b : b + 1], len(rows), axis=0)
        nu[np.arange(len(rows)), rows] = value
        tables = self.tables if len(self.tables) == 1 else self.tables[b : b + 1]
        return Problem(self.tree, nu, tables)


@dataclass(frozen=True, eq=False)
class ForestProblem(Models):
    """A batch of models on one program.

    Attributes
    ----------
    score : (D, K)
        What each state of a vertex adds to the counts.
    log_leaf : (B, D, K)
    log_edge : (1 or B, E, K, K)
    tables : (1 or B, T)
        Packed log-tables; set s has counts 0..n at ``offset[s] : offset[s + 1]``.
    folded
        Sum of the magnitudes at which tables were added to others when the problem was made: there they were rounded.
    counting
        Whether the sets are counted; without them it is ordinary belief propagation.
    origin
        Which models of the batch that was asked about these are, if they are not all of them.
    """

    structure: ForestStructure
    score: Ints
    log_leaf: Float64
    log_edge: Float64
    tables: Float64
    folded: float = 0.0
    counting: bool = True
    origin: Ints | None = None

    @property
    def program(self) -> ClusterProgram:
        return self.structure.program if self.counting else self.structure.bare_program

    @property
    def offset(self) -> Ints:
        return self.structure.offset if self.counting else _NO_SETS

    @property
    def top_set(self) -> Ints:
        return self.structure.top_set

    @property
    def n_states(self) -> int:
        return int(self.log_leaf.shape[2])

    @property
    def longest(self) -> int:
        """Length of the longest table."""
        return int(np.diff(self.offset).max(initial=0))

    @property
    def rows(self) -> Ints:
        """Which models of the batch that was asked about these are."""
        return np.arange(len(self.log_leaf)) if self.origin is None else self.origin

    def __len__(self) -> int:
        return len(self.log_leaf)

    def take(self, rows: Ints) -> ForestProblem:
        """Some models of the batch."""
        edge = self.log_edge if len(self.log_edge) == 1 else self.log_edge[rows]
        tables, origin = self._tables_of(rows), self.rows[rows]
        return replace(self, log_leaf=self.log_leaf[rows], log_edge=edge, tables=tables, origin=origin)

    def without_counts(self) -> ForestProblem:
        """The forest without its counts."""
        return replace(self, counting=False, tables=np.zeros((1, 0)))

    def given(self, rows: Ints, variables: Ints, state: int) -> ForestProblem:
        """Models `rows`, each with one of `variables` in a state."""
        part = self.take(rows)
        leaf = part.log_leaf.copy()
        place = np.arange(len(rows))
        kept = leaf[place, variables, state].copy()
        leaf[place, variables] = -math.inf
        leaf[place, variables, state] = kept
        return replace(part, log_leaf=leaf)


def without_edges(program: TreeProgram, nu: Float64, tables: Float64) -> ForestProblem:
    """Models on a binary tree as models on a forest that has no edges."""
    n, forced = nu.shape[1], nu == math.inf
    structure = once(
        program,
        "without edges",
        lambda: ForestStructure(np.empty((0, 2), np.int64), np.ones(n, np.int64), family_of_program(program)),
    )
    leaf = np.stack([np.where(forced, -math.inf, 0.0), np.where(forced, 0.0, nu)], axis=-1)
    score = np.broadcast_to([0, 1], (n, 2))
    return ForestProblem(structure, score, leaf, np.zeros((1, 0, 2, 2)), tables)
