"""Trees of groups on the device: both passes in plain positive numbers, with a certificate against underflow.

    up_p = f_p . (up_l * up_r),    down_l = correlate(f_p . down_p, up_r),    belief = up . down

Messages up sum to one; messages down have product one with them. All arithmetic but the merges is plain PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...memo import once
from ...structure.nested.schedule import Schedule
from ...structure.nested.tree import TreeProgram
from .. import log_tree
from ..structure import Structure
from . import tree_kernels as kernels
from .flat import stride

# Doubles reach down to 1e-308. While no down entry exceeds 1e80 and <up, down> = 1, what underflows is worth less than
# 1e-220 of Z, and a leaf's down entries above 1e-100 are right to the last digits.
LARGEST_DOWN, SMALLEST_DOWN, FAINTEST = 1e80, 1e-100, -230.0
_UNIT_ROUNDOFF = 2.0**-53
_STORED = 1 << 27  # doubles that the messages of one batch may take


# -- the schedule as tensors on a device: where every message starts and how long it is ------------------------------


class Step(NamedTuple):
    """A bucket of nodes (count, 7), see :mod:`.tree_kernels`; where its messages go, and its nodes' places."""

    nodes: Tensor
    start: int
    width: int
    size: int
    tables: bool
    first: int  # of the bucket's nodes in the order of the pass


class Plan(NamedTuple):
    """Both passes; `leaf_down` (D, 2) and the cells of the sets address the storages.

    `heads` and the `children` of every bucket, (count, 7) from the top down, are what draws need: nodes, their
    children, and where the upward messages of these lie.
    """

    schedule: Schedule
    up: tuple[Step, ...]
    roots: Step | None
    down: tuple[Step, ...]
    leaf_down: Tensor
    free: Tensor
    set_up: Tensor
    set_down: Tensor
    set_of_cell: Tensor
    n_sets: int
    heads: Tensor
    children: tuple[Tensor, ...]
    n_nodes: int


def plan_of(structure: Structure, device: torch.device) -> Plan:
    """The plan of a structure on a device, made once and kept with its tree."""
    return once(structure.tree.program, f"plan on {device}", lambda: _plan(structure, device))


def _plan(structure: Structure, device: torch.device) -> Plan:
    schedule, program = structure.schedule, structure.tree.program
    table = np.concatenate([np.full(program.n_leaves, -1, np.int64), program.table_offset])
    up_cell = np.zeros(program.n_nodes, np.int64)  # where the upward message of every node starts
    up_cell[: program.n_leaves] = 1 + 2 * np.arange(program.n_leaves)
    for bucket in schedule.up:
        up_cell[bucket.nodes] = bucket.start + bucket.width * np.arange(len(bucket.nodes))

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
    heads = np.flatnonzero(program.parent < 0)
    own = np.stack([up_cell[heads], program.size[heads] + 1], 1)
    return Plan(
        schedule,
        tuple(up),
        head,
        tuple(down),
        put(schedule.leaf_down),
        put(schedule.leaf_down[:, 0] == 0, torch.bool),
        put(schedule.set_up),
        put(schedule.set_down),
        put(np.repeat(np.arange(sets), np.diff(program.set_offset))),
        sets,
        put(np.hstack([heads[:, None]] * 3 + [own, own])),  # without a sibling; see `split`
        tuple(put(_children(program, up_cell, bucket.nodes)) for bucket in reversed(schedule.up)),
        program.n_nodes,
    )


def _children(program: TreeProgram, cell: Any, nodes: Any) -> Any:
    a, b = (side[nodes - program.n_leaves].astype(np.int64) for side in (program.left, program.right))
    swap = program.size[a] > program.size[b]
    a, b = np.where(swap, b, a), np.where(swap, a, b)
    return np.stack([nodes, a, b, cell[a], program.size[a] + 1, cell[b], program.size[b] + 1], 1)


def _extents(cells: Any) -> Any:
    """Start and length (count, 2) of messages whose cells are padded with 0."""
    return np.stack([cells[:, 0], (cells > 0).sum(1)], 1)


# -- both passes -----------------------------------------------------------------------------------------------------


class Moves(NamedTuple):
    """A direction: of the log-weights of both states of the leaves (B, D, 2) and of the sets' log-tables (B, S)."""

    leaves: Tensor
    tables: Tensor


class Moved(NamedTuple):
    """How marginals (B, D) and beliefs (B, S) move."""

    marginals: Tensor
    beliefs: Tensor


class Pass(NamedTuple):
    """Log Z (B,), marginals (B, D), the sets' beliefs (B, S), `bound` (B,), their motion, messages up (B, cells)."""

    log_z: Tensor
    marginals: Tensor
    beliefs: Tensor
    bound: Tensor
    moved: Moved | None
    storage: Tensor


class Upward(NamedTuple):
    """Messages (B, cells), their motion, log Z and the log of the smallest mass that a step kept."""

    storage: Tensor
    motion: Tensor | None
    log_z: Tensor
    faintest: Tensor


def stretches(structure: Structure, logits: Tensor, *others: Tensor | None) -> Iterator[Any]:
    """Rows that fit into memory together, with what belongs to them; what all rows share stays."""
    schedule = structure.schedule
    size = max(1, _STORED // max(1, schedule.up_length + 2 * schedule.down_length))
    total = len(logits)
    for i in range(0, total, size):
        own = (t if t is None or len(t) < total else t[i : i + size] for t in others)
        yield logits[i : i + size], *own


def solve(structure: Structure, logits: Tensor, group_tables: Tensor, moves: Moves | None = None) -> Pass:
    """Both passes of log-odds (B, D) and packed group tables (1 or B, T)."""
    plan = plan_of(structure, logits.device)
    tables = log_tree.set_tables(structure, group_tables)
    factors, tops = _scaled(plan, tables)
    up = _upward(structure, plan, logits, factors, tops, group_tables, moves)
    down = _Downward(plan, up, factors, None if moves is None else moves.tables)
    return _collect(plan, logits, tables, up, down)


def _upward(
    structure: Structure,
    plan: Plan,
    logits: Tensor,
    factors: Tensor,
    tops: Tensor,
    group_tables: Tensor,
    moves: Moves | None,
) -> Upward:
    """All messages towards the roots."""
    batch = len(logits)
    leaves = log_tree.leaf_weights(structure, logits, group_tables)
    top = torch.logaddexp(leaves[..., 0], leaves[..., 1])
    weights = torch.exp(leaves - torch.where(torch.isfinite(top), top, 0.0)[..., None])
    n_cells = 2 * logits.shape[-1]
    storage = logits.new_zeros(batch, plan.schedule.up_length)
    storage[:, 1 : 1 + n_cells] = weights.reshape(batch, n_cells)
    motion = None
    if moves is not None:
        motion = torch.zeros_like(storage)
        motion[:, 1 : 1 + n_cells] = (weights * moves.leaves).reshape(batch, n_cells)
    internal = sum(step.size for step in plan.up)
    log_mass = logits.new_zeros(batch, internal)
    for step in plan.up:
        merged(step, storage, storage, storage, 1)
        if motion is not None:
            merged(step, motion, storage, motion, 1)
            merged(step, storage, motion, motion, 1, add=True)
        if step.tables:
            grid, lanes = _pairs(step, batch)
            push = factors if moves is None else moves.tables
            kernels.scale_up[grid](
                storage, storage if motion is None else motion, factors, push, step.nodes, log_mass,
                batch * step.size, step.size, storage.stride(0), stride(factors), stride(push), step.start, step.width,
                log_mass.stride(0), step.first, MOTION=motion is not None, **lanes,
            )  # fmt: skip
    log_z = top.sum(-1) + log_mass.sum(-1) + tops.sum(-1)
    faintest = log_mass.amin(-1) if internal else logits.new_zeros(batch)
    return Upward(storage, motion, log_z, faintest)


def merged(step: Step, a: Tensor, b: Tensor, out: Tensor, sign: int, *, add: bool = False) -> None:
    """Merge messages of a into messages of b, into the step's part of `out`."""
    pairs = len(out) * step.size
    for offset, chunks, across in _parts(step.width):
        together = max(1, 128 // across)
        kernels.merge[(-(-pairs // together) * chunks,)](
            a, b, out, step.nodes, pairs, step.size, a.stride(0), b.stride(0), out.stride(0), step.start, step.width,
            offset, chunks, SIGN=sign, ADD=add, P=together, C=across, num_warps=across * together // 64,
        )  # fmt: skip


def _parts(width: int) -> list[tuple[int, int, int]]:
    """Offset, number and length of the stretches of a message; widths are often a power of two and one more."""
    if width <= 8:
        return [(0, 1, 8)]
    across = 64 if width < 256 else 256
    whole, rest = divmod(width, across)
    if whole and 0 < rest <= 8:
        return [(0, whole, across), (whole * across, 1, 8)]
    return [(0, whole + (rest > 0), across)]


def lanes(width: int) -> tuple[int, int]:
    """Entries across and messages together in a program; few choices, since each is compiled."""
    across = 8 if width <= 8 else 64 if width <= 64 else 256
    return across, max(1, 128 // across)


def _pairs(step: Step, batch: int) -> tuple[tuple[int], dict[str, int]]:
    """Grid and shape of the programs that scale messages, all of a message in one program."""
    across, together = lanes(step.width)
    return (-(-batch * step.size // together),), {
        "P": together,
        "C": across,
        "num_warps": across * together // 64,
    }


class _Downward:
    """All messages towards the leaves."""

    def __init__(self, plan: Plan, up: Upward, factors: Tensor, pushed: Tensor | None) -> None:
        batch = len(up.storage)
        self.up, self.factors = up, factors
        self.pushed = factors if pushed is None else pushed
        self.storage = factors.new_zeros(batch, plan.schedule.down_length)
        self.weighted = torch.zeros_like(self.storage)
        moving = up.motion is not None
        self.motion = torch.zeros_like(self.storage) if moving else None
        self.weighted_motion = torch.zeros_like(self.storage) if moving else None
        self.pairing = factors.new_zeros(batch, plan.schedule.n_placed)
        self.reach = factors.new_zeros(batch, plan.schedule.n_placed)
        if plan.roots is not None:
            step = plan.roots
            self.storage[:, step.start : step.start + step.size * step.width] = 1.0
            self._place(step)
        for step in plan.down:
            merged(step, up.storage, self.weighted, self.storage, -1)
            if up.motion is not None and self.motion is not None and self.weighted_motion is not None:
                merged(step, up.motion, self.weighted, self.motion, -1)
                merged(step, up.storage, self.weighted_motion, self.motion, -1, add=True)
            self._place(step)

    def _place(self, step: Step) -> None:
        grid, lanes = _pairs(step, len(self.storage))
        up = self.up.storage
        kernels.scale_down[grid](
            up, self.storage, self.weighted, self.storage if self.motion is None else self.motion,
            self.storage if self.weighted_motion is None else self.weighted_motion, self.factors, self.pushed,
            step.nodes, self.pairing, self.reach, len(up) * step.size, step.size, up.stride(0),
            self.storage.stride(0), stride(self.factors), stride(self.pushed), step.start, step.width,
            self.pairing.stride(0), step.first, MOTION=self.motion is not None, **lanes,
        )  # fmt: skip

    @property
    def sound(self) -> Tensor:
        """Rows (B,) in which nothing that matters can have underflowed on the way down."""
        if not self.pairing.shape[-1]:
            return torch.ones(len(self.pairing), dtype=torch.bool, device=self.pairing.device)
        return (self.reach.amax(-1) < LARGEST_DOWN) & (self.pairing.amin(-1) > FAINTEST)


def _collect(plan: Plan, logits: Tensor, tables: Tensor, up: Upward, down: _Downward) -> Pass:
    batch, n = logits.shape
    leaf_up = up.storage[:, 1 : 1 + 2 * n].view(batch, n, 2)
    leaf_down = torch.where(plan.free[:, None], 1.0, down.storage[:, plan.leaf_down])
    joint = leaf_up * leaf_down
    mass = joint.sum(-1)
    marginals = joint[..., 1] / mass
    u, d = up.storage[:, plan.set_up], down.storage[:, plan.set_down]
    beliefs = u * d
    open_leaf = (leaf_up > 0.0).all(-1) & ~plan.free
    sound = down.sound & (up.faintest > FAINTEST)
    sound = sound & ~(open_leaf & ~(leaf_down.amin(-1) > SMALLEST_DOWN)).any(-1) & torch.isfinite(up.log_z)
    size = 8.0 + _largest(logits) + _largest(tables)
    bound = torch.where(sound, _UNIT_ROUNDOFF * (8.0 * (n + plan.schedule.rounding) + size), math.inf)
    if up.motion is None or down.motion is None:
        return Pass(up.log_z, marginals, beliefs, bound, None, up.storage)
    move_up = up.motion[:, 1 : 1 + 2 * n].view(batch, n, 2)
    move_down = down.motion[:, plan.leaf_down]
    change = move_up * leaf_down + leaf_up * torch.where(plan.free[:, None], 0.0, move_down)
    moved = (change[..., 1] - marginals * change.sum(-1)) / mass
    change = up.motion[:, plan.set_up] * d + u * down.motion[:, plan.set_down]
    total = change.new_zeros(batch, plan.n_sets).index_add_(1, plan.set_of_cell, change)
    motion = Moved(moved, change - beliefs * total[:, plan.set_of_cell])
    return Pass(up.log_z, marginals, beliefs, bound, motion, up.storage)


def _scaled(plan: Plan, log_tables: Tensor) -> tuple[Tensor, Tensor]:
    """exp(table - its largest entry) of all sets (1 or B, S), and these entries (1 or B, sets)."""
    index = plan.set_of_cell.expand_as(log_tables)
    tops = log_tables.new_full((len(log_tables), plan.n_sets), -math.inf)
    tops = tops.scatter_reduce(1, index, log_tables, "amax")
    # A table that allows nothing stays zero.
    tops = torch.where(torch.isfinite(tops), tops, 0.0)
    return torch.exp(log_tables - tops.gather(1, index)).contiguous(), tops


def _largest(values: Tensor) -> Tensor:
    """Size of the largest finite entry of every row."""
    if not values.shape[-1]:
        return values.new_zeros(len(values))
    return torch.where(torch.isfinite(values), values.abs(), 0.0).amax(-1)
