"""Answers on devices other than the CPU, in plain PyTorch; on the CPU where a test asks for it.

Everything is a derivative of the log Z of :mod:`.log_tree`, which never underflows: right, at O(D^2) per model. Samples
and modes are made on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ..errors import InfeasibleError
from . import plain
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


def serves(logits: Tensor) -> bool:
    """Whether the answers come from here."""
    return _forced or logits.device.type != "cpu"


def sums(
    structure: Structure, logits: Tensor, tables: Tensor | None, marginals: bool, counts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """See :mod:`.ops`."""
    log_z, found, probs = plain.statistics(structure, logits, tables)
    if not bool(torch.isfinite(log_z).all()):
        raise InfeasibleError(
            "A model of the batch gives probability zero to every configuration, or its numbers are not finite. Relax "
            "a potential or an infinite logit."
        )
    empty = logits.new_empty(*logits.shape[:-1], 0)
    return log_z, found if marginals else empty, probs if counts else empty


def tangent(
    structure: Structure,
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    counts: bool,
) -> tuple[Tensor, Tensor]:
    """See :mod:`.ops`."""
    pushed = logits.new_zeros(structure.n_cells) if table_direction is None else table_direction
    moved, probs = plain.tangent(structure, logits, tables, (direction, pushed))
    return moved, probs if counts else logits.new_empty(*logits.shape[:-1], 0)
