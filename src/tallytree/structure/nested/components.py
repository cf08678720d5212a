"""Independent components of a tree: disjoint maximal sets share no table and need no convolution between them.

Components with a single set are standard models (one potential over a block); those of equal size are solved side by
side as a batch. Only the others need a tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...arrays import Ints
from ...memo import cached
from .family import NestedFamily
from .tree import TreeProgram


@dataclass(frozen=True, eq=False)
class FlatBucket:
    """Components with one set each, all of the same size."""

    family: NestedFamily
    sets: Ints  # (count,)
    size: int
    whole: bool  # one component that holds all variables in their order: nothing to gather

    @cached
    def variables(self) -> Ints:
        """(count, size), increasing along the rows."""
        first = self.family.start[self.sets][:, None]
        return np.sort(self.family.order[first + np.arange(self.size)], axis=1)

    @cached
    def cells(self) -> Ints:
        """(count, size + 1) cells of their tables in the packed tables."""
        return self.family.set_offset[self.sets][:, None] + np.arange(self.size + 1)


@dataclass(frozen=True, eq=False)
class NestedPart:
    """The components with sets inside sets, as a program of their own."""

    program: TreeProgram
    variables: Ints | None  # None: all variables in their order
    cells: Ints | None  # None: all tables


@dataclass(frozen=True, eq=False)
class Components:
    """Everything but the free variables."""

    flat: tuple[FlatBucket, ...]
    nested: NestedPart | None


def split(family: NestedFamily, program: Callable[[], TreeProgram]) -> Components:
    """Flat components, bucketed by size, and the rest; only the rest needs the binary forest."""
    size, top = family.set_size, family.set_parent < 0
    has_child = np.zeros(family.n_sets, bool)
    has_child[family.set_parent[~top]] = True
    flat = np.flatnonzero(top & ~has_child)
    buckets = []
    for n in np.unique(size[flat]).tolist():
        sets = flat[size[flat] == n]
        whole = len(sets) == 1 and n == family.n_variables
        buckets.append(FlatBucket(family, sets, n, whole))
    nested = top & has_child
    return Components(tuple(buckets), _nested_part(family, program(), nested) if nested.any() else None)


def _nested_part(family: NestedFamily, program: TreeProgram, roots: NDArray[np.bool_]) -> NestedPart:
    # Which component a set belongs to, following parents from the largest set down.
    kept = roots.copy()
    for s in range(family.n_sets - 1, -1, -1):
        if family.set_parent[s] >= 0:
            kept[s] = kept[family.set_parent[s]]
    inside = np.zeros(family.n_variables, bool)
    held = family.variable_parent >= 0
    inside[held] = kept[family.variable_parent[held]]
    if kept.all() and inside.all():
        return NestedPart(program, None, None)
    return _restrict(program, inside, kept)


def _restrict(program: TreeProgram, inside: NDArray[np.bool_], kept_sets: NDArray[np.bool_]) -> NestedPart:
    """The sub-forest over the chosen variables, renumbered in the same order."""
    n = program.n_leaves
    chosen = np.zeros(program.n_nodes, bool)
    chosen[:n] = inside
    for i, a in enumerate(program.left.tolist()):
        chosen[n + i] = chosen[a]
    new_id = np.cumsum(chosen) - 1
    nodes = np.flatnonzero(chosen[n:])
    sets = np.flatnonzero(kept_sets)
    lengths = np.diff(program.set_offset)[sets]
    set_offset = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    set_node = new_id[program.set_node[sets]]
    table_offset = np.full(len(nodes), -1, np.int64)
    leaves = int(inside.sum())
    table_offset[set_node - leaves] = set_offset[:-1]
    starts = np.repeat(program.set_offset[sets] - set_offset[:-1], lengths)
    part = TreeProgram(
        leaves,
        new_id[program.left[nodes]].astype(np.int32),
        new_id[program.right[nodes]].astype(np.int32),
        program.size[chosen],
        table_offset,
        set_node,
        set_offset,
    )
    return NestedPart(part, np.flatnonzero(inside), starts + np.arange(set_offset[-1]))
