"""The order in which array code passes messages: many nodes of similar size at a time.

Messages of all nodes live in one flat vector per direction. A step computes the messages of a bucket of nodes, padded
to a common width, from gathered neighbours; padding reads cell 0, which always holds zero. Upward steps run by
increasing height, downward steps by increasing depth, and each direction has a layout of its own, so that every
step writes one contiguous slice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import Ints
from ...memo import once
from .tree import TreeProgram


@dataclass(frozen=True, eq=False)
class UpStep:
    """``count`` nodes whose messages of length ``width`` go to ``storage[start:start + count * width]``."""

    nodes: Ints
    left: Ints  # (count, left_width) cells of the left children's messages
    right: Ints
    table: Ints  # (count, width) cells of the extended tables
    start: int
    width: int


@dataclass(frozen=True, eq=False)
class DownStep:
    """``count`` nodes; each needs its parent's down message times table, and its sibling's up message."""

    nodes: Ints
    up_rank: Ints  # place in the order of the upward steps; the number of internal nodes for a leaf
    down_rank: int  # place of the first node in the order of the downward steps, roots first
    parent_rank: Ints  # the parents' places in that order
    parent_cells: Ints  # (count, parent_width) cells of the parents' weighted down messages
    sibling_cells: Ints  # (count, sibling_width) cells of the siblings' up messages
    own_cells: Ints  # (count, width) cells of the own up message
    table: Ints  # (count, width) cells of the extended tables
    start: int
    width: int


@dataclass(frozen=True, eq=False)
class Schedule:
    """Steps of both passes. The extended tables are the packed tables followed by [0, -inf]."""

    n_internal: int
    n_placed: int  # nodes that get a down message: all but the free leaves
    rounding: float  # units of round-off that sums of positive terms gather, both passes together
    levels: int  # length of the longest way up and down again
    up: tuple[UpStep, ...]
    up_length: int
    roots: DownStep
    down: tuple[DownStep, ...]
    down_length: int
    leaf_down: Ints  # (n_leaves, 2) cells of the leaves' down messages; cell 0 for a free leaf
    set_up: Ints  # (table_total,) cells of the sets' up messages
    set_down: Ints  # (table_total,) cells of the sets' down messages


def full_schedule(program: TreeProgram) -> Schedule:
    """The schedule of messages of every count, laid down once per program."""
    return once(program, "full schedule", lambda: build_schedule(program))


def build_schedule(program: TreeProgram, cap: Ints | None = None) -> Schedule:
    """Buckets of nodes with equal height (depth) and sizes alike up to a power of two.

    ``cap[node]`` is the largest count that the tables above allow (see `count_caps`); messages stop there.
    """
    n, total = program.n_leaves, program.n_nodes
    parent = program.parent
    size = program.size if cap is None else np.minimum(program.size, np.maximum(cap, 1))
    left, right = program.left.astype(np.int64), program.right.astype(np.int64)
    height, depth = _heights(program), _depths(program)
    octave = np.ceil(np.log2(np.maximum(size, 1))).astype(np.int64)

    up_cell = np.zeros(total, np.int64)
    up_cell[:n] = 1 + 2 * np.arange(n)
    cursor = 1 + 2 * n
    up_steps: list[UpStep] = []
    up_rank = np.full(total, total - n, np.int64)
    ranked = 0
    internal = np.arange(n, total)
    small, large = np.minimum(octave[left], octave[right]), np.maximum(octave[left], octave[right])
    for bucket in _buckets(internal, np.stack([height[internal], small, large])):
        a, b = left[bucket - n], right[bucket - n]
        width = int(size[bucket].max()) + 1
        up_cell[bucket] = cursor + width * np.arange(len(bucket))
        up_rank[bucket] = ranked + np.arange(len(bucket))
        ranked += len(bucket)
        up_steps.append(
            UpStep(
                bucket,
                _cells(up_cell[a], size[a]),
                _cells(up_cell[b], size[b]),
                _table_cells(program, size, bucket, width),
                cursor,
                width,
            )
        )
        cursor += width * len(bucket)
    up_length = cursor

    sibling = np.full(total, -1, np.int64)
    sibling[left], sibling[right] = right, left
    down_cell = np.zeros(total, np.int64)
    down_rank = np.zeros(total, np.int64)
    cursor, placed = 1, 0

    def step(bucket: Ints) -> DownStep:
        nonlocal cursor, placed
        up, beside = parent[bucket], sibling[bucket]
        width = int(size[bucket].max()) + 1 if len(bucket) else 1
        down_cell[bucket] = cursor + width * np.arange(len(bucket))
        down_rank[bucket] = placed + np.arange(len(bucket))
        top = up < 0
        made = DownStep(
            bucket,
            up_rank[bucket],
            placed,
            down_rank[up],
            _cells(np.where(top, 0, down_cell[up]), np.where(top, -1, size[up])),
            _cells(np.where(top, 0, up_cell[beside]), np.where(top, -1, size[beside])),
            _cells(up_cell[bucket], size[bucket], width),
            _table_cells(program, size, bucket, width),
            cursor,
            width,
        )
        cursor += width * len(bucket)
        placed += len(bucket)
        return made

    roots = step(program.roots)
    below = np.flatnonzero(parent >= 0)
    keys = np.stack([depth[below], octave[parent[below]], octave[sibling[below]], octave[below]])
    down_steps = [step(bucket) for bucket in _buckets(below, keys)]

    free = parent[:n] < 0
    leaf_down = np.where(free[:, None], 0, down_cell[:n, None] + np.arange(2))
    set_size = np.diff(program.set_offset)
    within = np.arange(program.table_total) - np.repeat(program.set_offset[:-1], set_size)
    owner = np.repeat(program.set_node, set_size)
    # A sum of m positive terms is off by up to m units of round-off (long ones are done by FFT and certified there);
    # errors of different nodes are independent and add in quadrature. Four standard deviations, two passes.
    terms = np.minimum(np.minimum(size[left], size[right]), 64) + 4.0
    return Schedule(
        total - n,
        placed,
        float(8.0 * np.sqrt(np.sum(terms * terms))),
        int(height.max(initial=0) + depth.max(initial=0)),
        tuple(up_steps),
        up_length,
        roots,
        tuple(down_steps),
        cursor,
        leaf_down,
        np.where(within <= size[owner], up_cell[owner] + within, 0),
        np.where(within <= size[owner], down_cell[owner] + within, 0),
    )


def _heights(program: TreeProgram) -> Ints:
    height = [0] * program.n_nodes
    for node, (a, b) in enumerate(zip(program.left.tolist(), program.right.tolist()), program.n_leaves):
        height[node] = 1 + max(height[a], height[b])
    return np.array(height, np.int64)


def _depths(program: TreeProgram) -> Ints:
    depth = [0] * program.n_nodes
    parent = program.parent.tolist()
    for node in range(program.n_nodes - 1, -1, -1):
        if parent[node] >= 0:
            depth[node] = depth[parent[node]] + 1
    return np.array(depth, np.int64)


def _buckets(nodes: Ints, keys: Ints) -> list[Ints]:
    """`nodes` split into runs of equal keys, first key leading."""
    if len(nodes) == 0:
        return []
    order = np.lexsort(keys[::-1])
    sorted_keys = keys[:, order]
    breaks = np.flatnonzero((sorted_keys[:, 1:] != sorted_keys[:, :-1]).any(0)) + 1
    return list(np.split(nodes[order], breaks))


def _cells(start: Ints, size: Ints, width: int | None = None) -> Ints:
    """Cells ``start .. start + size``, padded with cell 0 to the widest."""
    if width is None:
        width = int(size.max()) + 1 if len(size) else 1
    steps = np.arange(max(width, 1))
    return np.where(steps <= size[:, None], start[:, None] + steps, 0)


def count_caps(program: TreeProgram, highest: Ints) -> Ints:
    """Largest count that can matter at every node; ``highest[s]`` is the largest count that set s allows."""
    own = program.size.copy()
    own[program.set_node] = np.minimum(own[program.set_node], highest)
    cap = own.tolist()
    parent = program.parent.tolist()
    for node in range(program.n_nodes - 1, -1, -1):
        if parent[node] >= 0:
            cap[node] = min(cap[node], cap[parent[node]])
    return np.array(cap, np.int64)


def _table_cells(program: TreeProgram, size: Ints, bucket: Ints, width: int) -> Ints:
    """Cells of the extended tables: own table, the constant 0 where there is none, -inf on padding."""
    total = program.table_total
    steps = np.arange(width)
    offset = np.full(len(bucket), -1, np.int64)
    inner = bucket >= program.n_leaves
    offset[inner] = program.table_offset[bucket[inner] - program.n_leaves]
    cells = np.where(offset[:, None] >= 0, offset[:, None] + steps, total)
    return np.where(steps <= size[bucket][:, None], cells, total + 1)
