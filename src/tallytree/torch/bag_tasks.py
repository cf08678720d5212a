"""What is known about bags, as the counts that it allows: the loss of every bag, and its gradient without autograd."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import ParameterError
from . import functions
from .bags import Bags, Rows
from .potentials import TensorPotential, between, exactly
from .special import log_free


class Task(NamedTuple):
    """The kind of knowledge: "count" of positives, their "proportion", or the "presence" of some.

    ``number`` is the tolerance of a proportion, if any, or how many positives make a bag positive.
    """

    kind: str
    number: float | None
    offsets: bool


def losses(task: Task, logits: Tensor, bags: Tensor, target: Tensor) -> Tensor:
    """-log P(count allowed) of every bag, (bags,), in float64; tensors whose numbers can be read."""
    found, wanted = _read(task, logits, bags, target)
    out = found.logits.new_zeros(found.count, dtype=torch.float64)
    for rows in found.rows():
        wide = rows.logits.double()
        own = log_free(wide) - functions.log_partition(wide, _allowed(task, wanted, rows))
        out = out.index_put((rows.bags,), own)
    return out


def gradient(task: Task, logits: Tensor, bags: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """The gradient of the weighted sum of the losses, (items,): P(y = 1) of an item without and with the knowledge."""
    found, wanted = _read(task, logits, bags, target)
    out = torch.zeros_like(found.logits, dtype=torch.float64)
    for rows in found.rows():
        wide = rows.logits.double()
        moved = torch.sigmoid(wide) - functions.marginals(wide, _allowed(task, wanted, rows))
        out[rows.items[rows.inside]] = (weights[rows.bags].unsqueeze(-1) * moved)[rows.inside]
    return out


def _read(task: Task, logits: Tensor, bags: Tensor, target: Tensor) -> tuple[Bags, Tensor]:
    wanted = _checked_target(task, target)
    found = Bags(logits, bags, n_bags=len(wanted), offsets=task.offsets)
    wanted = wanted.to(found.logits.device)
    if task.kind == "count":
        _within(wanted, found.sizes)
    elif task.kind == "presence":
        least = int(task.number or 0)
        if least < 1 or bool(((wanted == 1) & (found.sizes < least)).any()):
            raise ParameterError(
                f"`at_least` must be positive and no more than the size of any positive bag; {least} arrived."
            )
    return found, wanted


def _allowed(task: Task, target: Tensor, rows: Rows) -> TensorPotential:
    """The counts that the knowledge about each row allows."""
    wanted, sizes = target[rows.bags], rows.sizes
    if task.kind == "count":
        return exactly(wanted)
    if task.kind == "presence":
        least = int(task.number or 0)
        low = torch.where(wanted == 1, least, 0)
        return between(low, torch.where(wanted == 1, sizes, sizes.clamp(max=least - 1)))
    nearest = torch.round(wanted * sizes).long()
    if task.number is None:
        return exactly(nearest)
    low = torch.ceil((wanted - task.number) * sizes - 1e-9).long().clamp(min=0)
    high = torch.floor((wanted + task.number) * sizes + 1e-9).long()
    return between(torch.minimum(low, nearest), torch.minimum(torch.maximum(high, nearest), sizes))


def _checked_target(task: Task, target: Tensor) -> Tensor:
    if task.kind == "count":
        whole = not target.dtype.is_floating_point or bool((target == target.round()).all())
        if target.dtype.is_complex or not whole or target.dim() != 1:
            raise ParameterError(
                f"`counts` must be integers on one axis, one per bag; shape {tuple(target.shape)} of {target.dtype} "
                "arrived."
            )
        return target.long()
    if task.kind == "presence":
        if target.dim() != 1 or not bool(((target == 0) | (target == 1)).all()):
            raise ParameterError("`labels` must be 0 or 1 on one axis, one per bag.")
        return target.long()
    share = target.double()
    if share.dim() != 1 or not bool(((share >= 0) & (share <= 1)).all()):
        raise ParameterError("`proportions` must be numbers between 0 and 1 on one axis, one per bag.")
    return share


def _within(counts: Tensor, sizes: Tensor) -> None:
    bad = (counts < 0) | (counts > sizes)
    if bool(bad.any()):
        bag = int(torch.nonzero(bad)[0])
        raise ParameterError(
            f"`counts[{bag}]` must be between 0 and {int(sizes[bag])}, the size of the bag; {int(counts[bag])} arrived."
        )
