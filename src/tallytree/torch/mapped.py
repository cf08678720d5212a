"""Rules of `torch.func.vmap` for answers without derivatives: a mapped axis becomes a batch axis of one call."""

from __future__ import annotations

from typing import Any

import torch

from . import ops
from .mapping import as_batch


def _draw(info: Any, dims: Any, logits: Any, tables: Any, seed: Any, key: int, count: int) -> Any:
    """Rows of one call are independent, so that one of many seeds will do; a seed that all share stays shared."""
    wide = as_batch(info.batch_size, dims[:2], (logits, tables))
    if dims[2] is None:
        rows = [ops.draw.op(x, t, seed, key, count) for x, t in zip(wide[0], _rows(wide[1], wide[0]))]
        return torch.stack(rows), 0
    return ops.draw.op(wide[0].contiguous(), wide[1], seed.movedim(dims[2], 0)[0], key, count), 1


def _rows(tables: Any, logits: Any) -> Any:
    shared = tables is None or tables.dim() < logits.dim()
    return [tables] * len(logits) if shared else tables


def _batched(operator: ops.Operator) -> Any:
    def rule(info: Any, dims: Any, *arguments: Any) -> Any:
        return operator.op(*as_batch(info.batch_size, dims, arguments)), 0

    return rule


ops.draw.op.register_vmap(_draw)
for operator in (ops.mode, ops.entropy):
    operator.op.register_vmap(_batched(operator))
