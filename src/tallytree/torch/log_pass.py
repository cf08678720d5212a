"""Both passes in logarithms, in plain PyTorch on any device: right for tables and log-odds of any size.

    up_p(c) = log f_p(c) + log sum_i exp(up_l(i) + up_r(c - i)),    down_l(i) = log sum_j exp((f_p down_p)(i + j) + up_r(j))

The last rung on a device, and the source of count distributions with right tails; O(D^2) per model.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import log_tree
from .structure import Structure

_WORKING_CELLS = 1 << 26  # doubles of the largest intermediate tensor


class LogAnswer(NamedTuple):
    """Log Z (B,), posterior log-odds (B, D) and log-probabilities of the sets' counts (B, S)."""

    log_z: Tensor
    odds: Tensor
    log_beliefs: Tensor


def upward(structure: Structure, logits: Tensor, tables: Tensor) -> tuple[Tensor, Tensor]:
    """Upward messages (B, cells) in the layout of the schedule, cell 0 impossible; and the leaves' weights (B, D, 2)."""
    batch, n = logits.shape
    leaves = log_tree.leaf_weights(structure, logits, tables)
    storage = logits.new_full((batch, structure.schedule.up_length), -math.inf)
    storage[:, 1 : 1 + 2 * n] = leaves.reshape(batch, 2 * n)
    extended = _extended(log_tree.set_tables(structure, tables))
    for step in structure.schedule.up:
        merged = log_tree.convolve(_pick(storage, step.left), _pick(storage, step.right), step.width)
        part = (merged + _pick(extended, step.table)).reshape(batch, -1)
        storage[:, step.start : step.start + part.shape[-1]] = part
    return storage, leaves


def solve(structure: Structure, logits: Tensor, tables: Tensor) -> LogAnswer:
    """Log-odds (B, D) and packed group tables (B, T), as many rows at a time as memory allows."""
    rows = max(1, _WORKING_CELLS // _widest(structure))
    parts = [
        _solve(structure, logits[i : i + rows], tables[i : i + rows]) for i in range(0, len(logits), rows)
    ]
    return LogAnswer(*(torch.cat(found) for found in zip(*parts)))


def _solve(structure: Structure, logits: Tensor, tables: Tensor) -> LogAnswer:
    schedule = structure.schedule
    batch, n = logits.shape
    up, leaves = upward(structure, logits, tables)
    extended = _extended(log_tree.set_tables(structure, tables))
    down = logits.new_full((batch, schedule.down_length), -math.inf)
    weighted = torch.full_like(down, -math.inf)
    roots = schedule.roots
    log_z = logits.new_zeros(batch)
    if len(roots.nodes):
        width = len(roots.nodes) * roots.width
        down[:, roots.start : roots.start + width] = 0.0
        weighted[:, roots.start : roots.start + width] = _pick(extended, roots.table).reshape(batch, width)
        log_z = log_z + log_tree.log_sum(_pick(up, roots.own_cells)).sum(-1)
    for step in schedule.down:
        found = correlate(_pick(weighted, step.parent_cells), _pick(up, step.sibling_cells), step.width)
        width = found.shape[-2] * step.width
        down[:, step.start : step.start + width] = found.reshape(batch, width)
        above = found + _pick(extended, step.table)
        weighted[:, step.start : step.start + width] = above.reshape(batch, width)
    free = torch.as_tensor(schedule.leaf_down[:, 0] == 0, device=logits.device)
    message = torch.where(free[:, None], 0.0, _pick(down, schedule.leaf_down))
    joint = leaves + message
    log_z = log_z + torch.where(free, log_tree.log_sum(leaves), 0.0).sum(-1)
    # A state that cannot be decides by itself; where neither can be, nothing is possible and log Z says so.
    off, on = joint[..., 0], joint[..., 1]
    odds = torch.where(off == -math.inf, torch.where(on == -math.inf, 0.0, math.inf), on - torch.where(
        off == -math.inf, 0.0, off
    ))  # fmt: skip
    beliefs = _pick(up, schedule.set_up) + _pick(down, schedule.set_down)
    return LogAnswer(log_z, odds, _normalised(structure, beliefs))


def correlate(p: Tensor, s: Tensor, width: int) -> Tensor:
    """``log sum_j exp(p(i + j) + s(j))`` for i below `width`, over the last axis."""
    needed = width + s.shape[-1] - 1
    padded = torch.nn.functional.pad(p, (0, max(0, needed - p.shape[-1])), value=-math.inf)
    places = torch.arange(width, device=p.device)[:, None] + torch.arange(s.shape[-1], device=p.device)
    windows = padded.index_select(-1, places.reshape(-1)).reshape(*p.shape[:-1], width, s.shape[-1])
    return log_tree.log_sum(windows + s[..., None, :])


def _normalised(structure: Structure, beliefs: Tensor) -> Tensor:
    """Every set's own logarithms less those of their sum."""
    sizes = (structure.tree.family.set_size + 1).tolist()
    if not sizes:
        return beliefs
    parts = [part - log_tree.log_sum(part)[:, None] for part in beliefs.split(sizes, dim=-1)]
    return torch.cat(parts, -1)


def _widest(structure: Structure) -> int:
    """Cells of the largest intermediate tensor per row."""
    steps = structure.schedule.up
    most = max((len(s.nodes) * s.width * min(s.left.shape[1], s.right.shape[1]) for s in steps), default=1)
    down = structure.schedule.down
    return max(most, max((len(s.nodes) * s.width * s.sibling_cells.shape[1] for s in down), default=1), 1)


def _extended(tables: Tensor) -> Tensor:
    ends = tables.new_tensor([0.0, -math.inf]).expand(len(tables), 2)
    return torch.cat([tables, ends], -1)


def _pick(storage: Tensor, cells: Any) -> Tensor:
    index = torch.as_tensor(cells, device=storage.device)
    return storage.index_select(-1, index.reshape(-1)).reshape(storage.shape[0], *index.shape)
