"""Losses of weak supervision: only counts, proportions or their presence are known about bags of items.

Every loss is a negative log-probability of the bag, computed as a difference of two log Z, so that unlikely bags, which
teach most, have right gradients however small their probability is.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from .. import checks
from ..errors import ParameterError
from . import bags as bag_models
from . import functions, tensors
from .bags import Items, Task


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
        Whether `bags` holds starts instead of numbers of bags.
    reduction : {"mean", "sum", "none"}
        Over the bags.

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
        Between 0 and 1. The count is the integer next to proportion times size; with `tolerance` every count whose
        proportion is that near is allowed.
    tolerance : float, optional
        Half the width of the range of proportions that is allowed.
    offsets : bool
        Whether `bags` holds starts instead of numbers of bags.
    reduction : {"mean", "sum", "none"}
        Over the bags.

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
    """Multiple instances: a bag is positive if at least so many of its items are; negative log-probability of labels.

    Parameters
    ----------
    logits : Tensor, (items,)
        Log-odds of the items to be positive.
    bags : Tensor of int
        The bag of every item, (items,), or with ``offsets=True`` where every bag starts, (bags,).
    labels : Tensor of 0 and 1, (bags,)
        Whether a bag is positive.
    at_least : int
        How many positive items make a bag positive.
    offsets : bool
        Whether `bags` holds starts instead of numbers of bags.
    reduction : {"mean", "sum", "none"}
        Over the bags.

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
    """Positive and unlabelled items: labelled ones are positive, of the others a share `prior` is.

    The loss of a bag of unlabelled items is the cross-entropy between the binomial law of its number of positives under
    the prior and the law that the logits give it, divided by its size; that of a labelled item is its own negative
    log-probability.

    Parameters
    ----------
    logits : Tensor, (items,)
        Log-odds of the items to be positive.
    labelled : Tensor of bool, (items,)
        Items that are known to be positive.
    prior : float
        Share of positive items among the unlabelled ones, between 0 and 1.
    bags : Tensor of int, (items,), optional
        Bags of unlabelled items; default one bag. Those of labelled items are not looked at.
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
    found = bag_models.losses(task, values, index, wanted).to(values.dtype)
    if reduction == "none":
        return found
    # The mean over no bags is zero, as their sum is.
    return found.sum() / max(1, len(found)) if reduction == "mean" else found.sum()


__all__ = ["bag_nll", "mil_nll", "positive_unlabelled_nll", "proportion_nll"]
