"""Answers on devices other than the CPU; on the CPU where a test asks for it.

CUDA tensors go to the kernels of :mod:`.cuda`. Where those cannot run, the host answers, see :mod:`.ops`.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..memo import lru
from . import host
from .structure import Structure

_forced = False


@contextmanager
def everywhere() -> Iterator[None]:
    """Use this code for CPU tensors too."""
    global _forced
    before, _forced = _forced, True
    try:
        yield
    finally:
        _forced = before


def sums(
    structure: Structure, logits: Tensor, tables: Tensor | None, marginals: bool, counts: bool, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """See :mod:`.ops`."""
    log_z, found, probs, _ = _solved(structure, logits, tables, counts)
    return log_z, found if marginals else logits.new_empty(*logits.shape[:-1], 0), probs


def tangent(
    structure: Structure,
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    counts: bool,
    *_: Any,
) -> tuple[Tensor, Tensor]:
    """See :mod:`.ops`."""
    along = direction.expand(logits.shape).reshape(-1, logits.shape[-1]).contiguous()
    push = None if table_direction is None else _packed_rows(table_direction, logits.shape[:-1])
    return _solved(structure, logits, tables, counts, along, push)[1:3]


def count_log_probs(structure: Structure, logits: Tensor, tables: Tensor | None, group: int) -> Tensor:
    """See :mod:`.ops`."""
    from .cuda import ladder

    found = ladder.count_log_probs(structure, *_rows(structure, logits, tables), group)
    return found.reshape(*logits.shape[:-1], found.shape[-1])


def draw(structure: Structure, logits: Tensor, tables: Tensor | None, seed: Tensor, count: int) -> Tensor:
    """See :mod:`.ops`."""
    if not count:
        return logits.new_empty(0, *logits.shape, dtype=torch.uint8)
    from .cuda import draws

    found = draws.draw(structure, *_rows(structure, logits, tables), seed.to(logits.device), count)
    return found.reshape(count, *logits.shape)


def mode(structure: Structure, logits: Tensor, tables: Tensor | None) -> Tensor:
    """See :mod:`.ops`."""
    from .cuda import draws

    return draws.mode(structure, *_rows(structure, logits, tables)).reshape(logits.shape)


def entropy(structure: Structure, logits: Tensor, tables: Tensor | None) -> Tensor:
    """On the device, except where log Z - E[log weight] cancels: those rows, and only they, go to the host."""
    log_z, marginals, probs = sums(structure, logits, tables, True, True)
    packed = structure.packed_on(logits.device) if tables is None else tables
    terms = torch.cat([_products(marginals, logits), _products(probs, packed)], -1)
    terms = torch.cat([log_z.unsqueeze(-1), -terms], -1).reshape(log_z.numel(), -1)
    found = terms.sum(-1)
    small = torch.nonzero(found <= 0.01 * terms.abs().sum(-1)).squeeze(-1)
    if len(small):
        x = logits.reshape(len(found), -1)[small]
        if packed.dim() > 1:
            packed = packed.expand(*logits.shape[:-1], packed.shape[-1]).reshape(len(found), -1)[small]
        found[small] = host.from_afar("entropy", structure, x, packed)
    return found.reshape(logits.shape[:-1])


def _products(probs: Tensor, weights: Tensor) -> Tensor:
    """P log w, without those that cannot be or, of forced variables, weigh one."""
    kept = (probs > 0.0) & torch.isfinite(weights)
    return torch.where(kept, probs * torch.where(kept, weights, 0.0), 0.0)


def has_kernels(logits: Tensor) -> bool:
    """Whether the answers come from kernels: on the CPU only in Triton's interpreter, for tests.

    Empty tensors have nothing for them to do.
    """
    interpreted = _forced and logits.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"
    return (logits.is_cuda or interpreted) and logits.numel() > 0 and _has_triton()


@lru(1)
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _rows(structure: Structure, logits: Tensor, tables: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Log-odds (B, D) and packed tables (1 or B, T) where rows have their own."""
    shape = logits.shape[:-1]
    if tables is None and structure.batch_shape:
        tables = structure.packed_on(logits.device)
    x = logits.detach().reshape(math.prod(shape), logits.shape[-1]).contiguous()
    return x, None if tables is None else _packed_rows(tables.detach(), shape)


def _packed_rows(tables: Tensor, shape: torch.Size) -> Tensor:
    if tables.dim() == 1:
        return tables.contiguous()[None]
    return tables.expand(*shape, tables.shape[-1]).reshape(math.prod(shape), tables.shape[-1]).contiguous()


def _solved(structure: Structure, logits: Tensor, tables: Tensor | None, counts: bool, *motion: Any) -> Any:
    """What the kernels answer for rows, with the batch axes in the place of the rows."""
    from .cuda import ladder

    found = ladder.solve(structure, ladder.Asked(*_rows(structure, logits, tables), *motion), counts)
    return tuple(part.reshape((*logits.shape[:-1], *part.shape[1:])) for part in found)
