"""The upward pass: for every node and count, the best weight of what lies below it, its own table included."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...arrays import Float64
from .block import prefix_sums, sorted_down
from .convolve import convolve_batch, convolve_rows
from .plan import Plan


@dataclass(frozen=True, eq=False)
class Upward:
    """Messages of a batch of models."""

    messages: Float64  # (B, n_cells + 1), the last cell -inf
    sorted: tuple[Float64, ...]  # per entry of plan.blocks: log-odds (B, R, n) in decreasing order


def extended(tables: Float64) -> Float64:
    """Tables with a zero behind them, which stands for no table."""
    return np.concatenate([tables, np.zeros((len(tables), 1))], axis=1)


def upward(plan: Plan, nu: Float64, tables: Float64) -> Upward:
    """Messages of all nodes from log-odds (B, D) and extended tables (1 or B, T + 1)."""
    batch = len(nu)
    messages = np.full((batch, plan.n_cells + 1), -math.inf)
    ranked = []
    for blocks in plan.blocks:
        t = sorted_down(nu[:, blocks.variables])
        out = prefix_sums(t)
        if blocks.table_cells is not None:
            out += tables[:, blocks.table_cells]
        messages[:, blocks.cells] = out
        ranked.append(t)
    for step in plan.steps:
        merge = convolve_rows if step.large else convolve_batch
        out = merge(messages[:, step.left_cells], messages[:, step.right_cells])
        if step.table_cells is not None:
            out += tables[:, step.table_cells]
        messages[:, step.cells] = out  # padding is -inf again
    return Upward(messages, tuple(ranked))
