"""The downward pass, adjoint of the upward one: best weight of all that lies outside a node, for every count of it."""

from __future__ import annotations

import math

import numpy as np

from ...arrays import Float64
from . import block
from .convolve import correlate_batch, correlate_rows
from .plan import Plan


def downward(plan: Plan, messages: Float64, tables: Float64, rest: list[Float64]) -> Float64:
    """Outside messages, (B, n_cells + 1), the node's own table not included.

    ``rest``: what the roots start from, (B, R) per entry of ``plan.roots``.
    """
    down = np.full(messages.shape, -math.inf)
    for roots, start in zip(plan.roots, rest):
        down[:, roots.cells] = start[..., None]
    for step in reversed(plan.steps):
        above = down[:, step.cells]
        if step.table_cells is not None:
            above = above + tables[:, step.table_cells]
        correlated = correlate_rows if step.large else correlate_batch
        a, b = messages[:, step.left_cells], messages[:, step.right_cells]
        down[:, step.left_cells] = correlated(above, b)
        down[:, step.right_cells] = correlated(above, a)
        down[:, -1] = -math.inf  # padded columns ended up there
    return down


def block_max_marginals(plan: Plan, messages: Float64, down: Float64, nu: Float64, out: Float64) -> None:
    """Max-marginals of the variables in sets, within their component, to ``out`` (B, D, 2)."""
    for blocks in plan.blocks:
        g = messages[:, blocks.cells] + down[:, blocks.cells]
        out[:, blocks.variables] = block.max_marginals(nu[:, blocks.variables], g)
