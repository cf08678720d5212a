"""The schedule of a tree as tensors on a device: where every message starts and how long it is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...memo import once
from ..structure import Structure


class Step(NamedTuple):
    """A bucket of nodes (count, 7), see :mod:`.merge_kernels`; where its messages go, and its nodes' places."""

    nodes: Tensor
    start: int
    width: int
    size: int
    tables: bool
    first: int  # of the bucket's nodes in the order of the pass


class Plan(NamedTuple):
    """Both passes; `leaf_down` (D, 2) and the cells of the sets address the storages."""

    up: tuple[Step, ...]
    up_cells: int
    roots: Step | None
    down: tuple[Step, ...]
    down_cells: int
    placed: int
    leaf_down: Tensor
    free: Tensor
    set_up: Tensor
    set_down: Tensor
    set_of_cell: Tensor
    n_sets: int
    rounding: float


def plan_of(structure: Structure, device: torch.device) -> Plan:
    """The plan of a structure on a device, made once and kept with its tree."""
    return once(structure.tree.program, f"plan on {device}", lambda: _plan(structure, device))


def _plan(structure: Structure, device: torch.device) -> Plan:
    schedule, program = structure.schedule, structure.tree.program
    table = np.concatenate([np.full(program.n_leaves, -1, np.int64), program.table_offset])
    up_cell = message_cells(structure)

    def put(array: Any, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), dtype=dtype, device=device)

    def step(bucket: Any, a: Any, b: Any, first: int) -> Step:
        own = np.stack([table[bucket.nodes], program.size[bucket.nodes] + 1, up_cell[bucket.nodes]], 1)
        nodes = np.hstack([a, b, own])
        held = bool((table[bucket.nodes] >= 0).any())
        return Step(put(nodes), bucket.start, bucket.width, len(nodes), held, first)

    up, first = [], 0
    for bucket in schedule.up:
        a, b = _extents(bucket.left), _extents(bucket.right)
        # The shorter message is looped over, the longer one lies across the lanes.
        swap = (a[:, 1] > b[:, 1])[:, None]
        up.append(step(bucket, np.where(swap, b, a), np.where(swap, a, b), first))
        first += len(a)
    roots = schedule.roots
    none = np.zeros((len(roots.nodes), 2), np.int64)
    head = step(roots, none, none, roots.down_rank) if len(roots.nodes) else None
    down = [
        step(bucket, _extents(bucket.sibling_cells), _extents(bucket.parent_cells), bucket.down_rank)
        for bucket in schedule.down
    ]
    sets = len(program.set_node)
    return Plan(
        tuple(up),
        schedule.up_length,
        head,
        tuple(down),
        schedule.down_length,
        schedule.n_placed,
        put(schedule.leaf_down),
        put(schedule.leaf_down[:, 0] == 0, torch.bool),
        put(schedule.set_up),
        put(schedule.set_down),
        put(np.repeat(np.arange(sets), np.diff(program.set_offset))),
        sets,
        schedule.rounding,
    )


def _extents(cells: Any) -> Any:
    """Start and length (count, 2) of messages whose cells are padded with 0."""
    return np.stack([cells[:, 0], (cells > 0).sum(1)], 1)


def message_cells(structure: Structure) -> Any:
    """Where the upward message of every node starts."""
    program = structure.tree.program
    cell = np.zeros(program.n_nodes, np.int64)
    cell[: program.n_leaves] = 1 + 2 * np.arange(program.n_leaves)
    for step in structure.schedule.up:
        cell[step.nodes] = step.start + step.width * np.arange(len(step.nodes))
    return cell


class Family(NamedTuple):
    """What draws down a tree need: heads, and children of every bucket, (count, 7) from the top down."""

    heads: Tensor
    buckets: tuple[Tensor, ...]
    n_nodes: int


def family_of(structure: Structure, device: torch.device) -> Family:
    """Nodes, their children, and where the upward messages of the children lie; kept with the tree."""
    return once(structure.tree.program, f"family on {device}", lambda: _family(structure, device))


def _family(structure: Structure, device: torch.device) -> Family:
    schedule, program = structure.schedule, structure.tree.program
    n, cell = program.n_leaves, message_cells(structure)
    heads = np.flatnonzero(program.parent < 0)
    buckets = []
    for step in reversed(schedule.up):
        a, b = (side[step.nodes - n].astype(np.int64) for side in (program.left, program.right))
        swap = program.size[a] > program.size[b]
        a, b = np.where(swap, b, a), np.where(swap, a, b)
        found = np.stack([step.nodes, a, b, cell[a], program.size[a] + 1, cell[b], program.size[b] + 1], 1)
        buckets.append(torch.as_tensor(found, device=device))
    own, length = cell[heads], program.size[heads] + 1
    tops = np.stack([heads, heads, heads, own, length, own, length], 1)  # without a sibling; see `split`
    return Family(torch.as_tensor(tops, device=device), tuple(buckets), program.n_nodes)
