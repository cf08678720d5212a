"""Answers as derivatives of the plain log Z: right on every device and to every order, at O(D^2) per model."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad

from . import log_tree
from .structure import Structure

Pair = tuple[Tensor, Tensor]
Scalar = Callable[[Tensor, Tensor], Tensor]


def statistics(structure: Structure, logits: Tensor, tables: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Log Z (*b,), marginals (*b, D) and the probabilities of the counts of all groups (*b, T)."""
    point = _point(structure, logits, tables)

    def total(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        log_z = log_tree.log_partition(structure, x, t)
        return log_z.sum(), log_z

    expected, log_z = grad(total, argnums=(0, 1), has_aux=True)(*point)
    marginals, counts = expected
    return log_z, _off_infinity(marginals, logits), counts


def tangent(structure: Structure, logits: Tensor, tables: Tensor | None, direction: Pair) -> Pair:
    """The Hessian of log Z times a direction, for log-odds and tables."""
    point = _point(structure, logits, tables)
    return _gradient(_along(_total(structure), _finite(direction, point)))(*point)


def third(structure: Structure, logits: Tensor, tables: Tensor | None, first: Pair, second: Pair) -> Pair:
    """The third derivative of log Z contracted with two directions."""
    point = _point(structure, logits, tables)
    once = _along(_total(structure), _finite(first, point))
    return _gradient(_along(once, _finite(second, point)))(*point)


def _total(structure: Structure) -> Scalar:
    return lambda x, t: log_tree.log_partition(structure, x, t).sum()


def _gradient(function: Scalar) -> Callable[[Tensor, Tensor], Pair]:
    found: Callable[[Tensor, Tensor], Pair] = grad(function, argnums=(0, 1))
    return found


def _along(function: Scalar, direction: Pair) -> Scalar:
    """The derivative of a function along a fixed direction, as a function."""

    def moved(x: Tensor, t: Tensor) -> Tensor:
        by_logits, by_tables = _gradient(function)(x, t)
        return (by_logits * direction[0]).sum() + (by_tables * direction[1]).sum()

    return moved


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
