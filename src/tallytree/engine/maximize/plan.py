"""What is merged with what: blocks of loose variables at the bottom, the merges of the binary forest above them.

The loose variables of a set carry no table below the set, so the best weight for every count is a prefix sum of their
sorted log-odds and no merge happens inside a block. Messages of all nodes lie one after the other in one vector; the
cell behind the last holds -inf and serves as padding. Small merges of one height and similar width run side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...arrays import Ints
from ...memo import once
from ...structure.nested.count_tree import CountTree
from ...structure.nested.family import follow

SMALL = 128  # merges of up to this many variables run in dense batches


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of equal size, ``n`` variables each."""

    nodes: Ints  # (R,)
    variables: Ints  # (R, n), increasing
    cells: Ints  # (R, n + 1)
    table_cells: Ints | None  # (R, n + 1) cells of the extended tables, None if no block has a table


@dataclass(frozen=True, eq=False)
class Merges:
    """Small merges side by side, (R,) and (R, width), padded to common widths; or a large one by itself, as slices."""

    nodes: Ints | int
    left: Ints | int
    right: Ints | int
    left_cells: Ints | slice
    right_cells: Ints | slice
    cells: Ints | slice  # width: left width + right width - 1
    table_cells: Ints | slice | None

    @property
    def large(self) -> bool:
        return isinstance(self.cells, slice)


@dataclass(frozen=True, eq=False)
class Roots:
    """Roots of equal size."""

    nodes: Ints  # (R,)
    cells: Ints  # (R, n + 1)


@dataclass(frozen=True, eq=False)
class Plan:
    """Blocks are nodes ``0..n_blocks-1``; merges follow, children before parents.

    The message of node p is ``cells[offset[p]:offset[p + 1]]``; ``table_offset`` is -1 where a node has no table.
    The extended tables are the packed tables followed by one zero.
    """

    n_blocks: int
    left: Ints  # (n_nodes,), -1 for blocks
    right: Ints
    size: Ints
    offset: Ints
    table_offset: Ints
    set_node: Ints
    free: Ints  # variables in no set
    block_variables: Ints  # variables of block b: block_variables[block_start[b]:block_start[b + 1]]
    block_start: Ints
    blocks: tuple[Blocks, ...]
    steps: tuple[Merges, ...]
    roots: tuple[Roots, ...]

    @property
    def n_nodes(self) -> int:
        return len(self.size)

    @property
    def n_cells(self) -> int:
        """Number of message cells; the cell with this number is the padding."""
        return int(self.offset[-1])

    def span(self, node: int) -> slice:
        """Cells of a node's message."""
        return _span(self.offset, node)

    def table_span(self, node: int) -> slice | None:
        """Cells of a node's table in the packed tables."""
        return _table_span(self.table_offset, self.size, node)

    def members(self, block: int) -> Ints:
        """Variables of a block, increasing."""
        return self.block_variables[self.block_start[block] : self.block_start[block + 1]]


def _span(offset: Ints, node: int) -> slice:
    return slice(int(offset[node]), int(offset[node + 1]))


def _table_span(table_offset: Ints, size: Ints, node: int) -> slice | None:
    start = int(table_offset[node])
    return None if start < 0 else slice(start, start + int(size[node]) + 1)


def plan_of(tree: CountTree) -> Plan:
    """The plan of a tree, built once."""
    return once(tree, "merge plan", lambda: _build(tree))


def _build(tree: CountTree) -> Plan:
    family, program = tree.family, tree.program
    n = program.n_leaves
    held = np.flatnonzero(family.variable_parent >= 0)
    loose = np.bincount(family.variable_parent[held], minlength=family.n_sets)
    inner = int(np.maximum(loose - 1, 0).sum())  # merges inside blocks come first in the program
    top = _top_below(program.parent[: n + inner], n + inner)
    block_ids, block_of = np.unique(top[held], return_inverse=True)
    n_blocks = len(block_ids)
    number = np.full(program.n_nodes, -1, np.int64)
    number[block_ids] = np.arange(n_blocks)
    number[n + inner :] = n_blocks + np.arange(program.n_internal - inner)

    none = np.full(n_blocks, -1, np.int64)
    left = np.concatenate([none, number[program.left[inner:]]])
    right = np.concatenate([none, number[program.right[inner:]]])
    size = np.concatenate([program.size[block_ids], program.size[n + inner :]])
    offset = np.concatenate([[0], np.cumsum(size + 1)]).astype(np.int64)
    below = np.concatenate([np.full(n, -1, np.int64), program.table_offset])
    table_offset = np.concatenate([below[block_ids], below[n + inner :]])
    variables = held[np.argsort(block_of, kind="stable")]
    block_start = np.concatenate([[0], np.cumsum(size[:n_blocks])]).astype(np.int64)

    maker = _Cells(size, offset, table_offset, program.table_total)
    blocks = []
    for nodes in _by_size(np.arange(n_blocks), size):
        n_loose = int(size[nodes[0]])
        members = variables[block_start[nodes][:, None] + np.arange(n_loose)]
        blocks.append(
            Blocks(nodes, members, maker.message(nodes, n_loose + 1), maker.table(nodes, n_loose + 1))
        )
    is_root = np.ones(len(size), bool)
    is_root[left[n_blocks:]] = False
    is_root[right[n_blocks:]] = False
    roots = [Roots(r, maker.message(r, int(size[r[0]]) + 1)) for r in _by_size(np.flatnonzero(is_root), size)]
    return Plan(
        n_blocks, left, right, size, offset, table_offset, number[program.set_node],
        np.flatnonzero(family.variable_parent < 0), variables, block_start,
        tuple(blocks), tuple(_steps(n_blocks, left, right, size, maker)), tuple(roots),
    )  # fmt: skip


def _top_below(parent: Ints, limit: int) -> Ints:
    """The highest ancestor with a number below ``limit``."""
    return follow(np.where((parent >= 0) & (parent < limit), parent, np.arange(len(parent))))


def _by_size(nodes: Ints, size: Ints) -> Iterator[Ints]:
    order = nodes[np.argsort(size[nodes], kind="stable")]
    if len(order):
        yield from np.split(order, np.flatnonzero(np.diff(size[order])) + 1)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Index matrices into the messages and the extended tables."""

    size: Ints
    offset: Ints
    table_offset: Ints
    table_total: int

    def message(self, nodes: Ints, width: int) -> Ints:
        span = np.arange(width)
        inside = span <= self.size[nodes][:, None]
        return np.where(inside, self.offset[nodes][:, None] + span, self.offset[-1])

    def table(self, nodes: Ints, width: int) -> Ints | None:
        start = self.table_offset[nodes][:, None]
        if (start < 0).all():
            return None
        span = np.arange(width)
        inside = (span <= self.size[nodes][:, None]) & (start >= 0)
        return np.where(inside, start + span, self.table_total)

    def large(self, node: int, left: int, right: int) -> Merges:
        below, above = (_span(self.offset, left), _span(self.offset, right)), _span(self.offset, node)
        return Merges(node, left, right, *below, above, _table_span(self.table_offset, self.size, node))


def _steps(n_blocks: int, left: Ints, right: Ints, size: Ints, maker: _Cells) -> list[Merges]:
    height = [0] * len(size)
    for p, a, b in zip(range(n_blocks, len(size)), left[n_blocks:].tolist(), right[n_blocks:].tolist()):
        height[p] = 1 + max(height[a], height[b])
    level = np.array(height, np.int64)
    merges = np.arange(n_blocks, len(size))
    small = merges[size[merges] <= SMALL]
    found: list[tuple[int, Merges]] = []
    for p in merges[size[merges] > SMALL].tolist():
        found.append((height[p], maker.large(p, int(left[p]), int(right[p]))))
    # Padding at most doubles a width: children are told apart by the number of bits of their size.
    bits = np.frexp(size.astype(np.float64))[1]
    key = (level[small] * 64 + bits[left[small]]) * 64 + bits[right[small]]
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    for nodes in np.split(small[order], cuts) if len(small) else []:
        a, b = left[nodes], right[nodes]
        wide_a, wide_b = int(size[a].max()) + 1, int(size[b].max()) + 1
        width = wide_a + wide_b - 1
        step = Merges(
            nodes, a, b, maker.message(a, wide_a), maker.message(b, wide_b),
            maker.message(nodes, width), maker.table(nodes, width),
        )  # fmt: skip
        found.append((int(level[nodes[0]]), step))
    found.sort(key=lambda item: item[0])
    return [step for _, step in found]
