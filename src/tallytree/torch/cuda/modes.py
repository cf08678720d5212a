"""A most probable configuration of flat models on the device: the best prefix of the sorted log-odds.

max_k  theta_(1) + ... + theta_(k) + log f(k)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .answers import refuse_impossible


def flat_mode(logits: Tensor, tables: Tensor) -> Tensor:
    """Configurations (B, D), uint8, of log-odds (B, D) and log-tables (1 or B, D + 1)."""
    n = logits.shape[-1]
    ordered, place = torch.sort(logits, dim=-1, descending=True, stable=True)
    forced = torch.isposinf(ordered)
    weight = torch.where(forced, 0.0, ordered).cumsum(-1)
    score = torch.cat([torch.zeros_like(weight[:, :1]), weight], -1) + tables
    counts = torch.arange(n + 1, device=logits.device)
    score = torch.where(counts >= forced.sum(-1, keepdim=True), score, -math.inf)
    best = score.max(-1)
    refuse_impossible(best.values)
    chosen = (counts[:n] < best.indices[:, None]).to(torch.uint8)
    return torch.zeros_like(chosen).scatter_(-1, place, chosen)
