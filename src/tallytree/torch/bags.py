"""Bags of items of which only counts are known: the losses of all bags.

The losses are one function of the log-odds of all items, and a mapped axis is as many more bags.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import ParameterError
from ..structure.bags import read_bags
from . import functions, ops
from .autograd import Expression, OverBatch
from .groups import pose
from .poisson_binomial import log_free
from .potentials import TensorPotential, between, exactly


class Task(NamedTuple):
    """The kind of knowledge: "count" of positives, their "proportion", or the "presence" of some.

    ``number`` is the tolerance of a proportion, if any, or how many positives make a bag positive. ``offsets`` says
    whether bags are given by their starts.
    """

    kind: str
    number: float | None
    offsets: bool

    @property
    def name(self) -> str:
        """What users call the target."""
        return {"count": "counts", "proportion": "proportions", "presence": "labels"}[self.kind]


def losses(task: Task, logits: Tensor, bags: Tensor, target: Tensor) -> Tensor:
    """-log P(count allowed) of every bag, (bags,), in float64, of log-odds (items,)."""
    point = logits.double(), bags, target
    if torch.compiler.is_compiling():
        return _operator(*point, *task)[0]
    if all(map(ops.has_memory, point)):
        return _solve(task, *point)[0]
    return Expression.apply(OverBatch(lambda *tensors: _solve(task, *tensors)[0]), *point)


# -- rows of bags --------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Bags of similar size: which ones, their log-odds (bags, widest) padded with -inf, and their sizes (bags,).

    ``items`` (bags, widest) are the places of the log-odds among those of all items, where ``inside`` says so.
    """

    bags: Tensor
    logits: Tensor
    sizes: Tensor
    items: Tensor
    inside: Tensor


class Items:
    """Log-odds of items (*b, items) and their bags; the bags of a batch are one longer list of bags.

    ``bags`` holds either the bag of every item, with numbers from 0, or with ``offsets`` where every bag starts.
    """

    def __init__(self, logits: Tensor, bags: Tensor, n_bags: int, offsets: bool) -> None:
        *shape, items = logits.shape
        copies = math.prod(shape)
        self.logits = logits.reshape(copies * items)
        own = bags.expand(*shape, bags.shape[-1]).reshape(copies, bags.shape[-1]).long()
        self.bags = read_bags(torch, own, n_bags, items, offsets=offsets)

    def rows(self) -> Iterator[Rows]:
        """Bags of similar size together; at most half of a row is padding."""
        for bags, item, inside in self.bags.batches(lambda size: max(size, 1)):
            padded = self.logits.new_full(item.shape, -math.inf)
            values = _taken(self.logits, item) if len(self.logits) else padded
            yield Rows(bags, torch.where(inside, values, padded), self.bags.sizes[bags], item, inside)

    def collect(self, parts: list[Tensor], places: list[Tensor]) -> Tensor:
        """Numbers of some rows after the other, in the order of their places."""
        if not parts:
            return self.logits.new_zeros(0, dtype=torch.float64)
        return _taken(torch.cat(parts), torch.argsort(torch.cat(places)))


def _taken(values: Tensor, places: Tensor) -> Tensor:
    """Entries of a vector; unlike indexing it has derivatives of batched gradients."""
    return values.index_select(0, places.reshape(-1)).reshape(places.shape)


# -- what is known, as the counts that it allows -------------------------------------------------------------------


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


def _checked_target(task: Task, target: Tensor, sizes: Tensor) -> Tensor:
    """Targets of bags of these sizes, (bags,)."""
    if task.kind == "proportion":
        share = target.double()
        if not bool(((share >= 0) & (share <= 1)).all()):
            raise ParameterError("`proportions` must be numbers between 0 and 1 on one axis, one per bag.")
        return share
    if target.dtype.is_floating_point and bool((target != target.round()).any()):
        raise ParameterError(
            f"`{task.name}` must be integers on one axis, one per bag; others of {target.dtype} arrived."
        )
    wanted = target.long()
    if task.kind == "presence":
        if bool(((wanted != 0) & (wanted != 1)).any()):
            raise ParameterError("`labels` must be 0 or 1 on one axis, one per bag.")
        least = int(task.number or 0)
        if least < 1 or bool(((wanted == 1) & (sizes < least)).any()):
            raise ParameterError(
                f"`at_least` must be positive and no more than the size of any positive bag; {least} arrived."
            )
    elif bool(((wanted < 0) | (wanted > sizes)).any()):
        bag = int(torch.nonzero((wanted < 0) | (wanted > sizes))[0])
        raise ParameterError(
            f"`counts[{bag}]` must be between 0 and {int(sizes[bag])}, the size of the bag; {int(wanted[bag])} arrived."
        )
    return wanted


# -- losses and slopes ---------------------------------------------------------------------------------------------


def _solve(
    task: Task, logits: Tensor, bags: Tensor, target: Tensor, *, slopes: bool = False
) -> tuple[Tensor, Tensor]:
    """The loss of every bag, (*b, bags), and if asked for its slope by every item, (*b, items).

    The slope is P(y = 1) - P(y = 1 | what is known).
    """
    shape = logits.shape[:-1]
    found = Items(logits, bags, target.shape[-1], task.offsets)
    wanted = _checked_target(task, target.expand(*shape, target.shape[-1]).reshape(-1), found.bags.sizes)
    numbers, places, own, items = [], [], [], []
    for rows in found.rows():
        posed = pose(rows.logits, _allowed(task, wanted, rows))
        log_z = functions.statistics(posed, counts=False) if slopes else [functions.log_partition_of(posed)]
        numbers.append(log_free(rows.logits) - log_z[0])
        places.append(rows.bags)
        if slopes:
            own.append((torch.sigmoid(rows.logits) - log_z[1])[rows.inside])
            items.append(rows.items[rows.inside])
    values = found.collect(numbers, places).reshape(*shape, target.shape[-1])
    return values, found.collect(own, items).reshape(logits.shape) if slopes else values


# -- in compiled graphs --------------------------------------------------------------------------------------------


def _losses_and_slopes(logits: Tensor, bags: Tensor, target: Tensor, *task: Any) -> tuple[Tensor, Tensor]:
    return _solve(Task(*task), logits, bags, target, slopes=True)


_operator = torch.library.custom_op(
    "tallytree::bag_losses",
    _losses_and_slopes,
    mutates_args=(),
    schema="(Tensor logits, Tensor bags, Tensor target, str kind, float? number, bool offsets) -> (Tensor, Tensor)",
)
_operator.register_fake(
    lambda logits, bags, target, *_: (logits.new_empty(target.shape), ops.empty_like(logits))
)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.offsets = inputs[-1]
    ctx.save_for_backward(inputs[1], output[1])


def _backward(ctx: Any, by_losses: Tensor, _: Any) -> Any:
    """The slopes of every item, times the weight of its bag."""
    bags, slopes = ctx.saved_tensors
    owner = bags.long()
    if ctx.offsets:
        places = torch.arange(slopes.shape[-1], device=bags.device)
        owner = torch.searchsorted(owner.contiguous(), places, right=True) - 1
    return by_losses.gather(-1, owner) * slopes, *[None] * 5


_operator.register_autograd(_backward, setup_context=_keep)
