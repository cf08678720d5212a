"""Trees of groups on the device: both passes in plain positive numbers, with a certificate against underflow.

    up_p = f_p . (up_l * up_r),    down_l = correlate(f_p . down_p, up_r),    belief = up . down

Messages up sum to one; messages down have product one with them. All arithmetic but the merges is plain PyTorch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .. import log_tree
from ..structure import Structure
from . import merge_kernels as kernels
from .plan import Plan, Step, plan_of

# Doubles reach down to 1e-308. While no down entry exceeds 1e80 and <up, down> = 1, what underflows is worth less than
# 1e-220 of Z, and a leaf's down entries above 1e-100 are right to the last digits.
LARGEST_DOWN, SMALLEST_DOWN, FAINTEST = 1e80, 1e-100, -230.0
_UNIT_ROUNDOFF = 2.0**-53


class Moves(NamedTuple):
    """A direction: of the log-weights of both states of the leaves (B, D, 2) and of the sets' log-tables (B, S)."""

    leaves: Tensor
    tables: Tensor


class Moved(NamedTuple):
    """How marginals (B, D) and beliefs (B, S) move."""

    marginals: Tensor
    beliefs: Tensor


class Pass(NamedTuple):
    """Answers for B rows: log Z (B,), marginals (B, D), beliefs of the sets (B, S), `bound` (B,), their motion, and
    the upward messages (B, cells)."""

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


def solve(
    structure: Structure, logits: Tensor, tables: Tensor, moves: Moves | None, group_tables: Tensor
) -> Pass:
    """Both passes of log-odds (B, D), set log-tables (B, S) and packed group tables (B, T)."""
    plan = plan_of(structure, logits.device)
    up = upward(structure, plan, logits, tables, group_tables, moves)
    down = _Downward(plan, up, extend(tables), None if moves is None else moves.tables)
    return _collect(plan, logits, tables, up, down)


def extend(tables: Tensor) -> Tensor:
    """Log-tables, then 0 (no table) and -inf (padding)."""
    ends = tables.new_tensor([0.0, -math.inf]).expand(len(tables), 2)
    return torch.cat([tables, ends], -1)


def upward(
    structure: Structure,
    plan: Plan,
    logits: Tensor,
    tables: Tensor,
    group_tables: Tensor,
    moves: Moves | None,
) -> Upward:
    """All messages towards the roots."""
    batch = len(logits)
    leaves = log_tree.leaf_weights(structure, logits, group_tables)
    top = torch.logaddexp(leaves[..., 0], leaves[..., 1])
    weights = torch.exp(leaves - torch.where(torch.isfinite(top), top, 0.0)[..., None])
    storage = logits.new_zeros(batch, plan.up_cells)
    storage[:, 1 : 1 + weights[0].numel()] = weights.reshape(batch, -1)
    motion = None
    if moves is not None:
        motion = torch.zeros_like(storage)
        motion[:, 1 : 1 + weights[0].numel()] = (weights * moves.leaves).reshape(batch, -1)
    log_z = top.sum(-1)
    faintest = logits.new_zeros(batch)
    extended = extend(tables)
    pushed = None if moves is None else _padded(moves.tables)
    for step in plan.up:
        out = merged(step, storage, storage, storage, 1)
        change = None
        if motion is not None:
            merged(step, motion, storage, motion, 1)
            change = merged(step, storage, motion, motion, 1, add=True)
        if step.table is None:
            continue
        factor, largest = _scaled(extended[:, step.table])
        out *= factor
        mass = out.sum(-1, keepdim=True)
        inverse = 1.0 / torch.where(mass > 0.0, mass, 1.0)
        out *= inverse
        if change is not None and pushed is not None:
            change *= factor * inverse
            change += out * pushed[:, step.table]
        log_mass = mass.squeeze(-1).log()
        log_z = log_z + (log_mass + largest).sum(-1)
        faintest = torch.minimum(faintest, log_mass.amin(-1))
    return Upward(storage, motion, log_z, faintest)


def merged(step: Step, a: Tensor, b: Tensor, out: Tensor, sign: int, *, add: bool = False) -> Tensor:
    """Merge messages of a into messages of b, into the step's part of `out`; returns that part, (B, count, width)."""
    batch = len(out)
    pairs = batch * step.count
    across = min(256, max(2, 1 << (step.width - 1).bit_length()))
    together = max(1, 128 // across)
    kernels.merge[(-(-pairs // together), -(-step.width // across))](
        a, b, out, step.operands, pairs, step.count, a.stride(0), b.stride(0), out.stride(0), step.start, step.width,
        SIGN=sign, ADD=add, P=together, C=across, num_warps=4 if across * together >= 256 else 2,
    )  # fmt: skip
    return out[:, step.start : step.start + step.count * step.width].view(batch, step.count, step.width)


class _Downward:
    """All messages towards the leaves."""

    def __init__(self, plan: Plan, up: Upward, extended: Tensor, pushed: Tensor | None) -> None:
        batch = len(up.storage)
        self.up, self.extended = up, extended
        self.pushed = None if pushed is None else _padded(pushed)
        self.storage = extended.new_zeros(batch, plan.down_cells)
        self.weighted = torch.zeros_like(self.storage)
        moving = up.motion is not None
        self.motion = torch.zeros_like(self.storage) if moving else None
        self.weighted_motion = torch.zeros_like(self.storage) if moving else None
        self.largest = extended.new_zeros(batch)
        self.faintest = extended.new_zeros(batch)
        if plan.roots is not None:
            step = plan.roots.step
            part = self.storage[:, step.start : step.start + step.count * step.width]
            part.fill_(1.0)
            self._place(step, plan.roots.own, self._view(self.storage, step), None)
        for place in plan.down:
            step = place.step
            out = merged(step, up.storage, self.weighted, self.storage, -1)
            change = None
            if self.motion is not None and up.motion is not None and self.weighted_motion is not None:
                merged(step, up.motion, self.weighted, self.motion, -1)
                change = merged(step, up.storage, self.weighted_motion, self.motion, -1, add=True)
            self._place(step, place.own, out, change)

    @staticmethod
    def _view(storage: Tensor, step: Step) -> Tensor:
        part = storage[:, step.start : step.start + step.count * step.width]
        return part.view(len(storage), step.count, step.width)

    def _place(self, step: Step, own: Tensor, down: Tensor, change: Tensor | None) -> None:
        """Scale a bucket of messages, and weight them with the nodes' tables for the nodes below."""
        mine = self.up.storage[:, own]
        pairing = (mine * down).sum(-1, keepdim=True)
        inverse = 1.0 / torch.where(pairing > 0.0, pairing, 1.0)
        down *= inverse
        self.faintest = torch.minimum(self.faintest, pairing.log().flatten(1).amin(-1))
        above = self._view(self.weighted, step)
        if step.table is None:
            allowed = own > 0
            factor = allowed.to(down.dtype)
        else:
            factor, _ = _scaled(self.extended[:, step.table])
            allowed = factor > 0.0
        reach = torch.where(allowed, down, 0.0).flatten(1).amax(-1)
        self.largest = torch.maximum(self.largest, reach)
        torch.mul(down, factor, out=above)
        scale = above.amax(-1, keepdim=True)
        scale = 1.0 / torch.where(scale > 0.0, scale, 1.0)
        above *= scale
        if self.weighted_motion is None:
            return
        moving = self._view(self.weighted_motion, step)
        if change is not None:
            change *= inverse
            torch.mul(change, factor * scale, out=moving)
        if step.table is not None and self.pushed is not None:
            moving += above * self.pushed[:, step.table]


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
    sound = (down.largest < LARGEST_DOWN) & (torch.minimum(up.faintest, down.faintest) > FAINTEST)
    sound = sound & ~(open_leaf & ~(leaf_down.amin(-1) > SMALLEST_DOWN)).any(-1) & torch.isfinite(up.log_z)
    size = 8.0 + _largest(logits) + _largest(tables)
    bound = torch.where(sound, _UNIT_ROUNDOFF * (8.0 * (n + plan.rounding) + size), math.inf)
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


def _scaled(log_table: Tensor) -> tuple[Tensor, Tensor]:
    """exp(table - largest entry), and that entry; a table that allows nothing stays zero."""
    largest = log_table.amax(-1)
    largest = torch.where(torch.isfinite(largest), largest, 0.0)
    return torch.exp(log_table - largest[..., None]), largest


def _padded(pushed: Tensor) -> Tensor:
    return torch.nn.functional.pad(pushed, (0, 2))


def _largest(values: Tensor) -> Tensor:
    if not values.shape[-1]:
        return values.new_zeros(len(values))
    return torch.where(torch.isfinite(values), values.abs(), 0.0).amax(-1)
