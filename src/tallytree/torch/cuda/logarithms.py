"""Both passes in logarithms: right for tables and log-odds of any size, and for the tails of counts.

    up_p(c) = log f_p(c) + log sum_i exp(up_l(i) + up_r(c - i))
    down_l(i) = log sum_j exp((f_p down_p)(i + j) + up_r(j))

The last rung on a device; two exponentials per product, O(D^2) per model.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .. import log_tree
from ..structure import Structure
from . import tree_kernels as kernels
from .flat import stride
from .tree import Plan, Step, lanes, plan_of, stretches


class LogAnswer(NamedTuple):
    """Log Z (B,), posterior log-odds (B, D) and log-probabilities of the sets' counts (B, S)."""

    log_z: Tensor
    odds: Tensor
    log_beliefs: Tensor


def solve(structure: Structure, logits: Tensor, tables: Tensor) -> LogAnswer:
    """Log-odds (B, D) and packed group tables (1 or B, T), as many rows at a time as memory allows."""
    plan = plan_of(structure, logits.device)
    parts = [_solve(structure, plan, x, own) for x, own in stretches(structure, logits, tables)]
    return LogAnswer(*(torch.cat(found) for found in zip(*parts)))


def upward(structure: Structure, logits: Tensor, tables: Tensor, *, best: bool = False) -> Tensor:
    """Upward messages (B, cells) in the layout of the plan, or those of the best; cell 0 is impossible."""
    plan = plan_of(structure, logits.device)
    storage = logits.new_full((len(logits), plan.schedule.up_length), -math.inf)
    leaves = log_tree.leaf_weights(structure, logits, tables)
    storage[:, 1 : 1 + leaves[0].numel()] = leaves.reshape(len(logits), -1)
    sets = log_tree.set_tables(structure, tables)
    for step in plan.up:
        _merged(step, storage, storage, sets, storage, storage, 1, best=best)
    return storage


def _solve(structure: Structure, plan: Plan, logits: Tensor, tables: Tensor) -> LogAnswer:
    batch, n = logits.shape
    up = upward(structure, logits, tables)
    sets = log_tree.set_tables(structure, tables)
    down = logits.new_full((batch, plan.schedule.down_length), -math.inf)
    weighted = torch.full_like(down, -math.inf)
    log_z = logits.new_zeros(batch)
    if plan.roots is not None:
        roots = structure.schedule.roots
        stop = roots.start + len(roots.nodes) * roots.width
        down[:, roots.start : stop] = 0.0
        ends = sets.new_tensor([0.0, -math.inf]).expand(len(sets), 2)
        own = torch.cat([sets, ends], -1)[:, torch.as_tensor(roots.table, device=sets.device)]
        weighted[:, roots.start : stop] = own.reshape(len(sets), -1)
        heads = up[:, torch.as_tensor(roots.own_cells, device=up.device)]
        log_z = log_z + log_tree.log_sum(heads).sum(-1)
    for step in plan.down:
        _merged(step, up, weighted, sets, down, weighted, -1)
    leaves = up[:, 1 : 1 + 2 * n].view(batch, n, 2)
    log_z = log_z + torch.where(plan.free, log_tree.log_sum(leaves), 0.0).sum(-1)
    joint = leaves + torch.where(plan.free[:, None], 0.0, down[:, plan.leaf_down])
    # A state that cannot be decides by itself; where neither can be, nothing is possible and log Z says so.
    off, on = joint[..., 0], joint[..., 1]
    sure = off == -math.inf
    alone = torch.where(on == -math.inf, 0.0, math.inf)
    odds = torch.where(sure, alone, on - torch.where(sure, 0.0, off))
    return LogAnswer(log_z, odds, _normalised(plan, up[:, plan.set_up] + down[:, plan.set_down]))


def _merged(
    step: Step,
    a: Tensor,
    b: Tensor,
    tables: Tensor,
    out: Tensor,
    weighted: Tensor,
    sign: int,
    *,
    best: bool = False,
) -> None:
    pairs = len(out) * step.size
    across, together = lanes(step.width)
    tables = tables.contiguous()
    chunks = -(-step.width // across)
    kernels.log_merge[(-(-pairs // together) * chunks,)](
        a, b, tables, out, weighted, step.nodes, pairs, step.size, a.stride(0), b.stride(0),
        stride(tables), out.stride(0), step.start, step.width, chunks,
        SIGN=sign, UP=sign > 0, BEST=best, P=together, C=across, num_warps=across * together // 64,
    )  # fmt: skip


def _normalised(plan: Plan, beliefs: Tensor) -> Tensor:
    """Every set's own logarithms less those of their sum."""
    index = plan.set_of_cell.expand_as(beliefs)
    top = beliefs.new_full((len(beliefs), plan.n_sets), -math.inf).scatter_reduce(1, index, beliefs, "amax")
    anchor = torch.where(torch.isfinite(top), top, 0.0)
    weight = torch.exp(beliefs - anchor.gather(1, index))
    total = torch.zeros_like(top).index_add_(1, plan.set_of_cell, weight)
    scale = anchor + torch.where(total > 0.0, total.log(), 0.0)
    return beliefs - scale.gather(1, index)
