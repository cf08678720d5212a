"""From a nested family to the binary forest on which messages are passed.

Inside each set the loose variables form one balanced block; block and child sets are then merged two smallest
first (Huffman). The sum of the sizes of all internal nodes is at most ``D log2 D + 2 N``, N the total size of the
sets: Huffman's path length telescopes along every variable's ancestors.

Disjoint maximal sets are independent components. Those with a single set are standard models (one potential over a
block), and those of equal size are solved side by side as a batch; only the others need a tree.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...arrays import Ints
from ...memo import Caching, cached
from .family import NestedFamily, family_from_forest, first_of_run


@dataclass(frozen=True, eq=False)
class TreeProgram(Caching):
    """A binary forest: leaves ``0..n_leaves-1``, then internal nodes, children before parents.

    Attributes
    ----------
    left, right : (n_internal,) int32
        Children of internal node ``n_leaves + i``.
    size : (n_leaves + n_internal,)
        Number of leaves below a node.
    table_offset : (n_internal,) int64
        Where the node's log-table of ``size + 1`` entries starts in the packed tables, -1 if it has none.
    set_node : (n_sets,)
        The node of each set of the family; its table starts at ``set_offset``.
    """

    n_leaves: int
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    size: Ints
    table_offset: Ints
    set_node: Ints
    set_offset: Ints

    @property
    def n_internal(self) -> int:
        return len(self.left)

    @property
    def n_nodes(self) -> int:
        return self.n_leaves + len(self.left)

    @property
    def table_total(self) -> int:
        """Length of the packed tables."""
        return int(self.set_offset[-1]) if len(self.set_offset) else 0

    @cached
    def parent(self) -> Ints:
        """Parent of every node, -1 at the roots."""
        parent = np.full(self.n_nodes, -1, np.int64)
        ids = np.arange(self.n_leaves, self.n_nodes)
        parent[self.left] = ids
        parent[self.right] = ids
        return parent

    @cached
    def roots(self) -> Ints:
        """Internal nodes without a parent; free leaves are not listed."""
        internal = np.arange(self.n_leaves, self.n_nodes)
        return internal[self.parent[internal] < 0]


def binarise(family: NestedFamily) -> TreeProgram:
    """Binary forest of a nested family."""
    n = family.n_variables
    left, right, size, block_root = _balanced_blocks(family)
    children = np.flatnonzero(family.set_parent >= 0)
    has_block = block_root >= 0
    items = np.bincount(family.set_parent[children], minlength=family.n_sets) + has_block
    # A set of m parts takes m - 1 merges, the last of which is its node; distinct sets have a block or two children.
    merges = np.concatenate([[0], np.cumsum(items - 1)])
    set_node = np.where(items == 1, block_root, len(size) + merges[1:] - 1)
    nodes = np.concatenate([set_node[children], block_root[has_block]])
    owner = np.concatenate([family.set_parent[children], np.flatnonzero(has_block)])
    more = _merge_smallest_first(
        nodes,
        np.concatenate([family.set_size[children], size[block_root[has_block]]]),
        owner,
        items,
        len(size),
    )
    table_offset = np.full(len(left) + len(more), -1, np.int64)
    set_offset = family.set_offset
    table_offset[set_node - n] = set_offset[:-1]
    return TreeProgram(
        n,
        np.concatenate([left, more[:, 0]]).astype(np.int32),
        np.concatenate([right, more[:, 1]]).astype(np.int32),
        np.concatenate([size, more[:, 2]]),
        table_offset,
        set_node,
        set_offset,
    )


def family_of_program(program: TreeProgram) -> NestedFamily:
    """The nested family of which a binary forest was made."""
    holder = np.full(
        program.n_nodes + 1, -1, np.int64
    )  # the smallest set at or above a node; the last entry: none
    holder[program.set_node] = np.arange(len(program.set_node))
    above = holder[:-1].copy()
    for node, up in zip(range(program.n_nodes - 1, -1, -1), program.parent[::-1].tolist()):
        above[node] = holder[up]
        if holder[node] < 0:
            holder[node] = above[node]
    n = program.n_leaves
    return family_from_forest(n, above[program.set_node], above[:n], program.size[program.set_node])


def _merge_smallest_first(nodes: Ints, sizes: Ints, owner: Ints, items: Ints, first: int) -> Ints:
    """Children and sizes of the merges of all sets, (n_merges, 3), set by set; node numbers start at ``first``."""
    order = np.lexsort((nodes, sizes, owner))
    nodes, sizes = nodes[order], sizes[order]
    begin = np.cumsum(items) - items
    at = np.cumsum(items - 1) - (items - 1)
    merged = np.empty((int((items - 1).sum()), 3), np.int64)
    two = items == 2
    one, other = begin[two], begin[two] + 1
    merged[at[two]] = np.stack([nodes[one], nodes[other], sizes[one] + sizes[other]], axis=1)
    for s in np.flatnonzero(items > 2).tolist():
        inside = slice(int(begin[s]), int(begin[s] + items[s]))
        heap = list(zip(sizes[inside].tolist(), nodes[inside].tolist()))  # sorted, so a heap
        new = int(at[s])
        while len(heap) > 1:
            a, i = heapq.heappop(heap)
            b, j = heapq.heappop(heap)
            merged[new] = i, j, a + b
            heapq.heappush(heap, (a + b, first + new))
            new += 1
    return merged


def _balanced_blocks(family: NestedFamily) -> tuple[Ints, Ints, Ints, Ints]:
    """Balanced trees over the loose variables of all sets at once, one level of every tree per round."""
    n = family.n_variables
    loose_set = family.variable_parent[family.order]
    nodes = family.order[loose_set >= 0]
    segment = loose_set[loose_set >= 0]
    # `order` lists a set's loose variables behind its child sets, whose own loose variables may split the run.
    by_segment = np.argsort(segment, kind="stable")
    nodes, segment = nodes[by_segment], segment[by_segment]
    size = np.ones(n, np.int64)
    lefts, rights, total = [], [], n
    while len(segment) and np.any(segment[1:] == segment[:-1]):
        position = np.arange(len(segment)) - first_of_run(segment)
        last = np.append(segment[1:] != segment[:-1], True)
        opens = (position % 2 == 0) & ~last
        closes = np.zeros_like(opens)
        closes[1:] = opens[:-1]
        a, b = nodes[opens], nodes[closes]
        new = np.arange(total, total + len(a))
        lefts.append(a)
        rights.append(b)
        size = np.concatenate([size, size[a] + size[b]])
        total += len(a)
        keep = ~closes
        nodes = nodes.copy()
        nodes[opens] = new
        nodes, segment = nodes[keep], segment[keep]
    empty = np.empty(0, np.int64)
    block_root = np.full(family.n_sets, -1, np.int64)
    block_root[segment] = nodes
    return (
        np.concatenate([empty, *lefts]),
        np.concatenate([empty, *rights]),
        size,
        block_root,
    )


# -- components ----------------------------------------------------------------------------------------------------


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
    whole: bool  # there is nothing but one set that holds all variables


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
    part = _nested_part(family, program(), nested) if nested.any() else None
    return Components(tuple(buckets), part, len(buckets) == 1 and buckets[0].whole)


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
