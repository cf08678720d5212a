"""Losses for labels that are known only as counts: bags, proportions, positive-unlabelled data, multiple instances.

Every loss is the negative logarithm of an exact probability, so that a bag of probability 1e-300 has a gradient as
good as any other. Items of all bags stand in ``logits`` (items,), and ``bags`` says where they belong:

- the bag of every item, (items,), numbers from 0, in any order;
- with ``offsets=True`` where every bag starts, increasing from 0, (bags,), or (bags + 1,) with the number of items;
- or a row layout: ``bags=None`` and ``logits`` of shape (..., n), one bag per row, -inf on padding.

``bags`` is structure: under ``jit`` it must be constant.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..errors import ParameterError
from .answers import log_partition
from .arrays import as_array, holds, is_concrete, refuse_others, zeros_and_ones
from .bags import rows_of_bags
from .potentials import at_least
from .precision import in_own_floats, working_dtype
from .solution import log_weight_of_leaves

_REDUCTIONS = ("mean", "sum", "none")


def bag_nll(logits: Any, bags: Any, counts: Any, *, offsets: bool = False, reduction: str = "mean") -> Any:
    """``-log P(sum of y in bag b = counts[b])``, y independent with log-odds ``logits``.

    Parameters
    ----------
    logits : (items,), or (..., n) with ``bags=None``
        Log-odds of the items.
    bags : integers or None
        The bag of every item, or with ``offsets=True`` where every bag starts; see the module.
    counts : (bags,) or (...,) integers
        How many items of each bag are on.
    offsets : bool
        Whether `bags` says where every bag starts instead of the bag of every item.
    reduction : {"mean", "sum", "none"}
        What to do with the losses of the bags.

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
    A count that cannot occur has loss inf and gradient 0.

    Examples
    --------
    >>> ttj.losses.bag_nll(jnp.zeros(4), jnp.array([0, 0, 1, 1]), jnp.array([1, 2]), reduction="none").round(4)
    Array([0.6931, 1.3863], dtype=float32)
    """
    rows, counts = _rows(logits, bags, "counts", counts, offsets, reduction)
    return _bag_nll(rows, counts, reduction)


@in_own_floats
def _bag_nll(rows: Any, counts: Any, reduction: str) -> Any:
    target = _one_count(_counts("counts", counts, rows), rows)
    return _reduced(_event_nll(_widened(rows), target), reduction, rows.dtype)


def proportion_nll(
    logits: Any, bags: Any, proportions: Any, *, offsets: bool = False, reduction: str = "mean"
) -> Any:
    """As :func:`bag_nll`, with the share of items that are on; it is rounded to the nearest count.

    Parameters
    ----------
    logits : array, (items,)
        Log-odds of the items to be on.
    bags : (items,) integer array
        The bag of every item.
    proportions : (bags,) array
        Shares of items that are on.
    offsets : bool
        Whether `bags` says where every bag starts instead of the bag of every item.
    reduction : "mean", "sum" or "none"
        Over the bags.

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
    >>> round(float(ttj.losses.proportion_nll(jnp.zeros((1, 2)), None, jnp.array([0.5]))), 4)
    0.6931
    """
    rows, shares = _rows(logits, bags, "proportions", proportions, offsets, reduction)
    return _proportion_nll(rows, shares, reduction)


@in_own_floats
def _proportion_nll(rows: Any, proportions: Any, reduction: str) -> Any:
    _require_one_per_bag("proportions", proportions, rows)
    shares = jnp.asarray(proportions).astype(working_dtype())
    shared = (shares >= 0.0) & (shares <= 1.0)
    if is_concrete(shared) and not np.all(shared):
        raise ParameterError(
            "`proportions` must lie in [0, 1]; others arrived. Divide the counts by the bag sizes."
        )
    sizes = jnp.sum(rows > -jnp.inf, -1)
    counts = jnp.round(jax.lax.stop_gradient(shares) * sizes).astype(jnp.int32)
    losses = _event_nll(_widened(rows), _one_count(counts, rows))
    return _reduced(jnp.where(shared, losses, jnp.nan), reduction, rows.dtype)


def positive_unlabelled_nll(
    logits: Any, labelled: Any, bags: Any, positives: Any, *, offsets: bool = False, reduction: str = "mean"
) -> Any:
    """Labelled items are on, and each bag holds ``positives`` items that are on, labelled ones included.

    ``-log P(y_labelled = 1, sum of y in bag b = positives[b])``

    Parameters
    ----------
    logits : array, (items,)
        Log-odds of the items to be on.
    labelled : array of bool, (items,)
        Items that are known to be on.
    bags : array of int, (items,)
        The bag of every item.
    positives : array of int, (bags,)
        Items that are on, labelled ones included.
    offsets : bool
        Whether `bags` says where every bag starts instead of the bag of every item.
    reduction : {"mean", "sum", "none"}
        Over the bags.

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
    >>> labelled = jnp.array([[True, False]])
    >>> round(float(ttj.losses.positive_unlabelled_nll(jnp.zeros((1, 2)), labelled, None, jnp.array([1]))), 4)
    1.3863
    """
    rows, positives = _rows(logits, bags, "positives", positives, offsets, reduction)
    on, others = zeros_and_ones("labelled", labelled)
    refuse_others("labelled", others)
    if on.shape != np.shape(logits):
        raise ParameterError(
            f"`labelled` must have the shape of `logits`, {np.shape(logits)}; {np.shape(labelled)} arrived."
        )
    marks = jnp.where(others, jnp.nan, jnp.where(on, 0.0, -jnp.inf))
    marks, _ = _rows(marks, bags, "positives", positives, offsets, reduction)
    return _positive_unlabelled_nll(rows, marks, positives, reduction)


@in_own_floats
def _positive_unlabelled_nll(rows: Any, marks: Any, positives: Any, reduction: str) -> Any:
    """Marks are 0 for labelled items and -inf for others; NaN, from what is neither, makes the loss NaN."""
    dtype, rows, known = rows.dtype, _widened(rows), marks == 0.0
    # P(y_labelled = 1) times the law of the others' count: their remainder is positives less the labelled.
    sure = jnp.sum(jnp.where(known, jax.nn.softplus(-jnp.where(known, rows, 0.0)), 0.0), -1)
    rest = _counts("positives", positives, rows) - jnp.sum(known, -1)
    others = jnp.where(known, -jnp.inf, rows)
    losses = sure + _event_nll(others, _one_count(rest, rows))
    return _reduced(jnp.where(jnp.any(jnp.isnan(marks), -1), jnp.nan, losses), reduction, dtype)


def mil_nll(logits: Any, bags: Any, labels: Any, *, offsets: bool = False, reduction: str = "mean") -> Any:
    """Multiple instances: a bag's label says whether at least one of its items is on.

    ``-log P(sum of y >= 1)`` for label 1, ``-log P(sum of y = 0)`` for label 0.

    Parameters
    ----------
    logits : array, (items,)
        Log-odds of the items to be on.
    bags : (items,) integer array
        The bag of every item.
    labels : (bags,) array of 0 and 1
        Whether the bag has an item that is on.
    offsets : bool
        Whether `bags` says where every bag starts instead of the bag of every item.
    reduction : "mean", "sum" or "none"
        Over the bags.

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
    >>> ttj.losses.mil_nll(jnp.zeros((2, 2)), None, jnp.array([0, 1]), reduction="none").round(4)
    Array([1.3863, 0.2877], dtype=float32)
    """
    rows, flags = _rows(logits, bags, "labels", labels, offsets, reduction)
    return _mil_nll(rows, flags, reduction)


@in_own_floats
def _mil_nll(rows: Any, labels: Any, reduction: str) -> Any:
    dtype, rows = rows.dtype, _widened(rows)
    strange = zeros_and_ones("labels", labels)[1]
    refuse_others("labels", strange)
    flags = _counts("labels", labels, rows)
    finite = jnp.isfinite(rows)
    none = -jnp.sum(jnp.where(finite, jax.nn.softplus(jnp.where(finite, rows, 0.0)), 0.0), -1)
    none = jnp.where(jnp.any(rows == jnp.inf, -1), -jnp.inf, none)
    some = -_event_nll(rows, at_least(1)) if rows.shape[-1] else jnp.full(rows.shape[:-1], -jnp.inf)
    losses = -jnp.where(flags > 0, some, none)
    return _reduced(jnp.where(strange, jnp.nan, losses), reduction, dtype)


def _event_nll(rows: Any, table: Any) -> Any:
    """``-log P(event)`` of the rows, (B,); inf with derivative 0 for an event that cannot happen."""
    joint = log_partition(rows, table)
    possible = joint > -jnp.inf
    return jnp.where(possible, log_weight_of_leaves(rows) - jnp.where(possible, joint, 0.0), jnp.inf)


def _one_count(counts: Any, rows: Any) -> Any:
    """The log-table of exactly so many, (B, n + 1)."""
    return jnp.where(jnp.arange(rows.shape[-1] + 1) == counts[..., None], 0.0, -jnp.inf)


def _require_one_per_bag(name: str, targets: Any, rows: Any) -> None:
    if targets.shape != rows.shape[:-1]:
        raise ParameterError(
            f"`{name}` must have one entry per bag, shape {rows.shape[:-1]}; shape {targets.shape} arrived."
        )


def _counts(name: str, array: Any, rows: Any) -> Any:
    if not holds(array, jnp.integer, jnp.bool_):
        raise ParameterError(f"`{name}` must hold integers; values of type {array.dtype} arrived.")
    _require_one_per_bag(name, array, rows)
    sizes = jnp.sum(rows > -jnp.inf, -1)
    if is_concrete(array, rows):
        wrong = np.asarray((array < 0) | (array > sizes))
        if wrong.any():
            b = int(np.argmax(wrong.reshape(-1)))
            raise ParameterError(
                f"`{name}` must lie between 0 and the number of items of the bag; "
                f"{np.asarray(array).reshape(-1)[b]} arrived for bag {b}, which has {sizes.reshape(-1)[b]} items."
            )
    return jnp.asarray(array, jnp.int32)


def _rows(logits: Any, bags: Any, name: str, targets: Any, offsets: bool, reduction: str) -> tuple[Any, Any]:
    """One bag per row, and the targets, of which there are as many as bags."""
    checks.one_of("reduction", reduction, _REDUCTIONS)
    wanted = f"one number per bag; {checks.describe(targets)} arrived."
    array = as_array(name, targets, wanted)
    if not holds(array, jnp.floating, jnp.integer, jnp.bool_):
        raise ParameterError(f"`{name}` must be {wanted}")
    return rows_of_bags(logits, bags, array.shape[0] if array.ndim else 0, offsets=offsets), array


def _widened(rows: Any) -> Any:
    return rows.astype(working_dtype())


def _reduced(losses: Any, reduction: str, dtype: Any) -> Any:
    if reduction == "mean":
        losses = jnp.mean(losses) if losses.size else jnp.zeros(())
    elif reduction == "sum":
        losses = jnp.sum(losses)
    return losses.astype(dtype)
