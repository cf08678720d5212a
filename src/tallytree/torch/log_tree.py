"""Log Z by the upward pass in logarithms, in plain differentiable PyTorch on any device.

    up_p(c) = f_p(c) sum_i up_l(i) up_r(c - i)

Every operation has derivatives of every order, so marginals, covariance products and third derivatives are those of
this function. Logarithms know no underflow; the cost is O(D^2) per model. This is the source of the derivatives beyond
the second everywhere, and of covariance products on a device where nothing else is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad
from torch.nn.functional import pad

from .structure import Structure

Pair = tuple[Tensor, Tensor]


def log_partition(structure: Structure, logits: Tensor, tables: Tensor) -> Tensor:
    """Log Z, (*b,), of log-odds (*b, D) and packed log-tables (*b, T); -inf for an impossible model."""
    shape = logits.shape[:-1]
    rows = (x.reshape(math.prod(shape), x.shape[-1]) for x in (logits, tables))
    return _log_partition(structure, *rows).reshape(shape)


def _log_partition(structure: Structure, logits: Tensor, tables: Tensor) -> Tensor:
    schedule = structure.schedule
    leaves = leaf_weights(structure, logits, tables)
    batch, n = logits.shape
    impossible = logits.new_full((batch, 1), -math.inf)
    parts = [impossible, leaves.reshape(batch, 2 * n)]
    extended = torch.cat([set_tables(structure, tables), logits.new_zeros(batch, 1), impossible], dim=-1)
    for step in schedule.up:
        storage = torch.cat(parts, dim=-1)
        merged = convolve(_gather(storage, step.left), _gather(storage, step.right), step.width)
        message = merged + _gather(extended, step.table)
        parts = [storage, message.reshape(batch, math.prod(message.shape[1:]))]
    storage = torch.cat(parts, dim=-1)
    total = logits.new_zeros(batch)
    roots = schedule.roots
    if len(roots.nodes):
        total = total + log_sum(_gather(storage, roots.own_cells)).sum(-1)
    free = torch.as_tensor(schedule.leaf_down[:, 0] == 0, device=logits.device)
    if n and bool(free.any()):
        total = total + log_sum(leaves[:, free]).sum(-1)
    return total


def leaf_weights(structure: Structure, logits: Tensor, tables: Tensor) -> Tensor:
    """Log-weights of both states of every variable, (B, D, 2); a variable forced on has weight one."""
    forced = logits == math.inf
    on = torch.where(forced, 0.0, logits)
    off = torch.zeros_like(logits).masked_fill(forced, -math.inf)
    leaves = torch.stack([off, on], dim=-1)
    family = structure.tree.family
    for g in structure.tree.singleton_groups.tolist():
        start, variable = int(family.group_offset[g]), int(family.variable_of_group[g])
        own = torch.zeros(logits.shape[1], dtype=torch.bool, device=logits.device)
        own[variable] = True
        leaves = torch.where(own[:, None], leaves + tables[:, None, start : start + 2], leaves)
    return leaves


def set_tables(structure: Structure, tables: Tensor) -> Tensor:
    """Log-tables of the sets from those of the groups: tables of one set multiply, those of one variable stay out."""
    family = structure.tree.family
    groups: list[list[int]] = [[] for _ in range(family.n_sets)]
    for g, s in enumerate(family.set_of_group.tolist()):
        if s >= 0:
            groups[s].append(g)
    offset = family.group_offset
    parts = []
    for s, owners in enumerate(groups):
        own = [tables[:, int(offset[g]) : int(offset[g + 1])] for g in owners]
        parts.append(
            sum(own[1:], own[0]) if own else tables.new_zeros(len(tables), int(family.set_size[s]) + 1)
        )
    return torch.cat(parts, dim=-1) if parts else tables.new_zeros(len(tables), 0)


def convolve(a: Tensor, b: Tensor, width: int) -> Tensor:
    """``log sum_i exp(a(i) + b(c - i))`` for c below `width`, over the last axis."""
    if a.shape[-1] > b.shape[-1]:
        a, b = b, a
    first = a.shape[-1] - 1
    padded = pad(b, (first, max(0, width - b.shape[-1])), value=-math.inf)[..., : first + width]
    places = torch.arange(width, device=a.device)[:, None] + torch.arange(first + 1, device=a.device)
    windows = padded.index_select(-1, places.reshape(-1)).reshape(*padded.shape[:-1], width, first + 1)
    return log_sum(windows + a.flip(-1)[..., None, :])  # windows[c, j] = b(c - first + j)


def log_sum(values: Tensor) -> Tensor:
    """``log sum exp`` over the last axis; -inf, with derivative zero, for a sum of nothing."""
    top = values.detach().amax(-1)
    anchor = torch.where(torch.isfinite(top), top, 0.0)
    total = torch.exp(values - anchor[..., None]).sum(-1)
    positive = total > 0.0
    return torch.where(positive, torch.where(positive, total, 1.0).log() + anchor, -math.inf)


def _gather(storage: Tensor, cells: object) -> Tensor:
    index = torch.as_tensor(cells, device=storage.device)
    return storage.index_select(-1, index.reshape(-1)).reshape(storage.shape[0], *index.shape)


# -- derivatives ---------------------------------------------------------------------------------------------------


def derivative(structure: Structure, logits: Tensor, tables: Tensor | None, *directions: Pair) -> Pair:
    """The gradient, by log-odds and tables, of the derivative of log Z along all of the directions.

    One direction gives a product with the Hessian, two the third derivatives.
    """
    packed = structure.packed.to(logits.device) if tables is None else tables
    point = logits.contiguous(), packed.expand(*logits.shape[:-1], packed.shape[-1]).contiguous()

    def along(function: Callable[..., Tensor], direction: Pair) -> Callable[..., Tensor]:
        # No movement where parameters are infinite: nothing depends on it.
        steps = [
            torch.where(torch.isfinite(p) & torch.isfinite(d), d, 0.0).contiguous()
            for d, p in zip(direction, point)
        ]

        def moved(x: Tensor, t: Tensor) -> Tensor:
            slopes = grad(function, argnums=(0, 1))(x, t)
            return (slopes[0] * steps[0]).sum() + (slopes[1] * steps[1]).sum()

        return moved

    def function(x: Tensor, t: Tensor) -> Tensor:
        return log_partition(structure, x, t).sum()

    for direction in directions:
        function = along(function, direction)  # type: ignore[assignment]
    found: Pair = grad(function, argnums=(0, 1))(*point)
    return found
