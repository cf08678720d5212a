"""Losses of weak supervision: only counts, proportions or their presence are known about bags of items.

Every loss is a negative log-probability of the bag, computed as a difference of two log Z, so that unlikely bags, which
teach most, have right gradients however small their probability is.
The losses of all bags are one function of the log-odds of all items, and a mapped axis is as many more bags.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from .. import checks
from ..errors import ParameterError
from ..structure.bags import read_bags
from . import functions, ops, tensors
from .arguments import pose
from .autograd import Expression, OverBatch
from .poisson_binomial import log_free
from .potentials import TensorPotential, between, exactly


def bag_nll(logits: Any, bags: Any, counts: Any, *, offsets: bool = False, reduction: str = "mean") -> Tensor:
    """Negative log-probability of the number of positive items in every bag.

    Parameters
    ----------
    logits : Tensor, (items,)
        Log-odds of the items to be positive.
    bags : Tensor of int
        The bag of every item, (items,), or with ``offsets=True`` where every bag starts, (bags,).
    counts : Tensor of int, (bags,)
        Number of positive items in every bag.
    offsets : bool
        Whether `bags` holds where every bag starts instead of the bag of every item.
    reduction : {"mean", "sum", "none"}
        How the losses of the bags are combined.

    Returns
    -------
    tensor
        One number, or one per bag with ``reduction="none"``.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.torch.losses.proportion_nll
    tallytree.estimators.LabelProportions

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.losses.bag_nll(torch.zeros(4), torch.tensor([0, 0, 1, 1]), torch.tensor([1, 2]), reduction="none")
    tensor([0.6931, 1.3863])
    """
    return _reduced(Task("count", None, checks.flag("offsets", offsets)), logits, bags, counts, reduction)


def proportion_nll(
    logits: Any,
    bags: Any,
    proportions: Any,
    *,
    tolerance: float | None = None,
    offsets: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-probability of the proportion of positive items in every bag.

    Parameters
    ----------
    logits : Tensor, (items,)
        Log-odds of the items to be positive.
    bags : Tensor of int
        The bag of every item, (items,), or with ``offsets=True`` where every bag starts, (bags,).
    proportions : Tensor, (bags,)
        Proportions between 0 and 1. Without `tolerance` they stand for the nearest count.
    tolerance : float, optional
        Allow every count whose proportion differs by no more than this.
    offsets : bool
        Whether `bags` holds where every bag starts instead of the bag of every item.
    reduction : {"mean", "sum", "none"}
        How the losses of the bags are combined.

    Returns
    -------
    tensor
        One number, or one per bag with ``reduction="none"``.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.torch.losses.bag_nll

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.losses.proportion_nll(torch.zeros(4), torch.tensor([0, 0, 0, 0]), torch.tensor([0.5])).exp() * 6
    tensor(16.)
    """
    width = None if tolerance is None else checks.real("tolerance", tolerance, 0.0)
    return _reduced(
        Task("proportion", width, checks.flag("offsets", offsets)), logits, bags, proportions, reduction
    )


def mil_nll(
    logits: Any, bags: Any, labels: Any, *, at_least: int = 1, offsets: bool = False, reduction: str = "mean"
) -> Tensor:
    """Negative log-probability of the labels of bags; a bag is positive if enough of its items are, by default one.

    Parameters
    ----------
    logits : Tensor, (items,)
        Log-odds of the items to be positive.
    bags : Tensor of int
        The bag of every item, (items,), or with ``offsets=True`` where every bag starts, (bags,).
    labels : Tensor of 0 and 1, (bags,)
        Whether a bag is positive.
    at_least : int
        How many positive items make a bag positive, default 1.
    offsets : bool
        Whether `bags` holds where every bag starts instead of the bag of every item.
    reduction : {"mean", "sum", "none"}
        How the losses of the bags are combined.

    Returns
    -------
    tensor
        One number, or one per bag with ``reduction="none"``.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.torch.losses.bag_nll
    tallytree.estimators.BagClassifier

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.losses.mil_nll(torch.zeros(2), torch.tensor([0, 0]), torch.tensor([1])).neg().exp()
    tensor(0.7500)
    """
    least = checks.integer("at_least", at_least)
    return _reduced(
        Task("presence", float(least), checks.flag("offsets", offsets)), logits, bags, labels, reduction
    )


def positive_unlabelled_nll(
    logits: Any,
    labelled: Any,
    prior: Any,
    *,
    bags: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Loss for positive and unlabelled items, of which a known share `prior` is positive.

    The loss of a labelled item is its negative log-probability to be positive. The loss of a bag of unlabelled items
    is a cross-entropy, divided by the size of the bag: between the binomial distribution of the number of positives
    under the prior and the distribution that the logits give it.

    Parameters
    ----------
    logits : Tensor, (items,)
        Log-odds of the items to be positive.
    labelled : Tensor of bool, (items,)
        Items that are known to be positive.
    prior : float
        Share of positive items among the unlabelled ones, between 0 and 1.
    bags : Tensor of int, (items,), optional
        Bag of every item; default one bag. The bags of labelled items do not matter.
    reduction : {"mean", "sum"}
        "mean": mean over the labelled items plus mean over the bags.

    Returns
    -------
    tensor
        One number.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.torch.losses.bag_nll

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> labelled = torch.tensor([True, False, False])
    >>> ttt.losses.positive_unlabelled_nll(torch.zeros(3), labelled, 0.5)
    tensor(1.2130)
    """
    checks.one_of("reduction", reduction, ("mean", "sum"))
    values, index = _items(logits, bags)
    known = tensors.as_mask("labelled", labelled, values.device)
    share = checks.real("prior", prior, 0.0, 1.0)
    if known.shape != values.shape or index.shape != values.shape:
        raise ParameterError(
            f"`labelled` and `bags` must have one entry for every item, {len(values)} in all; shapes "
            f"{tuple(known.shape)} and {tuple(index.shape)} arrived."
        )
    if None in [tensors.known(tensor != 0) for tensor in (values, known, index)]:
        raise ParameterError(
            "`positive_unlabelled_nll` must see its numbers, but a tensor that is traced or mapped arrived. Call it "
            "outside torch.compile and vmap."
        )
    if bool(torch.isnan(values).any()):
        raise ParameterError("`logits` must not contain NaN. Use -inf for an item that cannot be positive.")
    hidden = index[~known]
    n_bags = int(hidden.max()) + 1 if len(hidden) else 0
    found = Items(values[~known], hidden, n_bags, offsets=False)
    parts, places = [], []
    for rows in found.rows():
        log_probs = functions.count_log_probs(rows.logits.double())
        weights = _binomial(rows.sizes, log_probs.shape[-1], share)
        seen = weights > 0.0
        cross = -torch.where(seen, weights * torch.where(seen, log_probs, 0.0), 0.0).sum(-1)
        parts.append(cross / rows.sizes.clamp(min=1))  # an empty bag says nothing
        places.append(rows.bags)
    own, hidden_losses = softplus(-values[known]), found.collect(parts, places).to(values.dtype)
    if reduction == "sum":
        return own.sum() + hidden_losses.sum()
    total = own.mean() if len(own) else values.sum() * 0.0
    return total + (hidden_losses.mean() if n_bags else 0.0)


def _binomial(sizes: Tensor, width: int, share: float) -> Tensor:
    """Binomial probabilities (bags, width)."""
    c = torch.arange(width, dtype=torch.float64, device=sizes.device)
    n = sizes.double()[:, None]
    if share in (0.0, 1.0):
        return (c == n * share).double()
    rest = (n - c).clamp(min=0.0)
    log_weight = torch.lgamma(n + 1) - torch.lgamma(c + 1) - torch.lgamma(rest + 1)
    log_weight = log_weight + c * math.log(share) + rest * math.log1p(-share)
    return torch.where(c <= n, log_weight.exp(), 0.0)


def _items(logits: Any, bags: Any) -> tuple[Tensor, Tensor]:
    """Log-odds of all items, and their bags or where these start; None is one bag."""
    values = tensors.as_logits(logits)
    if values.dim() != 1:
        raise ParameterError(
            f"`logits` must have one axis, the items of all bags; shape {tuple(values.shape)} arrived."
        )
    if bags is None:
        return values, torch.zeros_like(values, dtype=torch.long)
    index = tensors.as_real("bags", bags, values.device)
    if index.dtype.is_floating_point or index.dtype == torch.bool or index.dim() != 1:
        raise ParameterError("`bags` must be integers on one axis: the bag of every item, or offsets.")
    return values, index


def _reduced(task: Task, logits: Any, bags: Any, target: Any, reduction: str) -> Tensor:
    """The loss of every bag, or their mean or sum."""
    checks.one_of("reduction", reduction, ("mean", "sum", "none"))
    values, index = _items(logits, bags)
    wanted = tensors.as_real(task.name, target, values.device)
    if wanted.dim() != 1:
        raise ParameterError(
            f"`{task.name}` must have one axis, one number per bag; shape {tuple(wanted.shape)} arrived."
        )
    found = _losses(task, values, index, wanted).to(values.dtype)
    if reduction == "none":
        return found
    # The mean over no bags is zero, as their sum is.
    return found.sum() / max(1, len(found)) if reduction == "mean" else found.sum()


# -- bags of items, and what is known about them ---------------------------------------------------------------------


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


def _losses(task: Task, logits: Tensor, bags: Tensor, target: Tensor) -> Tensor:
    """-log P(count allowed) of every bag, (bags,), in float64, of log-odds (items,)."""
    point = logits.double(), bags, target
    if torch.compiler.is_compiling():
        return _operator(*point, *task)[0]
    if all(map(ops.has_memory, point)):
        return _solve(task, *point)[0]
    return Expression.apply(OverBatch(lambda *given: _solve(task, *given)[0]), *point)


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


__all__ = ["bag_nll", "mil_nll", "positive_unlabelled_nll", "proportion_nll"]
