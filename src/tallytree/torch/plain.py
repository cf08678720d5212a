"""Answers as derivatives of the plain log Z: right on every device and to every order, at O(D^2) per model."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.func import grad, jvp

from . import log_tree
from .structure import Structure

Pair = tuple[Tensor, Tensor]


def statistics(structure: Structure, logits: Tensor, tables: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Log Z (*b,), marginals (*b, D) and the probabilities of the counts of all groups (*b, T)."""
    point = _point(structure, logits, tables)

    def total(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        log_z = log_tree.log_partition(structure, x, t)
        return log_z.sum(), log_z

    (marginals, counts), log_z = grad(total, argnums=(0, 1), has_aux=True)(*point)
    return log_z, _off_infinity(marginals, logits), counts


def tangent(structure: Structure, logits: Tensor, tables: Tensor | None, direction: Pair) -> Pair:
    """The Hessian of log Z times a direction, for log-odds and tables."""
    point = _point(structure, logits, tables)
    expected = grad(lambda x, t: log_tree.log_partition(structure, x, t).sum(), argnums=(0, 1))
    _, moved = jvp(expected, point, _finite(direction, point))
    return moved


def third(structure: Structure, logits: Tensor, tables: Tensor | None, first: Pair, second: Pair) -> Pair:
    """The third derivative of log Z contracted with two directions."""
    point = _point(structure, logits, tables)
    a, b = _finite(first, point), _finite(second, point)

    def along(x: Tensor, t: Tensor) -> Tensor:
        def once(y: Tensor, u: Tensor) -> Tensor:
            moved: Tensor = jvp(lambda z, s: log_tree.log_partition(structure, z, s), (y, u), a)[1]
            return moved

        moved: Tensor = jvp(once, (x, t), b)[1]
        return moved.sum()

    found: Pair = grad(along, argnums=(0, 1))(*point)
    return found


def _point(structure: Structure, logits: Tensor, tables: Tensor | None) -> Pair:
    """Parameters with every row's own tables."""
    packed = structure.packed.to(logits.device) if tables is None else tables
    return logits.contiguous(), packed.expand(*logits.shape[:-1], packed.shape[-1]).contiguous()


def _finite(direction: Pair, point: Pair) -> Pair:
    """No movement where parameters are infinite: nothing depends on it."""
    a, b = (
        torch.where(torch.isfinite(p) & torch.isfinite(d), d, 0.0).contiguous()
        for d, p in zip(direction, point)
    )
    return a, b


def _off_infinity(marginals: Tensor, logits: Tensor) -> Tensor:
    return torch.where(logits == math.inf, 1.0, torch.where(logits == -math.inf, 0.0, marginals))
