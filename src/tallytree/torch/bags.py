"""Bags of items of which only counts are known: the losses of all bags, and their derivatives to any order.

The losses are one function of the log-odds x of all items. No item is in two bags, so that the slopes

    S(x) = d loss / dx = P(y = 1) - P(y = 1 | what is known)

and their derivatives S(x; u_1, .., u_m) along directions are one number per item, symmetric and linear in the
directions: all further derivatives are of the same kind. A mapped axis is as many more bags.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import ParameterError
from . import functions, ops
from .autograd import expression, vjp, watched
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
        found: Tensor = bag_losses.op(*point, *task)[0]
    elif watched(*point):
        found = Losses.apply(*point, task)[0]
    else:
        found = _solve(task, *point, slopes=False)[0]
    return found


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


class Bags:
    """Items (*b, items) sorted by bag; the bags of a batch are one longer list of bags.

    ``bags`` holds either the bag of every item, with numbers from 0, or with ``offsets`` where every bag starts.
    """

    def __init__(self, logits: Tensor, bags: Tensor, n_bags: int, offsets: bool) -> None:
        *shape, items = logits.shape
        copies = math.prod(shape)
        self.logits = logits.reshape(copies * items)
        own = bags.expand(*shape, bags.shape[-1]).reshape(copies, bags.shape[-1]).long()
        place = torch.arange(copies, device=own.device)[:, None]
        if offsets:
            own = _starts(own, n_bags, items)
            ends = torch.cat([own[:, 1:], torch.full_like(own[:, :1], items)], dim=1)
            self.order = None
            self.starts, self.sizes = (own + items * place).reshape(-1), (ends - own).reshape(-1)
            return
        if own.shape[-1] != items:
            raise ParameterError(
                f"`bags` must name the bag of every item, {items} in all; {own.shape[-1]} arrived. For the starts of "
                "the bags pass offsets=True."
            )
        if bool(((own < 0) | (own >= n_bags)).any()):
            raise ParameterError(
                f"`bags` must hold numbers from 0 to {n_bags - 1}, one bag per target; {int(own.min())} to "
                f"{int(own.max())} arrived."
            )
        index = (own + n_bags * place).reshape(-1)
        self.order = torch.argsort(index, stable=True)
        self.sizes = torch.bincount(index, minlength=copies * n_bags)
        self.starts = self.sizes.cumsum(0) - self.sizes

    def rows(self) -> Iterator[Rows]:
        """Bags whose sizes share a power of two, together; at most half of a row is padding."""
        octave = torch.ceil(torch.log2(self.sizes.clamp(min=1).double())).long()
        for power in octave.unique().tolist():
            bags = torch.nonzero(octave == power).squeeze(-1)
            sizes = self.sizes[bags]
            place = torch.arange(max(1, int(sizes.max())), device=sizes.device)
            inside = place < sizes[:, None]
            item = (self.starts[bags][:, None] + place).masked_fill(~inside, 0)
            item = item if self.order is None or not len(self.order) else self.order[item]
            padded = self.logits.new_full(item.shape, -math.inf)
            values = _taken(self.logits, item) if len(self.logits) else padded
            yield Rows(bags, torch.where(inside, values, padded), sizes, item, inside)

    def collect(self, parts: list[Tensor], places: list[Tensor]) -> Tensor:
        """Numbers of some rows after the other, in the order of their places."""
        if not parts:
            return self.logits.new_zeros(0, dtype=torch.float64)
        return _taken(torch.cat(parts), torch.argsort(torch.cat(places)))


def _taken(values: Tensor, places: Tensor) -> Tensor:
    """Entries of a vector; unlike indexing it has derivatives of batched gradients."""
    return values.index_select(0, places.reshape(-1)).reshape(places.shape)


def _starts(offsets: Tensor, n_bags: int, items: int) -> Tensor:
    """Starts of the bags of every row, without the end that may follow them."""
    starts = offsets
    if starts.shape[-1] == n_bags + 1 and bool((starts[:, -1] == items).all()):
        starts = starts[:, :-1]
    bounds = torch.nn.functional.pad(starts, (0, 1), value=items)
    rising = bool((bounds[:, 1:] >= bounds[:, :-1]).all()) and bool((starts[:, :1] == 0).all())
    if starts.shape[-1] != n_bags or not rising:
        raise ParameterError(
            f"`bags` must hold the start of every bag, increasing from 0, one per target ({n_bags}), with the number "
            f"of items at the end or not; {offsets.tolist()[:1]} arrived first."
        )
    return starts


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
    task: Task, logits: Tensor, bags: Tensor, target: Tensor, *, slopes: bool
) -> tuple[Tensor, Tensor]:
    """The loss of every bag, (*b, bags), and if asked for the slope of every item, (*b, items)."""
    shape = logits.shape[:-1]
    found = Bags(logits, bags, target.shape[-1], task.offsets)
    wanted = _checked_target(task, target.expand(*shape, target.shape[-1]).reshape(-1), found.sizes)
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


def _owner(task: Task, bags: Tensor, logits: Tensor) -> Tensor:
    """The bag of every item, (*b, items)."""
    if not task.offsets:
        return bags.long().expand(logits.shape)
    places = torch.arange(logits.shape[-1], device=bags.device).expand(logits.shape)
    starts = bags.long().expand(*logits.shape[:-1], bags.shape[-1])
    return torch.searchsorted(starts.contiguous(), places.contiguous(), right=True) - 1


class Losses(torch.autograd.Function):
    """Losses (*b, bags) and slopes (*b, items) of log-odds (*b, items)."""

    @staticmethod
    def forward(logits: Tensor, bags: Tensor, target: Tensor, task: Task) -> tuple[Tensor, Tensor]:
        return bag_losses(logits, bags, target, *task)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.task = Task(*inputs[3:]) if len(inputs) > 4 else inputs[3]
        ctx.n_inputs = len(inputs)
        ctx.save_for_backward(*inputs[:3], output[1])
        ctx.save_for_forward(*inputs[:3])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        *point, slopes = ctx.saved_tensors
        found = torch.zeros_like(slopes)
        if grads[0] is not None:
            found = grads[0].gather(-1, _owner(ctx.task, point[1], point[0])) * slopes
        if grads[1] is not None and not torch.compiler.is_compiling():
            found = found + expression(
                lambda x, b, t, u: Slopes.apply(x, b, t, u.unsqueeze(0), ctx.task), *point, grads[1]
            )
        return found, *[None] * (ctx.n_inputs - 1)

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, *_: Any) -> Any:
        def change(logits: Tensor, bags: Tensor, target: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
            slopes = Slopes.apply(logits, bags, target, logits.new_zeros(0, *logits.shape), ctx.task)
            moved = Slopes.apply(logits, bags, target, step.unsqueeze(0), ctx.task)
            none = torch.zeros_like(slopes[..., :1]).expand(*logits.shape[:-1], target.shape[-1])
            return none.scatter_add(-1, _owner(ctx.task, bags, logits), slopes * step), moved

        return expression(change, *ctx.saved_for_forward, by_logits)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return Losses.apply(*_as_batch(info.batch_size, in_dims, arguments)), (0, 0)


class Slopes(torch.autograd.Function):
    """Slopes (*b, items) of log-odds (*b, items), differentiated along directions (m, *b, items)."""

    @staticmethod
    def forward(logits: Tensor, bags: Tensor, target: Tensor, directions: Tensor, task: Task) -> Tensor:
        def slopes(x: Tensor) -> Tensor:
            return _solve(task, x, bags, target, slopes=True)[1]

        found: Callable[[Tensor], Tensor] = slopes
        for direction in directions:
            found = _along(found, direction)
        return found(logits)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.task = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        *point, directions = ctx.saved_tensors
        found: list[Any] = [None] * 5
        if ctx.needs_input_grad[0]:
            found[0] = Slopes.apply(*point, _with(directions, grads[0]), ctx.task)
        if ctx.needs_input_grad[3]:
            rest = [_with(_without(directions, j), grads[0]) for j in range(len(directions))]
            each = [Slopes.apply(*point, others, ctx.task) for others in rest]
            found[3] = torch.stack(each) if each else torch.zeros_like(directions)
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, _: Any, __: Any, by_directions: Any, ___: Any) -> Any:
        def change(x: Tensor, bags: Tensor, target: Tensor, directions: Tensor, dx: Any, dd: Any) -> Tensor:
            steps = [] if dx is None else [_with(directions, dx)]
            for j in range(len(directions) if dd is not None else 0):
                steps.append(_with(_without(directions, j), dd[j]))
            moved = [Slopes.apply(x, bags, target, step, ctx.task) for step in steps]
            return torch.stack(moved).sum(0) if moved else torch.zeros_like(x)

        return expression(change, *ctx.saved_for_forward, by_logits, by_directions)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return Slopes.apply(*_as_batch(info.batch_size, in_dims, arguments)), 0


def _along(slopes: Callable[[Tensor], Tensor], direction: Tensor) -> Callable[[Tensor], Tensor]:
    """The derivative of slopes along a direction, which is a transposed product, too."""

    def moved(x: Tensor) -> Tensor:
        found: Tensor = vjp(slopes, x)[1](direction)[0]
        return found

    return moved


def _with(directions: Tensor, more: Tensor) -> Tensor:
    return torch.cat([directions, more.expand(directions.shape[1:]).unsqueeze(0)])


def _without(directions: Tensor, place: int) -> Tensor:
    return torch.cat([directions[:place], directions[place + 1 :]])


def _as_batch(size: int, dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """Arguments with the mapped axis in front of the batch axes; directions have theirs behind the first."""
    inner = arguments[0].dim() - 1 - (dims[0] is not None)
    out: list[Any] = []
    for place, (value, dim) in enumerate(zip(arguments[:-1], dims)):
        front = value.unsqueeze(0) if dim is None else value.movedim(dim, 0)
        if place == 3:  # directions
            out.append(front.expand(size, *front.shape[1:]).movedim(0, 1))
            continue
        missing = inner + 2 - front.dim()
        front = front.reshape(len(front), *[1] * missing, *front.shape[1:])
        out.append(front.expand(size, *front.shape[1:]))
    return [out[0].contiguous(), *out[1:], arguments[-1]]


def _bag_losses(
    logits: Tensor, bags: Tensor, target: Tensor, kind: str, number: float | None, offsets: bool
) -> tuple[Tensor, Tensor]:
    """Losses and slopes; see :class:`Losses`."""
    return _solve(Task(kind, number, offsets), logits, bags, target, slopes=True)


def _empty(logits: Tensor, bags: Tensor, target: Tensor, *task: Any) -> tuple[Tensor, Tensor]:
    return logits.new_empty(*logits.shape[:-1], target.shape[-1]), ops.empty_like(logits)


bag_losses = ops.Operator("bag_losses", _bag_losses, _empty)
bag_losses.op.register_autograd(Losses.backward, setup_context=Losses.setup_context)
