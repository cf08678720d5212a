"""Losses of bags inside compilers and mapped axes, where the numbers that say how long bags are cannot be read yet.

The losses of all bags are one function there. No item is in two bags, so that with directions u_1 .. u_m

    E_m = d^m loss / du_1 .. du_m, one number per bag,        D_m = gradient of sum_b w_b E_m(b), one per item,

have each other as derivatives: E_m moves along u by E_{m+1}(.., u), D_m by D_{m+1}(.., u), and both are linear in
every direction and in the weights. A mapped axis is as many more bags.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import ParameterError
from . import bag_tasks
from .bag_tasks import Task
from .mapping import Function
from .ops import Operator, empty_like


def losses(task: Task, logits: Tensor, bags: Tensor, target: Tensor) -> Tensor:
    """The loss of every bag, (bags,), in float64, of tensors whose numbers cannot be read."""
    wide = logits.double()
    if torch.compiler.is_compiling():
        return values.op(wide, bags, target, *task)
    return Derivative.apply(wide, bags, target, wide.new_zeros(0, *wide.shape), None, task)


class Derivative(Function):
    """E_m, (*b, bags), of log-odds (*b, items) and directions (m, *b, items); with weights D_m, (*b, items)."""

    @staticmethod
    def forward(
        logits: Tensor, bags: Tensor, target: Tensor, directions: Tensor, weights: Tensor | None, task: Task
    ) -> Tensor:
        if not len(directions):
            if weights is None:
                return values(logits, bags, target, *task)
            return pulled(logits, bags, target, weights, *task)
        flat = _Flat(logits, bags, target, task)
        with torch.enable_grad():
            x = logits.detach().reshape(-1).requires_grad_()
            found = flat.along(x, directions)
            if weights is None:
                return found.detach().reshape(*logits.shape[:-1], target.shape[-1])
            total = (found * weights.detach().reshape(-1)).sum()
            return torch.autograd.grad(total, x, materialize_grads=True)[0].reshape(logits.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        *point, directions, weights = ctx.saved_tensors

        def gradient(others: Tensor) -> Tensor:
            """What comes back meets E_m as weights, and D_m as one more direction."""
            if weights is None:
                return Derivative.apply(*point, others, grads[0], *ctx.numbers)
            return Derivative.apply(*point, _with(others, grads[0]), weights, *ctx.numbers)

        found: list[Any] = [None] * 6
        if ctx.needs_input_grad[0]:
            found[0] = gradient(directions)
        if ctx.needs_input_grad[3]:
            rest = [gradient(_without(directions, j)) for j in range(len(directions))]
            found[3] = torch.stack(rest) if rest else torch.zeros_like(directions)
        if ctx.needs_input_grad[4]:
            found[4] = Derivative.apply(*point, _with(directions, grads[0]), None, *ctx.numbers)
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, _: Any, __: Any, by_directions: Any, by_weights: Any, *___: Any) -> Any:
        *point, directions, weights = ctx.saved_for_forward
        logits, _, target = point
        found = (
            logits.new_zeros(*logits.shape[:-1], target.shape[-1])
            if weights is None
            else torch.zeros_like(logits)
        )
        steps = [] if by_logits is None else [_with(directions, by_logits)]
        for j in range(len(directions) if by_directions is not None else 0):
            steps.append(_with(_without(directions, j), by_directions[j]))
        for step in steps:
            found = found + Derivative.apply(*point, step, weights, *ctx.numbers)
        if by_weights is not None:
            found = found + Derivative.apply(*point, directions, by_weights, *ctx.numbers)
        return found

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, *arguments: Any) -> Any:
        return cls.apply(*_as_batch(info.batch_size, in_dims, arguments)), 0


def _with(directions: Tensor, more: Tensor) -> Tensor:
    return torch.cat([directions, more.expand(directions.shape[1:]).unsqueeze(0)])


def _without(directions: Tensor, place: int) -> Tensor:
    return torch.cat([directions[:place], directions[place + 1 :]])


def _as_batch(size: int, dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """Arguments with the mapped axis in front of the batch axes; directions have theirs behind the first."""
    logits = arguments[0]
    inner = logits.dim() - 1 - (dims[0] is not None)
    out: list[Any] = []
    for place, (value, dim) in enumerate(zip(arguments, dims)):
        if not isinstance(value, Tensor):
            out.append(value)
            continue
        front = value.unsqueeze(0) if dim is None else value.movedim(dim, 0)
        if place == 3:  # directions
            front = front.expand(size, *front.shape[1:]).movedim(0, 1)
        else:
            missing = inner + 2 - front.dim()
            front = front.reshape(len(front), *[1] * missing, *front.shape[1:])
            front = front.expand(size, *front.shape[1:])
        out.append(front)
    out[0] = out[0].contiguous()
    return out


class _Flat:
    """A batch of bags as one longer list of bags."""

    def __init__(self, logits: Tensor, bags: Tensor, target: Tensor, task: Task) -> None:
        self.task, shape = task, logits.shape[:-1]
        items, n_bags, copies = logits.shape[-1], target.shape[-1], math.prod(shape)
        self.target = target.expand(*shape, n_bags).reshape(-1)
        own = bags.expand(*shape, bags.shape[-1]).reshape(copies, -1)
        if task.offsets and shape:
            own = _starts(own, n_bags, items)
        elif shape:
            _refuse_outside(own, n_bags)
        step = items if task.offsets else n_bags
        self.bags = (
            (own + step * torch.arange(copies, device=own.device)[:, None]).reshape(-1) if shape else bags
        )

    def losses(self, x: Tensor) -> Tensor:
        return bag_tasks.losses(self.task, x, self.bags, self.target)

    def along(self, x: Tensor, directions: Tensor) -> Tensor:
        """Derivatives of the losses along every direction, one after the other; differentiable."""
        found = self.losses(x)
        for direction in directions:
            (slope,) = torch.autograd.grad(found.sum(), x, create_graph=True, materialize_grads=True)
            found = torch.zeros_like(found).index_add(0, self.owner(len(x)), slope * direction.reshape(-1))
        return found

    def owner(self, items: int) -> Tensor:
        """The bag of every item."""
        if not self.task.offsets:
            return self.bags.long()
        starts = self.bags[: len(self.target)].long()
        marks = torch.zeros(items + 1, dtype=torch.long, device=starts.device)
        return marks.index_add(0, starts, torch.ones_like(starts)).cumsum(0)[:items] - 1


def _starts(offsets: Tensor, n_bags: int, items: int) -> Tensor:
    """Starts of the bags of every row, without the end that may follow them."""
    if offsets.shape[-1] == n_bags + 1 and bool((offsets[:, -1] == items).all()):
        offsets = offsets[:, :-1]
    rising = bool((offsets[:, 1:] >= offsets[:, :-1]).all())
    inside = bool(((offsets >= 0) & (offsets <= items)).all())
    begun = bool((offsets[:, :1] == 0).all())
    if offsets.shape[-1] != n_bags or not (rising and inside and begun):
        raise ParameterError(
            f"`bags` must hold the start of every bag, increasing from 0, one per target ({n_bags}), with the number "
            f"of items at the end or not; {offsets[:1].tolist()} arrived first."
        )
    return offsets


def _refuse_outside(index: Tensor, n_bags: int) -> None:
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= n_bags):
        raise ParameterError(
            f"`bags` must hold numbers from 0 to {n_bags - 1}, one bag per target; "
            f"{int(index.min())} to {int(index.max())} arrived."
        )


def _values(
    logits: Tensor, bags: Tensor, target: Tensor, kind: str, number: float | None, offsets: bool
) -> Tensor:
    """The loss of every bag, (*b, bags)."""
    flat = _Flat(logits, bags, target, Task(kind, number, offsets))
    return flat.losses(logits.reshape(-1)).reshape(*logits.shape[:-1], target.shape[-1])


def _empty_values(logits: Tensor, bags: Tensor, target: Tensor, *task: Any) -> Tensor:
    return logits.new_empty(*logits.shape[:-1], target.shape[-1])


values = Operator("bag_losses", _values, _empty_values)


def _pulled(
    logits: Tensor,
    bags: Tensor,
    target: Tensor,
    weights: Tensor,
    kind: str,
    number: float | None,
    offsets: bool,
) -> Tensor:
    """The gradient of the weighted sum of the losses, (*b, items)."""
    flat = _Flat(logits, bags, target, Task(kind, number, offsets))
    found = bag_tasks.gradient(
        flat.task,
        logits.reshape(-1),
        flat.bags,
        flat.target,
        weights.expand(*logits.shape[:-1], -1).reshape(-1),
    )
    return found.reshape(logits.shape)


pulled = Operator("bag_gradient", _pulled, lambda logits, *arguments: empty_like(logits))


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    logits, bags, target, *ctx.task = inputs
    ctx.save_for_backward(logits, bags, target)


def _backward(ctx: Any, weights: Any) -> Any:
    logits, bags, target = ctx.saved_tensors
    return pulled.op(logits, bags, target, weights.contiguous(), *ctx.task), None, None, None, None, None


values.op.register_autograd(_backward, setup_context=_save)
