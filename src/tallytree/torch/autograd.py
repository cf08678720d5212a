"""Derivatives: log Z, expectations and covariance products as functions that PyTorch can differentiate.

    d log Z        = <E[s], d theta>                    s: the variables, and the indicators of every count
    d E[s]         = H d theta                          H = Cov(s), symmetric, so both modes are the same product
    d (H v)        = H dv + T(v, d theta)               T: third derivatives, from the plain log Z

`Sums` returns log Z together with the expectations; its own outputs serve its derivative, so that differentiating
again costs no further inference.

`torch.compile` does not see through functions that have a forward-mode rule, so a compiled graph holds the operators of
:mod:`.ops`; the reverse rules of their functions are registered with them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import ParameterError
from . import ops, plain
from .edges import EdgedStructure
from .mapping import Function
from .structure import Structure, structure_of


class OfModels(Function):
    """A function of log-odds and tables first, and of a structure's key first among its numbers."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        Function.setup_context(ctx, inputs, output)
        if not torch.compiler.is_compiling():  # a compiled computation refers to a structure that is pinned
            ctx.structure = structure_of(ctx.numbers[0])


class Sums(OfModels):
    """Log Z (*b,) and, if asked for, marginals (*b, D) and count probabilities (*b, T) of log-odds and tables."""

    forward = ops.sums

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        OfModels.setup_context(ctx, inputs, output)
        ctx.save_for_backward(*inputs[:2], *output[1:])
        ctx.save_for_forward(*inputs[:2], *output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        by_norm, by_marginals, by_counts = grads
        logits, tables, marginals, probs = ctx.saved_tensors
        key, with_marginals, with_counts = ctx.numbers
        wants_tables = tables is not None and ctx.needs_input_grad[1]
        found_logits, found_tables = None, None
        if by_norm is not None:
            if not with_marginals or (wants_tables and not with_counts):
                _, marginals, probs = Sums.apply(logits, tables, key, True, wants_tables)
            found_logits = by_norm.unsqueeze(-1) * marginals
            found_tables = by_norm.unsqueeze(-1) * probs if wants_tables else None
        by_marginals = by_marginals if with_marginals else None
        by_counts = by_counts if with_counts else None
        if by_marginals is not None or by_counts is not None:
            direction = torch.zeros_like(logits) if by_marginals is None else by_marginals
            moved, moved_tables = tangent(logits, tables, direction, by_counts, key, wants_tables)
            found_logits = moved if found_logits is None else found_logits + moved
            if wants_tables:
                found_tables = moved_tables if found_tables is None else found_tables + moved_tables
        return found_logits, shared(found_tables, tables), None, None, None

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, *_: Any) -> Any:
        logits, tables, marginals, probs = ctx.saved_for_forward
        key, _, with_counts = ctx.numbers
        direction = torch.zeros_like(logits) if by_logits is None else by_logits
        moved, moved_tables = tangent(logits, tables, direction, by_tables, key, with_counts)
        norm = (marginals * direction).sum(-1)
        if by_tables is not None:
            probs = probs if with_counts else Sums.apply(logits, tables, key, True, True)[2]
            norm = norm + (probs * ops.finite(by_tables)).sum(-1)
        return norm, moved, moved_tables


class Tangent(OfModels):
    """The Hessian of log Z times a direction: d marginals (*b, D) and, if asked for, d count probabilities (*b, T)."""

    forward = ops.tangent

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        logits, tables, direction, table_direction = ctx.saved_tensors
        key, counts = ctx.numbers
        by_logits, by_counts = grads[0], grads[1] if counts else None
        found: list[Any] = [None] * 6
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            point = logits, tables
            found[0], moved = _third(key, point, (direction, table_direction), (by_logits, by_counts))
            found[1] = shared(moved, tables) if tables is not None else None
        if ctx.needs_input_grad[2] or ctx.needs_input_grad[3]:
            wants = table_direction is not None
            found[2], moved = Tangent.apply(logits, tables, by_logits, by_counts, key, wants)
            found[3] = shared(moved, table_direction) if wants else None
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, by_direction: Any, by_pushed: Any, *_: Any) -> Any:
        logits, tables, direction, table_direction = ctx.saved_for_forward
        key, counts = ctx.numbers
        dead = torch.zeros_like(logits)
        step = dead if by_direction is None else by_direction
        moved, moved_tables = Tangent.apply(logits, tables, step, by_pushed, key, counts)
        if by_logits is not None or by_tables is not None:
            along = (dead if by_logits is None else by_logits, by_tables)
            bent, bent_tables = _third(key, (logits, tables), (direction, table_direction), along)
            moved = moved + bent
            moved_tables = moved_tables + bent_tables if counts else moved_tables
        return moved, moved_tables


def tangent(*arguments: Any) -> Any:
    """What `Tangent` answers; without a record for derivatives where nobody will ask for them, which is quicker."""
    return (Tangent.apply if differentiable(*arguments) else ops.tangent)(*arguments)


def differentiable(*arguments: Any) -> bool:
    """Whether a derivative of any kind may be asked for; tensors of `torch.func` do not say so themselves."""
    tensors = [value for value in arguments if isinstance(value, Tensor)]
    if torch.compiler.is_compiling() or torch.autograd.forward_ad._current_level >= 0:
        return True
    if any(torch._C._functorch.is_functorch_wrapped_tensor(t) for t in tensors):
        return True
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _third(key: int, point: Any, first: Any, second: Any) -> Any:
    """The plain log Z, from which derivatives beyond the second come, knows no edges."""
    structure = structure_of(key)
    if isinstance(structure, EdgedStructure):
        raise ParameterError(
            "Models with edges have first and second derivatives of log Z, but a higher one was asked for. "
            "Detach what need not be differentiated again."
        )
    pairs = [(a, _or_zero(b, structure, point[0])) for a, b in (first, second)]
    return plain.third(structure, *point, *pairs)


def _or_zero(direction: Tensor | None, structure: Structure, logits: Tensor) -> Tensor:
    return logits.new_zeros(structure.n_cells) if direction is None else direction


def shared(grad: Tensor | None, tables: Tensor | None) -> Tensor | None:
    """A gradient of tables that all models share is the sum over the models."""
    if grad is None or tables is None or tables.dim() == grad.dim():
        return grad
    return grad.sum(dim=tuple(range(grad.dim() - tables.dim())))


ops.sums.op.register_autograd(Sums.backward, setup_context=Sums.setup_context)
ops.tangent.op.register_autograd(Tangent.backward, setup_context=Tangent.setup_context)
