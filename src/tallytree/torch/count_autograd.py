"""Log-probabilities of counts, differentiable also where the probabilities underflow.

    d log P(c) / d theta = E[s | c] - E[s]

A combination with weights g has the gradient ``sum_c g_c E[s | c] - (sum_c g_c) E[s]``. The first sum is the
expectation of a model whose table is multiplied by ``g_c / P(c)``, once for the positive and once for the negative
weights: two inferences in logarithms, in which no probability is ever divided by.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp

from . import ops
from .autograd import OfModels, Sums, Tangent, shared
from .structure import structure_of


class CountLogProbs(OfModels):
    """Log-probabilities of the counts of one group, (*b, n + 1)."""

    forward = ops.count_log_probs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        logits, tables = ctx.saved_tensors
        wants = ctx.needs_input_grad[1]
        found, moved = Pull.apply(logits, tables, grads[0], *ctx.numbers, wants)
        return found, shared(moved, tables) if wants else None, None, None

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, *_: Any) -> Any:
        logits, tables = ctx.saved_for_forward
        direction = torch.zeros_like(logits) if by_logits is None else by_logits
        pushed = torch.zeros_like(tables) if by_tables is None else by_tables
        return push(logits, tables, (direction, pushed), *ctx.numbers)


class Pull(OfModels):
    """The transposed Jacobian of log P(count) times weights (*b, n + 1): for log-odds (*b, D) and tables (*b, T)."""

    @staticmethod
    def forward(logits: Tensor, tables: Tensor, weights: Tensor, key: int, group: int, wants: bool) -> Any:
        return pulled(logits, tables, weights, key, group, wants)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        logits, tables, weights = ctx.saved_tensors
        key, group, wants = ctx.numbers
        along = grads[0], grads[1] if wants else torch.zeros_like(tables)
        found: list[Any] = [None] * 6
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            found[0], found[1] = _bent(logits, tables, weights, along, key, group)
        if ctx.needs_input_grad[2]:
            found[2] = push(logits, tables, along, key, group)
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, by_weights: Any, *_: Any) -> Any:
        logits, tables, weights = ctx.saved_for_forward
        key, group, wants = ctx.numbers
        step = torch.zeros_like(weights) if by_weights is None else by_weights
        moved, moved_tables = Pull.apply(logits, tables, step, key, group, wants)
        if by_logits is not None or by_tables is not None:
            full = tables.expand(*logits.shape[:-1], tables.shape[-1])
            along = torch.zeros_like(logits) if by_logits is None else by_logits
            pushed = torch.zeros_like(full) if by_tables is None else by_tables
            bent, bent_tables = _bent(logits, full, weights, (along, pushed), key, group)
            moved = moved + bent
            moved_tables = moved_tables + bent_tables if wants else moved_tables
        return moved, moved_tables


def push(logits: Tensor, tables: Tensor, along: tuple[Tensor, Tensor], key: int, group: int) -> Tensor:
    """The Jacobian of log P(count) times a direction, E[direction . s | c] - E[direction . s], (*b, n + 1).

    What is expected given a count does not depend on the table of the group, so it is asked of a model in which all
    possible counts are equally likely: no probability that is divided by is small.
    """
    cells = structure_of(key).cells(group)
    log_probs = CountLogProbs.apply(logits.detach(), tables.detach(), key, group)
    level = _added(tables, torch.where(log_probs > -math.inf, -log_probs, 0.0), cells)
    direction = torch.where(torch.isfinite(logits), along[0], 0.0)
    pushed = ops.finite(along[1]).expand(level.shape)

    def expectation(own: Tensor) -> tuple[Tensor, Tensor]:
        _, marginals, probs = Sums.apply(logits, own, key, True, True)
        return probs[..., slice(*cells)], (marginals * direction).sum(-1) + (probs * pushed).sum(-1)

    chance, mean = expectation(level)
    moved = Tangent.apply(logits, level, direction, pushed, key, True)[1][..., slice(*cells)]
    possible = chance > 0.0
    change = moved / torch.where(possible, chance, 1.0) + (mean - expectation(tables)[1]).unsqueeze(-1)
    return torch.where(possible, change, 0.0)


def _bent(
    logits: Tensor, tables: Tensor, weights: Tensor, along: tuple[Tensor, Tensor], key: int, group: int
) -> Any:
    """The Hessian of ``<weights, log P>`` times a direction; it is symmetric, so this is the gradient of a push."""
    return vjp(lambda x, t: push(x, t, along, key, group), logits, tables)[1](weights)


def pulled(
    logits: Tensor, tables: Tensor, weights: Tensor, key: int, group: int, wants: bool
) -> tuple[Tensor, Tensor]:
    """See the head of this file."""
    log_probs = ops.count_log_probs(logits, tables, key, group)
    possible = log_probs > -math.inf
    weights = torch.where(possible, weights, 0.0)  # an impossible count stays impossible
    _, marginals, counts = ops.sums(logits, tables, key, True, wants)
    total = weights.sum(-1, keepdim=True)
    by_logits, by_tables = -total * marginals, -total * counts
    cells = structure_of(key).cells(group)
    for sign in (1.0, -1.0):
        share = torch.clamp(sign * weights, min=0.0)
        mass = share.sum(-1, keepdim=True)
        if not torch.compiler.is_compiling() and not bool((mass > 0.0).any()):
            continue
        # A row without weights of this sign keeps its own table; its share is zero.
        change = torch.where(mass > 0.0, torch.where(share > 0.0, share.log() - log_probs, -math.inf), 0.0)
        _, marginals, counts = ops.sums(logits, _added(tables, change, cells), key, True, wants)
        by_logits = by_logits + sign * mass * marginals
        by_tables = by_tables + sign * mass * counts
    return by_logits, by_tables


def _added(tables: Tensor, change: Tensor, cells: tuple[int, int]) -> Tensor:
    """Packed tables (*b, T) of which one group's have changed by (*b, n + 1)."""
    start, stop = cells
    full = tables.expand(*change.shape[:-1], tables.shape[-1])
    return torch.cat([full[..., :start], full[..., start:stop] + change, full[..., stop:]], dim=-1)


ops.count_log_probs.op.register_autograd(CountLogProbs.backward, setup_context=CountLogProbs.setup_context)
