"""Derivatives: log Z, expectations and covariance products as functions that PyTorch can differentiate.

    d log Z        = <E[s], d theta>                    s: the variables, and the indicators of every count
    d E[s]         = H d theta                          H = Cov(s), symmetric, so both modes are the same product
    d (H v)        = H dv + T(v, d theta)               T: third derivatives, from the plain log Z

`Sums` returns log Z together with the expectations; its own outputs serve its derivative, so that differentiating
again costs no further inference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import ParameterError
from . import ops, plain
from .edges import EdgedStructure
from .mapping import as_batch
from .structure import Structure, structure_of


class Sums(torch.autograd.Function):
    """Log Z (*b,), marginals (*b, D) and, if `counts`, count probabilities (*b, T) of log-odds and tables."""

    @staticmethod
    def forward(logits: Tensor, tables: Tensor | None, key: int, counts: bool) -> Any:
        return ops.sums(logits, tables, key, True, counts)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        logits, tables, ctx.key, ctx.counts = inputs
        keep(ctx)
        _, marginals, probs = output
        ctx.save_for_backward(logits, tables, marginals, probs)
        ctx.save_for_forward(logits, tables, marginals, probs)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        by_norm, by_marginals, by_counts = grads
        logits, tables, marginals, probs = ctx.saved_tensors
        wants_tables = tables is not None and ctx.needs_input_grad[1]
        found_logits, found_tables = None, None
        if by_norm is not None:
            found_logits = by_norm.unsqueeze(-1) * marginals
            if wants_tables:
                probs = probs if ctx.counts else Sums.apply(logits, tables, ctx.key, True)[2]
                found_tables = by_norm.unsqueeze(-1) * probs
        if by_marginals is not None or (by_counts is not None and ctx.counts):
            direction = torch.zeros_like(logits) if by_marginals is None else by_marginals
            pushed = by_counts if ctx.counts else None
            moved, moved_tables = Tangent.apply(logits, tables, direction, pushed, ctx.key, wants_tables)
            found_logits = moved if found_logits is None else found_logits + moved
            if wants_tables:
                found_tables = moved_tables if found_tables is None else found_tables + moved_tables
        return found_logits, shared(found_tables, tables), None, None

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, *_: Any) -> Any:
        logits, tables, marginals, probs = ctx.saved_for_forward
        direction = torch.zeros_like(logits) if by_logits is None else by_logits
        moved, moved_tables = Tangent.apply(logits, tables, direction, by_tables, ctx.key, ctx.counts)
        norm = (marginals * direction).sum(-1)
        if by_tables is not None:
            probs = probs if ctx.counts else Sums.apply(logits, tables, ctx.key, True)[2]
            norm = norm + (probs * torch.where(torch.isfinite(by_tables), by_tables, 0.0)).sum(-1)
        return norm, moved, moved_tables

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return Sums.apply(*as_batch(info.batch_size, in_dims, arguments)), (0, 0, 0)


class Tangent(torch.autograd.Function):
    """The Hessian of log Z times a direction: d marginals (*b, D) and, if `counts`, d count probabilities (*b, T)."""

    @staticmethod
    def forward(
        logits: Tensor,
        tables: Tensor | None,
        direction: Tensor,
        table_direction: Tensor | None,
        key: int,
        counts: bool,
    ) -> Any:
        return ops.tangent(logits, tables, direction, table_direction, key, counts)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        logits, tables, direction, table_direction, ctx.key, ctx.counts = inputs
        keep(ctx)
        ctx.save_for_backward(logits, tables, direction, table_direction)
        ctx.save_for_forward(logits, tables, direction, table_direction)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        by_logits, by_counts = grads
        logits, tables, direction, table_direction = ctx.saved_tensors
        pushed = by_counts if ctx.counts else None
        found: list[Any] = [None] * 6
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            found[0], moved = _third(ctx, (direction, table_direction), (by_logits, pushed))
            found[1] = shared(moved, tables) if tables is not None else None
        if ctx.needs_input_grad[2] or ctx.needs_input_grad[3]:
            wants = table_direction is not None
            moved, moved_tables = Tangent.apply(logits, tables, by_logits, pushed, ctx.key, wants)
            found[2] = moved
            found[3] = shared(moved_tables, table_direction) if wants else None
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, by_direction: Any, by_pushed: Any, *_: Any) -> Any:
        logits, tables, direction, table_direction = ctx.saved_for_forward
        dead = torch.zeros_like(logits)
        step = dead if by_direction is None else by_direction
        moved, moved_tables = Tangent.apply(logits, tables, step, by_pushed, ctx.key, ctx.counts)
        if by_logits is not None or by_tables is not None:
            along = (dead if by_logits is None else by_logits, by_tables)
            bent, bent_tables = _third(ctx, (direction, table_direction), along, ctx.saved_for_forward)
            moved = moved + bent
            moved_tables = moved_tables + bent_tables if ctx.counts else moved_tables
        return moved, moved_tables

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return Tangent.apply(*as_batch(info.batch_size, in_dims, arguments)), (0, 0)


def _third(ctx: Any, first: Any, second: Any, saved: Any = None) -> Any:
    logits, tables = (ctx.saved_tensors if saved is None else saved)[:2]
    structure = structure_of(ctx.key)
    refuse_edges(structure)
    pairs = [(a, _or_zero(b, structure, logits)) for a, b in (first, second)]
    return plain.third(structure, logits, tables, *pairs)


def refuse_edges(structure: Structure) -> None:
    """The plain log Z, from which derivatives beyond the second come, knows no edges."""
    if isinstance(structure, EdgedStructure):
        raise ParameterError(
            "Models with edges have first and second derivatives of log Z, but a higher one was asked for. "
            "Detach what need not be differentiated again."
        )


def _or_zero(direction: Tensor | None, structure: Structure, logits: Tensor) -> Tensor:
    return logits.new_zeros(structure.n_cells) if direction is None else direction


def shared(grad: Tensor | None, tables: Tensor | None) -> Tensor | None:
    """A gradient of tables that all models share is the sum over the models."""
    if grad is None or tables is None or tables.dim() == grad.dim():
        return grad
    return grad.sum(dim=tuple(range(grad.dim() - tables.dim())))


def keep(ctx: Any) -> None:
    """A recorded computation keeps its structure alive; a compiled one refers to a structure that is pinned."""
    if not torch.compiler.is_compiling():
        ctx.structure = structure_of(ctx.key)
