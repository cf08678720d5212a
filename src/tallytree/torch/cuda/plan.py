"""The schedule of a tree as tensors on a device: where every message starts and how long it is."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ..structure import Structure


class Step(NamedTuple):
    """A bucket of nodes: operands (count, 4) of a merge, tables (count, width) or None, and where the answers go."""

    operands: Tensor
    table: Tensor | None
    start: int
    width: int
    count: int


class Down(NamedTuple):
    """A bucket of nodes with the cells of their own upward messages (count, width)."""

    step: Step
    own: Tensor


class Plan(NamedTuple):
    """Both passes; `table_cells` are those of all sets, `leaf_down` (D, 2) and the sets' cells address the storages."""

    up: tuple[Step, ...]
    up_cells: int
    roots: Down | None
    down: tuple[Down, ...]
    down_cells: int
    leaf_down: Tensor
    free: Tensor
    set_up: Tensor
    set_down: Tensor
    set_of_cell: Tensor
    n_sets: int
    rounding: float


_plans: WeakKeyDictionary[Structure, dict[torch.device, Plan]] = WeakKeyDictionary()


def plan_of(structure: Structure, device: torch.device) -> Plan:
    """The plan of a structure on a device, made once."""
    held = _plans.setdefault(structure, {})
    if device not in held:
        held[device] = _plan(structure, device)
    return held[device]


def _plan(structure: Structure, device: torch.device) -> Plan:
    schedule, program = structure.schedule, structure.tree.program
    total = program.table_total

    def put(array: Any, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(array), dtype=dtype, device=device)

    def tables(cells: Any) -> Tensor | None:
        return put(cells) if bool((cells < total).any()) else None

    up = []
    for step in schedule.up:
        a, b = _extents(step.left), _extents(step.right)
        # The shorter message is looped over, the longer one lies across the lanes.
        swap = a[:, 1] > b[:, 1]
        operands = np.where(swap[:, None], np.hstack([b, a]), np.hstack([a, b]))
        up.append(Step(put(operands), tables(step.table), step.start, step.width, len(operands)))
    down = []
    for place in schedule.down:
        operands = np.hstack([_extents(place.sibling_cells), _extents(place.parent_cells)])
        down.append(
            Down(
                Step(put(operands), tables(place.table), place.start, place.width, len(operands)), put(place.own_cells)
            )
        )
    roots = schedule.roots
    head = None
    if len(roots.nodes):
        none = put(np.zeros((len(roots.nodes), 4)))
        head = Down(
            Step(none, tables(roots.table), roots.start, roots.width, len(roots.nodes)), put(roots.own_cells)
        )
    return Plan(
        tuple(up),
        schedule.up_length,
        head,
        tuple(down),
        schedule.down_length,
        put(schedule.leaf_down),
        put(schedule.leaf_down[:, 0] == 0, torch.bool),
        put(schedule.set_up),
        put(schedule.set_down),
        put(np.repeat(np.arange(len(program.set_node)), np.diff(program.set_offset))),
        len(program.set_node),
        schedule.rounding,
    )


def _extents(cells: Any) -> Any:
    """Start and length (count, 2) of messages whose cells are padded with 0."""
    return np.stack([cells[:, 0], (cells > 0).sum(1)], 1)


class Family(NamedTuple):
    """What draws down a tree need: heads (count, 3), and children (count, 7) of every bucket from the top down."""

    heads: Tensor
    buckets: tuple[Tensor, ...]
    n_nodes: int


def family_of(structure: Structure, device: torch.device) -> Family:
    """Nodes, their children, and where the upward messages of the children lie."""
    schedule, program = structure.schedule, structure.tree.program
    n = program.n_leaves
    cell = np.zeros(program.n_nodes, np.int64)
    cell[:n] = 1 + 2 * np.arange(n)
    for step in schedule.up:
        cell[step.nodes] = step.start + step.width * np.arange(len(step.nodes))
    heads = np.flatnonzero(program.parent < 0)
    buckets = []
    for step in reversed(schedule.up):
        a, b = (side[step.nodes - n].astype(np.int64) for side in (program.left, program.right))
        swap = program.size[a] > program.size[b]
        a, b = np.where(swap, b, a), np.where(swap, a, b)
        found = np.stack([step.nodes, a, b, cell[a], program.size[a] + 1, cell[b], program.size[b] + 1], 1)
        buckets.append(torch.as_tensor(found, device=device))
    tops = np.stack([heads, cell[heads], program.size[heads] + 1], 1)
    return Family(torch.as_tensor(tops, device=device), tuple(buckets), program.n_nodes)
