"""The passes of the best weights: blocks, up the tree, down to a configuration, and down to all variables.

What is merged with what: blocks of loose variables at the bottom, the merges of the binary forest above them. The loose
variables of a set carry no table below the set, so the best weight for every count is a prefix sum of their sorted
log-odds and no merge happens inside a block. Messages of all nodes lie one after the other in one vector; the cell
behind the last holds -inf and serves as padding. Small merges of one height and similar width run side by side.

A block of variables under one function of their count: sort, and everything is a prefix sum or prefix maximum.

Gupta, Diwan and Sarawagi (2007) for the best configuration; the max-marginals are those of HOP-MAP (Tarlow, Givoni and
Zemel, 2010). All functions work along the last axis.

The upward pass: for every node and count, the best weight of what lies below it, its own table included.

From messages to a best configuration: counts are split top-down by one scan of a diagonal per node.

Ties go to the smaller count of the root, then to the smaller count of the left child, then, inside a block, to the
variable with the lower index.

The downward pass, adjoint of the upward one: best weight of all that lies outside a node, for every count of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64, Ints
from ...memo import once
from ...structure.nested.blocks import BlockForest, cut, one_block
from ...structure.nested.count_tree import CountTree
from .convolve import convolve_batch, convolve_rows, correlate_batch, correlate_rows

SMALL = 128  # merges of up to this many variables run in dense batches


Place = tuple[Any, ...]  # an index behind the batch: rows (R, n) of numbers, or one row of them as a view


def _place(rows: Ints) -> Place:
    if len(rows) == 1 and (np.diff(rows[0]) == 1).all():
        first = int(rows[0, 0]) if rows.size else 0
        return (None, slice(first, first + rows.size))
    return (rows,)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of equal size, ``n`` variables each."""

    nodes: Ints  # (R,)
    variables: Place  # (R, n), increasing
    cells: Place  # (R, n + 1)
    table_cells: Place | None  # (R, n + 1) cells of the extended tables, None if no block has a table


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
    n_sets = tree.family.n_sets
    if tree.components.whole:
        forest = one_block(
            tree.n_variables
        )  # the binary forest would take several times the memory of the model
    else:
        forest = cut(tree.program, tree.program.roots, free=True, largest=tree.n_variables)
    size = forest.size
    offset = np.concatenate([[0], np.cumsum(size + 1)]).astype(np.int64)
    maker = _Cells(forest, offset, int(tree.family.set_offset[-1]))
    blocks = []
    for nodes in _by_size(np.arange(forest.n_blocks), size):
        n_loose = int(size[nodes[0]])
        members = forest.variables[forest.start[nodes][:, None] + np.arange(n_loose)]
        table = maker.table(nodes, n_loose + 1)
        cells = _place(maker.message(nodes, n_loose + 1))
        blocks.append(Blocks(nodes, _place(members), cells, None if table is None else _place(table)))
    roots = [Roots(r, maker.message(r, int(size[r[0]]) + 1)) for r in _by_size(forest.roots, size)]
    set_node = np.argsort(forest.table, kind="stable")[len(size) - n_sets :]
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


# -- passes ------------------------------------------------------------------------------------------------------------


def sorted_down(theta: Float64) -> Float64:
    """Log-odds in decreasing order."""
    return np.sort(theta, axis=-1)[..., ::-1]


def prefix_sums(t: Float64) -> Float64:
    """Best weight of every count 0..n from sorted log-odds: forced variables (inf) enter with weight one."""
    out = np.zeros((*t.shape[:-1], t.shape[-1] + 1))
    if t.size == 0:
        return out
    if not (t[..., 0] == math.inf).any():
        np.cumsum(t, axis=-1, out=out[..., 1:])
        return out
    forced = (t == math.inf).sum(-1, keepdims=True)
    np.cumsum(np.where(t == math.inf, 0.0, t), axis=-1, out=out[..., 1:])
    out[np.arange(out.shape[-1]) < forced] = -math.inf
    return out


def largest(theta: Float64, t: Float64, count: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which variables are the ``count`` largest; among equals the first ones. ``t``: theta in decreasing order."""
    if theta.shape[-1] == 0:
        return np.zeros(theta.shape, bool)
    at = np.maximum(count - 1, 0)[..., None]
    threshold = np.where(count[..., None] > 0, np.take_along_axis(t, at, -1), math.inf)
    on = theta > threshold
    missing = count - np.count_nonzero(on, axis=-1)
    ties = theta == threshold
    if np.array_equal(missing, np.count_nonzero(ties, axis=-1)):
        return np.asarray(on | ties)
    return np.asarray(on | (ties & (np.cumsum(ties, axis=-1) <= missing[..., None])))


def block_values(theta: Float64, g: Float64) -> Float64:
    """Best weight with each variable off and on, (..., n, 2).

    ``g`` (..., n + 1) is the best weight of every count. With log-odds sorted t_1 >= ... >= t_n, for rank r::

        M(1) = max( max_{k >= r} g(k),  t_r + max_{1 <= k < r} (g(k) - t_k) )
        M(0) = max( max_{k < r} g(k),  -t_r + max_{r <= k < n} (g(k) + t_{k+1}) )
    """
    order = np.argsort(-theta, axis=-1)
    t = np.take_along_axis(theta, order, -1)
    none = np.full((*t.shape[:-1], 1), -math.inf)
    with np.errstate(invalid="ignore"):
        # inf - inf arises only where a count is impossible, so it means -inf
        removed = _impossible(g[..., 1:] - t)
        added = _impossible(g[..., :-1] + t)
        swapped_in = np.concatenate([none, np.maximum.accumulate(removed, axis=-1)[..., :-1]], -1)
        swapped_out = np.concatenate([_from_right(added)[..., 1:], none], -1)
        on = np.maximum(_from_right(g)[..., 1:], _impossible(t + swapped_in))
        off = np.maximum(np.maximum.accumulate(g, axis=-1)[..., :-1], _impossible(swapped_out - t))
    out = np.empty((*theta.shape, 2))
    np.put_along_axis(out[..., 0], order, off, -1)
    np.put_along_axis(out[..., 1], order, on, -1)
    return out


def _from_right(values: Float64) -> Float64:
    return np.maximum.accumulate(values[..., ::-1], axis=-1)[..., ::-1]


def _impossible(values: Float64) -> Float64:
    values[np.isnan(values)] = -math.inf
    return values


def free_value(theta: Float64) -> Float64:
    """Best weight of variables without any table, (...,)."""
    return np.asarray(np.where(np.isfinite(theta), np.maximum(theta, 0.0), 0.0).sum(-1))


def free_max_marginals(theta: Float64) -> Float64:
    """What a free variable loses when off and when on against its better value, (..., n, 2)."""
    return np.stack([-np.maximum(theta, 0.0), np.minimum(theta, 0.0)], -1)


@dataclass(frozen=True, eq=False)
class Upward:
    """Messages of a batch of models."""

    messages: Float64  # (B, n_cells + 1), the last cell -inf
    sorted: tuple[Float64, ...]  # per entry of plan.blocks: log-odds (B, R, n) in decreasing order


def extended(plan: Plan, tables: Float64) -> Float64:
    """Tables with a zero behind them, which stands for no table; one block has no use for it."""
    return np.concatenate([tables, np.zeros((len(tables), 1))], axis=1) if plan.n_nodes > 1 else tables


def upward(plan: Plan, nu: Float64, tables: Float64) -> Upward:
    """Messages of all nodes from log-odds (B, D) and extended tables (1 or B, T + 1)."""
    batch = len(nu)
    messages = np.full((batch, plan.n_cells + 1), -math.inf)
    ranked = []
    for blocks in plan.blocks:
        t = sorted_down(nu[:, *blocks.variables])
        out = prefix_sums(t)
        if blocks.table_cells is not None:
            out += tables[:, *blocks.table_cells]
        messages[:, *blocks.cells] = out
        ranked.append(t)
    for step in plan.steps:
        merge = convolve_rows if step.large else convolve_batch
        out = merge(messages[:, step.left_cells], messages[:, step.right_cells])
        if step.table_cells is not None:
            out += tables[:, step.table_cells]
        messages[:, step.cells] = out  # padding is -inf again
    return Upward(messages, tuple(ranked))


Counts = NDArray[np.int64]


def root_maxima(plan: Plan, messages: Float64) -> list[Float64]:
    """Best weight of every component, (B, R) per entry of ``plan.roots``."""
    return [messages[:, roots.cells].max(-1) for roots in plan.roots]


def decode(plan: Plan, up: Upward, nu: Float64, states: NDArray[np.uint8]) -> None:
    """Write a best configuration of the variables in sets to ``states`` (B, D)."""
    messages = up.messages
    counts = np.zeros((len(messages), plan.n_nodes), np.int64)
    for roots in plan.roots:
        counts[:, roots.nodes] = messages[:, roots.cells].argmax(-1)
    for step in reversed(plan.steps):
        _split(step, messages, counts)
    for blocks, t in zip(plan.blocks, up.sorted):
        theta = nu[:, *blocks.variables]
        states[:, *blocks.variables] = largest(theta, t, counts[:, blocks.nodes])


def diagonal(a: Float64, b: Float64, z: int) -> tuple[int, Float64]:
    """First i and the values ``a[i] + b[z - i]`` of all possible i."""
    first, last = max(0, z - len(b) + 1), min(len(a) - 1, z)
    return first, a[first : last + 1] + b[z - last : z - first + 1][::-1]


def _split(step: Merges, messages: Float64, counts: Counts) -> None:
    a, b = messages[:, step.left_cells], messages[:, step.right_cells]
    z = counts[:, step.nodes]
    partner = z[..., None] - np.arange(a.shape[-1])
    inside = (partner >= 0) & (partner < b.shape[-1])
    other = np.take_along_axis(b, np.where(inside, partner, 0), -1)
    i = np.where(inside, a + other, -math.inf).argmax(-1)  # the smallest of equals
    counts[:, step.left] = i
    counts[:, step.right] = z - i


def downward(plan: Plan, messages: Float64, tables: Float64, rest: list[Float64]) -> Float64:
    """Outside messages, (B, n_cells + 1), the node's own table not included.

    ``rest``: what the roots start from, (B, R) per entry of ``plan.roots``.
    """
    down = np.full(messages.shape, -math.inf)
    for roots, start in zip(plan.roots, rest):
        down[:, roots.cells] = start[..., None]
    for step in reversed(plan.steps):
        above = down[:, step.cells]
        if step.table_cells is not None:
            above = above + tables[:, step.table_cells]
        correlated = correlate_rows if step.large else correlate_batch
        a, b = messages[:, step.left_cells], messages[:, step.right_cells]
        down[:, step.left_cells] = correlated(above, b)
        down[:, step.right_cells] = correlated(above, a)
        down[:, -1] = -math.inf  # padded columns ended up there
    return down


def block_max_marginals(plan: Plan, messages: Float64, down: Float64, nu: Float64, out: Float64) -> None:
    """Max-marginals of the variables in sets, within their component, to ``out`` (B, D, 2)."""
    for blocks in plan.blocks:
        g = messages[:, *blocks.cells] + down[:, *blocks.cells]
        out[:, *blocks.variables] = block_values(nu[:, *blocks.variables], g)
