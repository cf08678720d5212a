"""Losses for labels that are known only as counts: bags, proportions, positive-unlabelled data, multiple instances.

Every loss is the negative logarithm of an exact probability, so that a bag of probability 1e-300 has a gradient as
good as any other. Items of all bags stand in ``logits`` (items,), and ``bags`` says where they belong:

- the bag of every item, (items,), numbers from 0, in any order;
- with ``offsets=True`` where every bag starts, increasing from 0, (bags,), or (bags + 1,) with the number of items;
- or a row layout: ``bags=None`` and ``logits`` of shape (..., n), one bag per row, -inf on padding.

``bags`` is structure: under ``jit`` it must be constant.

Bags become rows of equal length, padded with items that are never on. They are gathered in the dtype of the log-odds,
before anything is widened: a gather of 64-bit numbers could not be differentiated backwards while JAX's 64-bit flag is
off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..errors import ParameterError
from ..structure.bags import read_bags
from .answers import event_log_prob, one_count
from .arrays import (
    holds,
    in_floats,
    in_floats_of_jax,
    is_concrete,
    numbers,
    require,
    working_dtype,
    zeros_and_ones,
)
from .flat import bucket
from .ladder import log_weight_of_leaves
from .potentials import at_least

_REDUCTIONS = ("mean", "sum", "none")


def bag_nll(logits: Any, bags: Any, counts: Any, *, offsets: bool = False, reduction: str = "mean") -> Any:
    """Negative log-probability of the number of items that are on in every bag.

    ``-log P(sum of y in bag b = counts[b])`` for independent items y with log-odds ``logits``.

    Parameters
    ----------
    logits : (items,), or (..., n) with ``bags=None``
        Log-odds of the items.
    bags : (items,) integer array, (bags,) with ``offsets=True``, or None
        The bag of every item, or with ``offsets=True`` the index at which every bag starts. With None the last axis of
        `logits` is a bag, and items with log-odds of -inf are padding.
    counts : (bags,) or (...,) integers
        How many items of each bag are on.
    offsets : bool
        Whether `bags` says where every bag starts instead of the bag of every item.
    reduction : {"mean", "sum", "none"}
        How the losses of the bags are combined.

    Returns
    -------
    array
        One number, or one per bag with ``reduction="none"``.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.losses.proportion_nll
    tallytree.estimators.LabelProportions

    Notes
    -----
    A count that is impossible has the loss inf and the gradient 0.

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.losses.bag_nll(jnp.zeros(4), jnp.array([0, 0, 1, 1]), jnp.array([1, 2]), reduction="none").round(4)
    Array([0.6931, 1.3863], dtype=float32)
    """
    return _loss(_count_nll, logits, bags, "counts", counts, offsets, reduction)


def _count_nll(rows: Any, sizes: Any, counts: Any) -> Any:
    return -event_log_prob(rows, one_count(_counts("counts", counts, sizes), rows.shape[-1]))


def proportion_nll(
    logits: Any, bags: Any, proportions: Any, *, offsets: bool = False, reduction: str = "mean"
) -> Any:
    """Negative log-probability of the share of items that are on in every bag.

    The share stands for the nearest count; see :func:`bag_nll`.

    An item with log-odds of -inf belongs to its bag like any other; only with ``bags=None`` it is padding.

    Parameters
    ----------
    logits : array, (items,), or (..., n) with ``bags=None``
        Log-odds of the items to be on.
    bags : (items,) integer array, (bags,) with ``offsets=True``, or None
        The bag of every item, see :func:`bag_nll`.
    proportions : (bags,) array
        Shares of items that are on.
    offsets : bool
        Whether `bags` says where every bag starts instead of the bag of every item.
    reduction : "mean", "sum" or "none"
        How the losses of the bags are combined.

    Returns
    -------
    array
        One number, or one per bag with ``reduction="none"``.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.losses.bag_nll

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> round(float(ttj.losses.proportion_nll(jnp.zeros((1, 2)), None, jnp.array([0.5]))), 4)
    0.6931
    """
    return _loss(_share_nll, logits, bags, "proportions", proportions, offsets, reduction)


def _share_nll(rows: Any, sizes: Any, proportions: Any) -> Any:
    shares = jnp.asarray(proportions).astype(working_dtype())
    shared = (shares >= 0.0) & (shares <= 1.0)
    require("proportions", shares, shared, "lie in [0, 1]", " Divide the counts by the bag sizes.")
    counts = jnp.round(jax.lax.stop_gradient(shares) * sizes).astype(jnp.int32)
    return jnp.where(shared, -event_log_prob(rows, one_count(counts, rows.shape[-1])), jnp.nan)


def positive_unlabelled_nll(
    logits: Any, labelled: Any, bags: Any, positives: Any, *, offsets: bool = False, reduction: str = "mean"
) -> Any:
    """Loss for labelled and unlabelled items in bags with known numbers of items that are on.

    ``-log P(y_labelled = 1, sum of y in bag b = positives[b])``

    Parameters
    ----------
    logits : array, (items,), or (..., n) with ``bags=None``
        Log-odds of the items to be on.
    labelled : array of bool, (items,)
        Items that are known to be on.
    bags : (items,) integer array, (bags,) with ``offsets=True``, or None
        The bag of every item, see :func:`bag_nll`.
    positives : array of int, (bags,)
        Number of items of each bag that are on, labelled ones included.
    offsets : bool
        Whether `bags` says where every bag starts instead of the bag of every item.
    reduction : {"mean", "sum", "none"}
        How the losses of the bags are combined.

    Returns
    -------
    array
        One number, or one per bag with ``reduction="none"``.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.losses.bag_nll

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> labelled = jnp.array([[True, False]])
    >>> round(float(ttj.losses.positive_unlabelled_nll(jnp.zeros((1, 2)), labelled, None, jnp.array([1]))), 4)
    1.3863
    """
    on, others = zeros_and_ones("labelled", labelled)
    require("labelled", labelled, ~others, "hold zeros and ones", " Round probabilities first.")
    if on.shape != np.shape(logits):
        raise ParameterError(
            f"`labelled` must have the shape of `logits`, {np.shape(logits)}; {np.shape(labelled)} arrived."
        )
    marks = jnp.where(others, jnp.nan, jnp.where(on, 0.0, -jnp.inf))
    return _loss(_labelled_nll, logits, bags, "positives", positives, offsets, reduction, marks)


def _labelled_nll(rows: Any, sizes: Any, positives: Any, marks: Any) -> Any:
    """Marks are 0 for labelled items and -inf for others; NaN, from what is neither, makes the loss NaN."""
    known = marks == 0.0
    # P(y_labelled = 1) times the law of the others' count: their remainder is positives less the labelled.
    sure = jnp.sum(jnp.where(known, jax.nn.softplus(-jnp.where(known, rows, 0.0)), 0.0), -1)
    rest = _counts("positives", positives, sizes) - jnp.sum(known, -1)
    losses = sure - event_log_prob(jnp.where(known, -jnp.inf, rows), one_count(rest, rows.shape[-1]))
    return jnp.where(jnp.any(jnp.isnan(marks), -1), jnp.nan, losses)


def mil_nll(logits: Any, bags: Any, labels: Any, *, offsets: bool = False, reduction: str = "mean") -> Any:
    """Negative log-probability of the labels of bags, which say whether at least one item is on.

    ``-log P(sum of y >= 1)`` for label 1, ``-log P(sum of y = 0)`` for label 0.

    Parameters
    ----------
    logits : array, (items,), or (..., n) with ``bags=None``
        Log-odds of the items to be on.
    bags : (items,) integer array, (bags,) with ``offsets=True``, or None
        The bag of every item, see :func:`bag_nll`.
    labels : (bags,) array of 0 and 1
        Whether the bag has an item that is on.
    offsets : bool
        Whether `bags` says where every bag starts instead of the bag of every item.
    reduction : "mean", "sum" or "none"
        How the losses of the bags are combined.

    Returns
    -------
    array
        One number, or one per bag with ``reduction="none"``.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.losses.bag_nll
    tallytree.estimators.BagClassifier

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.losses.mil_nll(jnp.zeros((2, 2)), None, jnp.array([0, 1]), reduction="none").round(4)
    Array([1.3863, 0.2877], dtype=float32)
    """
    return _loss(_presence_nll, logits, bags, "labels", labels, offsets, reduction)


def _presence_nll(rows: Any, sizes: Any, labels: Any) -> Any:
    strange = zeros_and_ones("labels", labels)[1]
    require("labels", labels, ~strange, "hold zeros and ones", " Round probabilities first.")
    flags = _integers("labels", labels)
    none = jnp.where(jnp.any(rows == jnp.inf, -1), -jnp.inf, -log_weight_of_leaves(rows))
    some = event_log_prob(rows, at_least(1)) if rows.shape[-1] else jnp.full(rows.shape[:-1], -jnp.inf)
    return jnp.where(strange, jnp.nan, -jnp.where(flags > 0, some, none))


def _integers(name: str, array: Any) -> Any:
    if not holds(array, jnp.integer, jnp.bool_):
        raise ParameterError(f"`{name}` must hold integers; values of type {array.dtype} arrived.")
    return jnp.asarray(array, jnp.int32)


def _counts(name: str, array: Any, sizes: Any) -> Any:
    counts = _integers(name, array)
    legal = (array >= 0) & (array <= sizes)
    require(name, array, legal, "lie between 0 and the number of items of the bag")
    return counts


def _loss(
    losses: Callable[..., Any],
    logits: Any,
    bags: Any,
    name: str,
    targets: Any,
    offsets: bool,
    reduction: str,
    *marks: Any,
) -> Any:
    """``losses(rows, sizes, targets)`` of bags in rows, reduced; marks of the items become further rows."""
    checks.one_of("reduction", reduction, _REDUCTIONS)
    array = numbers(name, targets, "one number per bag")
    n_bags = array.shape[0] if array.ndim else 0
    rows, sizes = rows_of_bags(logits, bags, n_bags, offsets=offsets)
    if array.shape != (sizes.shape if bags is None else (n_bags,)):
        raise ParameterError(
            f"`{name}` must have one entry per bag, shape {sizes.shape if bags is None else '(bags,)'}; "
            f"shape {array.shape} arrived."
        )
    if bags is not None:  # rows without items, which cost nothing
        xp = np if is_concrete(array) else jnp
        array = xp.pad(xp.asarray(array), (0, len(sizes) - n_bags))
    marked = (rows_of_bags(x, bags, n_bags, offsets=offsets)[0] for x in marks)
    return _reduced(losses, rows, (sizes, array, *marked), reduction, array.size if bags is None else n_bags)


@in_floats
def _reduced(
    losses: Callable[..., Any], rows: Any, known: tuple[Any, ...], reduction: str, n_bags: int
) -> Any:
    found = losses(rows.astype(working_dtype()), *known)
    if reduction == "none":
        found = found[:n_bags] if found.ndim == 1 else found
    else:
        found = jnp.sum(found) / (max(n_bags, 1) if reduction == "mean" else 1)
    return found.astype(rows.dtype)


def rows_of_bags(logits: Any, bags: Any, n_bags: int, *, offsets: bool) -> tuple[Any, Any]:
    """Rows (bags, widest bag), both rounded up, in the dtype of `logits`, -inf on padding, and the sizes of the bags.

    With ``bags=None`` the rows are `logits` as they are, and what is -inf counts as padding.
    """
    values = in_floats_of_jax("logits", logits, axis="items")
    if bags is None:
        return values, jnp.sum(values > -jnp.inf, -1)
    place = _places(values, bags, n_bags, offsets=offsets)
    items = values.shape[0]
    # The only step whose shapes are new with every number of items: all others meet a few sizes again and again.
    padded = jnp.pad(values, (0, bucket(items + 1) - items), constant_values=-jnp.inf)
    return _gathered(padded, place), np.sum(place < items, -1)


@jax.jit
def _gathered(values: Any, place: Any) -> Any:
    return values[place]


def _places(values: Any, bags: Any, n_bags: int, *, offsets: bool) -> Any:
    """Which item stands where, (bags, width); the number of items stands for padding."""
    wanted = "integers on one axis, the bag of every item, or offsets"
    index, items = numbers("bags", bags, wanted, (jnp.integer,)), values.shape[-1]
    if not is_concrete(index):
        raise ParameterError(
            "`bags` must be constant, because the sizes of bags are shapes to the compiler; a traced array arrived. "
            "Close over it, or pass one bag per row with -inf on padding and `bags=None`."
        )
    if values.ndim != 1:
        raise ParameterError(
            f"`logits` must have one axis, the items of all bags; shape {values.shape} arrived. "
            "For one bag per row pass `bags=None`."
        )
    if index.ndim != 1:
        raise ParameterError(f"`bags` must be {wanted}; {checks.describe(bags)} arrived.")
    index = np.asarray(index, np.int64)[None]
    found = read_bags(np, index, n_bags, items, offsets=checks.flag("offsets", offsets))
    item, inside = found.padded(np.arange(n_bags), bucket(int(found.sizes.max(initial=1))))
    place = np.where(inside, item, items).astype(np.int32)
    return np.pad(place, ((0, bucket(n_bags) - n_bags), (0, 0)), constant_values=items)
