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
from ...structure.nested.blocks import BlockForest, cut
from ...structure.nested.count_tree import CountTree

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
    """A tree cut at blocks, each of which holds all loose variables of a set.

    The message of node p is ``cells[offset[p]:offset[p + 1]]``. The extended tables are the packed tables followed by
    one zero.
    """

    forest: BlockForest
    offset: Ints
    set_node: Ints
    blocks: tuple[Blocks, ...]
    steps: tuple[Merges, ...]
    roots: tuple[Roots, ...]

    @property
    def n_nodes(self) -> int:
        return len(self.forest.size)

    @property
    def n_cells(self) -> int:
        """Entries of all messages; the cell behind them is -inf."""
        return int(self.offset[-1])

    def span(self, node: int) -> slice:
        """Cells of a node's message."""
        return _span(self.offset, node)


def _span(offset: Ints, node: int) -> slice:
    return slice(int(offset[node]), int(offset[node + 1]))


def plan_of(tree: CountTree) -> Plan:
    """The plan of a tree, kept beside it."""
    return once(tree, "merge plan", lambda: _build(tree))


def _build(tree: CountTree) -> Plan:
    program = tree.program
    forest = cut(program, program.roots, free=True, largest=program.n_leaves)
    size = forest.size
    offset = np.concatenate([[0], np.cumsum(size + 1)]).astype(np.int64)
    maker = _Cells(forest, offset, program.table_total)
    blocks = []
    for nodes in _by_size(np.arange(forest.n_blocks), size):
        n_loose = int(size[nodes[0]])
        members = forest.variables[forest.start[nodes][:, None] + np.arange(n_loose)]
        blocks.append(
            Blocks(nodes, members, maker.message(nodes, n_loose + 1), maker.table(nodes, n_loose + 1))
        )
    roots = [Roots(r, maker.message(r, int(size[r[0]]) + 1)) for r in _by_size(forest.roots, size)]
    set_node = np.argsort(forest.table, kind="stable")[len(size) - len(program.set_node) :]
    return Plan(forest, offset, set_node, tuple(blocks), tuple(_steps(forest, maker)), tuple(roots))


def _by_size(nodes: Ints, size: Ints) -> Iterator[Ints]:
    order = nodes[np.argsort(size[nodes], kind="stable")]
    if len(order):
        yield from np.split(order, np.flatnonzero(np.diff(size[order])) + 1)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Where messages and tables of nodes lie."""

    forest: BlockForest
    offset: Ints
    table_total: int

    def message(self, nodes: Ints, width: int) -> Ints:
        span = np.arange(width)
        inside = span <= self.forest.size[nodes][:, None]
        return np.where(inside, self.offset[nodes][:, None] + span, self.offset[-1])

    def table(self, nodes: Ints, width: int) -> Ints | None:
        start = self.forest.table[nodes][:, None]
        if (start < 0).all():
            return None
        span = np.arange(width)
        inside = (span <= self.forest.size[nodes][:, None]) & (start >= 0)
        return np.where(inside, start + span, self.table_total)

    def large(self, node: int, left: int, right: int) -> Merges:
        a, b, own = (_span(self.offset, i) for i in (left, right, node))
        start = int(self.forest.table[node])
        table = None if start < 0 else slice(start, start + int(self.forest.size[node]) + 1)
        return Merges(node, left, right, a, b, own, table)


def _steps(forest: BlockForest, maker: _Cells) -> list[Merges]:
    """All merges, children before parents."""
    size, first = forest.size, forest.n_blocks
    height = [0] * len(size)
    for p, (a, b) in enumerate(zip(forest.left.tolist(), forest.right.tolist()), first):
        height[p] = 1 + max(height[a], height[b])
    level = np.array(height, np.int64)
    merges = np.arange(first, len(size))
    small = merges[size[merges] <= SMALL]
    found: list[tuple[int, Merges]] = []
    for p in merges[size[merges] > SMALL].tolist():
        found.append((height[p], maker.large(p, *map(int, forest.children(p)))))
    # Padding at most doubles a width: children are told apart by the number of bits of their size.
    bits = np.frexp(size.astype(np.float64))[1]
    left, right = forest.children(small)
    key = (level[small] * 64 + bits[left]) * 64 + bits[right]
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    for nodes in np.split(small[order], cuts) if len(small) else []:
        a, b = forest.children(nodes)
        wide_a, wide_b = int(size[a].max()) + 1, int(size[b].max()) + 1
        width = wide_a + wide_b - 1
        step = Merges(
            nodes, a, b, maker.message(a, wide_a), maker.message(b, wide_b),
            maker.message(nodes, width), maker.table(nodes, width),
        )  # fmt: skip
        found.append((int(level[nodes[0]]), step))
    found.sort(key=lambda item: item[0])
    return [step for _, step in found]
