"""Items of bags as rows of equal length, padded with items that are never on.

Rows are gathered in the dtype of the log-odds, before anything is widened: a gather of 64-bit numbers could not be
differentiated backwards while JAX's 64-bit flag is off.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import checks
from ..errors import ParameterError
from .arrays import as_array, holds, in_floats_of_jax, is_concrete
from .flat import bucket


def rows_of_bags(logits: Any, bags: Any, n_bags: int, *, offsets: bool) -> Any:
    """(bags, widest bag rounded up) in the dtype of `logits`, -inf on padding; ``bags=None``: `logits` as they are."""
    values = in_floats_of_jax("logits", logits, axis="items")
    if bags is None:
        return values
    place = _places(values, bags, n_bags, offsets=offsets)
    extended = jnp.concatenate([values, jnp.full((1,), -jnp.inf, values.dtype)])
    return extended[place]


def _places(values: Any, bags: Any, n_bags: int, *, offsets: bool) -> Any:
    """Which item stands where, (bags, width); the number of items stands for padding."""
    wanted = f"integers on one axis, the bag of every item, or offsets; {checks.describe(bags)} arrived."
    index, items = as_array("bags", bags, wanted), values.shape[-1]
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
    if not holds(index, jnp.integer) or index.ndim != 1:
        raise ParameterError(f"`bags` must be {wanted}")
    index = np.asarray(index)
    if checks.flag("offsets", offsets):
        order, sizes = np.arange(items), _sizes(index, n_bags, items)
    else:
        _require_index(index, n_bags, items)
        order, sizes = np.argsort(index, kind="stable"), np.bincount(index, minlength=n_bags)
    width = bucket(int(sizes.max(initial=1)))
    item = (np.cumsum(sizes) - sizes)[:, None] + np.arange(width)
    inside = np.arange(width) < sizes[:, None]
    return np.where(inside, np.append(order, items)[np.where(inside, item, items)], items).astype(np.int32)


def _require_index(index: Any, n_bags: int, items: int) -> None:
    if len(index) != items:
        raise ParameterError(
            f"`bags` must name the bag of every item, {items} in all; {len(index)} arrived. "
            "For the starts of the bags pass offsets=True."
        )
    if items and (index.min() < 0 or index.max() >= n_bags):
        raise ParameterError(
            f"`bags` must hold numbers from 0 to {n_bags - 1}, one bag per target; {index.min()} to {index.max()} "
            "arrived."
        )


def _sizes(starts: Any, n_bags: int, items: int) -> Any:
    """Sizes from the starts of the bags, with the number of items at the end or not."""
    given = starts
    if len(starts) == n_bags:
        starts = np.append(starts, items)
    rising = len(starts) == n_bags + 1 and starts[0] == 0 and starts[-1] == items
    if not rising or np.any(np.diff(starts) < 0):
        raise ParameterError(
            f"`bags` must hold the start of every bag, increasing from 0, one per target ({n_bags}), with the number "
            f"of items, {items}, at the end or not; {given.tolist()[:8]} arrived."
        )
    return np.diff(starts)
