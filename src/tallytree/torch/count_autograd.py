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
from torch.func import grad

from . import log_tree, ops
from .autograd import keep, refuse_edges, shared
from .mapping import as_batch
from .structure import structure_of


class CountLogProbs(torch.autograd.Function):
    """Log-probabilities of the counts of one group, (*b, n + 1)."""

    @staticmethod
    def forward(logits: Tensor, tables: Tensor, key: int, group: int) -> Tensor:
        return ops.count_log_probs(logits, tables, key, group)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        logits, tables, ctx.key, ctx.group = inputs
        keep(ctx)
        ctx.save_for_backward(logits, tables)
        ctx.save_for_forward(logits, tables)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        logits, tables = ctx.saved_tensors
        wants = ctx.needs_input_grad[1]
        found = Pull.apply(logits, tables, grads[0], ctx.key, ctx.group, wants)
        return found[0], shared(found[1], tables) if wants else None, None, None

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, *_: Any) -> Any:
        logits, tables = ctx.saved_for_forward
        direction = torch.zeros_like(logits) if by_logits is None else by_logits
        pushed = torch.zeros_like(tables) if by_tables is None else by_tables
        return Push.apply(logits, tables, direction, pushed, ctx.key, ctx.group)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return CountLogProbs.apply(*as_batch(info.batch_size, in_dims, arguments)), 0


class Pull(torch.autograd.Function):
    """The transposed Jacobian of log P(count) times weights (*b, n + 1): for log-odds (*b, D) and tables (*b, T)."""

    @staticmethod
    def forward(logits: Tensor, tables: Tensor, weights: Tensor, key: int, group: int, wants: bool) -> Any:
        return pulled(logits, tables, weights, key, group, wants)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        logits, tables, weights, ctx.key, ctx.group, ctx.wants = inputs
        keep(ctx)
        ctx.save_for_backward(logits, tables, weights)
        ctx.save_for_forward(logits, tables, weights)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        logits, tables, weights = ctx.saved_tensors
        pushed = grads[1] if ctx.wants else torch.zeros_like(tables)
        found: list[Any] = [None] * 6
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            found[0], moved = _bent(ctx, (logits, tables, weights), (grads[0], pushed))
            found[1] = shared(moved, tables)
        if ctx.needs_input_grad[2]:
            found[2] = Push.apply(logits, tables, grads[0], pushed, ctx.key, ctx.group)
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, by_weights: Any, *_: Any) -> Any:
        logits, tables, weights = ctx.saved_for_forward
        step = torch.zeros_like(weights) if by_weights is None else by_weights
        moved, moved_tables = Pull.apply(logits, tables, step, ctx.key, ctx.group, ctx.wants)
        if by_logits is not None or by_tables is not None:
            along = torch.zeros_like(logits) if by_logits is None else by_logits
            pushed = torch.zeros_like(tables) if by_tables is None else by_tables
            bent, bent_tables = _bent(ctx, (logits, tables, weights), (along, pushed))
            moved = moved + bent
            moved_tables = moved_tables + bent_tables if ctx.wants else moved_tables
        return moved, moved_tables

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return Pull.apply(*as_batch(info.batch_size, in_dims, arguments)), (0, 0)


class Push(torch.autograd.Function):
    """The Jacobian of log P(count) times a direction, (*b, n + 1)."""

    @staticmethod
    def forward(
        logits: Tensor, tables: Tensor, direction: Tensor, pushed: Tensor, key: int, group: int
    ) -> Tensor:
        return ops.count_push(logits, tables, direction, pushed, key, group)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        logits, tables, direction, pushed, ctx.key, ctx.group = inputs
        keep(ctx)
        ctx.save_for_backward(logits, tables, direction, pushed)
        ctx.save_for_forward(logits, tables, direction, pushed)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        logits, tables, direction, pushed = ctx.saved_tensors
        found: list[Any] = [None] * 6
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            found[0], moved = _bent(ctx, (logits, tables, grads[0]), (direction, pushed))
            found[1] = shared(moved, tables)
        if ctx.needs_input_grad[2] or ctx.needs_input_grad[3]:
            found[2], moved = Pull.apply(logits, tables, grads[0], ctx.key, ctx.group, True)
            found[3] = shared(moved, pushed)
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, *steps: Any) -> Any:
        logits, tables, direction, pushed = ctx.saved_for_forward
        point = (logits, tables, direction, pushed)
        moves = tuple(torch.zeros_like(p) if s is None else s for p, s in zip(point, steps))

        # <u, J v> moves by <u, J dv> and by the Hessian of <u, log P>; both are linear in u.
        moved = Push.apply(logits, tables, moves[2], moves[3], ctx.key, ctx.group)

        def bent(u: Tensor) -> Tensor:
            by_logits, by_tables = _bent(ctx, (logits, tables, u), (direction, pushed))
            own = shared(by_tables, tables)
            assert own is not None
            return (by_logits * moves[0]).sum() + (own * moves[1]).sum()

        return moved + grad(bent)(torch.zeros_like(moved))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return Push.apply(*as_batch(info.batch_size, in_dims, arguments)), 0


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
    start, stop = structure_of(key).cells(group)
    full = tables.expand(*logits.shape[:-1], tables.shape[-1])
    for sign in (1.0, -1.0):
        share = torch.clamp(sign * weights, min=0.0)
        mass = share.sum(-1, keepdim=True)
        if not torch.compiler.is_compiling() and not bool((mass > 0.0).any()):
            continue
        # A row without weights of this sign keeps its own table; its share is zero.
        change = torch.where(mass > 0.0, torch.where(share > 0.0, share.log() - log_probs, -math.inf), 0.0)
        changed = torch.cat([full[..., :start], full[..., start:stop] + change, full[..., stop:]], dim=-1)
        _, marginals, counts = ops.sums(logits, changed, key, True, wants)
        by_logits = by_logits + sign * mass * marginals
        by_tables = by_tables + sign * mass * counts
    return by_logits, by_tables


def _bent(ctx: Any, point: tuple[Tensor, Tensor, Tensor], along: tuple[Tensor, Tensor]) -> Any:
    """The Hessian of ``<weights, log P>`` times a direction."""
    logits, tables, weights = point
    refuse_edges(structure_of(ctx.key))
    logits, tables = logits.contiguous(), tables.expand(*logits.shape[:-1], tables.shape[-1]).contiguous()
    steps = tuple(
        torch.where(torch.isfinite(p), d, 0.0).contiguous() for d, p in zip(along, (logits, tables))
    )

    def score(x: Tensor, t: Tensor) -> Tensor:
        log_probs = _log_probs(ctx.key, ctx.group, x, t)
        return torch.where(torch.isfinite(log_probs), log_probs * weights, 0.0).sum()

    def directed(x: Tensor, t: Tensor) -> Tensor:
        found = grad(score, argnums=(0, 1))(x, t)
        return (found[0] * steps[0]).sum() + (found[1] * steps[1]).sum()

    return grad(directed, argnums=(0, 1))(logits, tables)


def _log_probs(key: int, group: int, logits: Tensor, tables: Tensor) -> Tensor:
    """Log P(c) = log Z given count c - log Z, in plain PyTorch: one model per count."""
    structure = structure_of(key)
    start, stop = structure.cells(group)
    shape, n = logits.shape[:-1], stop - start
    only = torch.full((n, n), -math.inf, dtype=logits.dtype, device=logits.device).fill_diagonal_(0.0)
    spread = tables.expand(*shape, tables.shape[-1]).unsqueeze(-2).expand(*shape, n, tables.shape[-1])
    fixed = torch.cat([spread[..., :start], spread[..., start:stop] + only, spread[..., stop:]], dim=-1)
    each = log_tree.log_partition(structure, logits.unsqueeze(-2).expand(*shape, n, logits.shape[-1]), fixed)
    return each - log_tree.log_partition(structure, logits, tables).unsqueeze(-1)
