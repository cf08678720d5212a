"""Log-weights of configurations before they are normalised, and their expectations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import structure as structures
from .edges import EdgedStructure, edge_weight
from .groups import Posed


def log_weight(posed: Posed, on: Tensor) -> Tensor:
    """Log of the unnormalised weight of configurations (..., D) of truth values; a forced variable weighs one."""
    logits, structure = posed.logits, posed.structure
    forced = logits == math.inf
    weight_on, weight_off = torch.where(forced, 0.0, logits), torch.where(forced, -math.inf, 0.0)
    score = torch.where(on, weight_on, weight_off).sum(-1)
    tables = posed.packed()
    start = 0
    for g, size in enumerate(structures.group_sizes(structure.key)):
        members = structures.group_members(structure.key, g).to(logits.device)
        count = on[..., members].sum(-1, keepdim=True)
        table = tables[..., start : start + size + 1].expand(*count.shape[:-1], size + 1)
        score = score + table.gather(-1, count).squeeze(-1)
        start += size + 1
    if isinstance(structure, EdgedStructure):
        score = score + edge_weight(structure.frame, tables[..., structure.n_group_cells :], on)
    return score


def expected_weight(marginals: Tensor, probs: Tensor, weights: Posed) -> Tensor:
    """E[log weight] of a model's weights under a law with these marginals and count probabilities, (*b,)."""
    logits = torch.where(torch.isposinf(weights.logits), 0.0, weights.logits)
    total = torch.where(marginals > 0.0, marginals * torch.where(marginals > 0.0, logits, 0.0), 0.0).sum(-1)
    off = torch.where(torch.isposinf(weights.logits) & (marginals < 1.0), -math.inf, 0.0).sum(-1)
    tables = weights.packed()
    possible = probs > 0.0
    return total + off + torch.where(possible, probs * torch.where(possible, tables, 0.0), 0.0).sum(-1)
