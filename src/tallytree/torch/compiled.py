"""Derivatives of the operators themselves, for compilers.

`torch.compile` does not see through functions that have a forward-mode rule, so a compiled graph holds the operators of
:mod:`.ops`, and their derivatives are registered here: the same formulas as in :mod:`.autograd`.
"""

from __future__ import annotations

from typing import Any

import torch

from . import ops
from .autograd import Tangent, shared
from .count_autograd import pulled


def _save_sums(ctx: Any, inputs: Any, output: Any) -> None:
    logits, tables, ctx.key, ctx.marginals, ctx.counts = inputs
    ctx.save_for_backward(logits, tables, output[1], output[2])


def _sums_backward(ctx: Any, by_norm: Any, by_marginals: Any, by_counts: Any) -> Any:
    logits, tables, marginals, counts = ctx.saved_tensors
    wants = tables is not None and ctx.needs_input_grad[1]
    if not ctx.marginals or (wants and not ctx.counts):
        _, marginals, counts = ops.sums(logits, tables, ctx.key, True, wants)
    direction = by_marginals if ctx.marginals else torch.zeros_like(logits)
    moved, moved_tables = ops.tangent(
        logits, tables, direction.contiguous(), by_counts if ctx.counts else None, ctx.key, wants
    )
    found = by_norm.unsqueeze(-1) * marginals + moved
    found_tables = shared(by_norm.unsqueeze(-1) * counts + moved_tables, tables) if wants else None
    return found, found_tables, None, None, None


def _save_tangent(ctx: Any, inputs: Any, output: Any) -> None:
    logits, tables, direction, table_direction, ctx.key, ctx.counts = inputs
    ctx.save_for_backward(logits, tables, direction, table_direction)


def _save_counts(ctx: Any, inputs: Any, output: Any) -> None:
    logits, tables, ctx.key, ctx.group = inputs
    ctx.save_for_backward(logits, tables)


def _counts_backward(ctx: Any, by_counts: Any) -> Any:
    logits, tables = ctx.saved_tensors
    wants = ctx.needs_input_grad[1]
    found, moved = pulled(logits, tables, by_counts, ctx.key, ctx.group, wants)
    return found, shared(moved, tables) if wants else None, None, None


ops.sums.op.register_autograd(_sums_backward, setup_context=_save_sums)
ops.tangent.op.register_autograd(Tangent.backward, setup_context=_save_tangent)
ops.count_log_probs.op.register_autograd(_counts_backward, setup_context=_save_counts)
