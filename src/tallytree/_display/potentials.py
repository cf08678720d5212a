"""What potentials and groups show: the function, relative to its largest value."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bars import MOST_BARS, bars
from .heat import heat
from .page import page

_SIZES = (8, 16, 32, 64)  # of the group that a potential is shown for, if it does not say one
_MOST_TABLES = 1024  # of a batch


def potential_page(potential: Any, size: int | None = None) -> str:
    """A potential, for a group of the size that it has or of the first size at which its peak is seen."""
    return page(repr(potential), _pictures(potential, _SIZES if size is None else (size,)))


def group_page(group: Any, potential: Any) -> str:
    """A group: its potential for as many variables as it has."""
    members = group.members
    if members is None or isinstance(members, slice):  # as many as the model has
        return page(repr(group), _pictures(potential, _SIZES))
    try:
        listed = np.asarray(members)
    except ValueError:  # rows of different lengths: the model will refuse them
        return page(repr(group))
    size = int(listed.sum()) if listed.dtype == bool else listed.size
    return page(repr(group), _pictures(potential, (size,)) if size <= MOST_BARS else [])


def _pictures(potential: Any, sizes: tuple[int, ...]) -> list[str]:
    if np.prod(potential.batch_shape, dtype=float) > _MOST_TABLES:
        return []
    log_f = None
    for n in sizes:
        try:
            found = np.asarray(potential.log_table(n), np.float64)
        except Exception:  # it needs another size; a function of the user says so in its own words
            continue
        log_f = found
        if bool((np.argmax(log_f, axis=-1) < n).all()):
            break
    if log_f is None or log_f.size == 0 or log_f.shape[-1] > MOST_BARS + 1:
        return []
    top = log_f.max(axis=-1, keepdims=True)
    relative = np.exp(log_f - np.where(np.isneginf(top), 0.0, top))
    n = log_f.shape[-1] - 1
    title = f"f(count) / largest, {n} variable{'s' * (n != 1)}"
    if log_f.ndim > 1:
        return [heat(relative.reshape(-1, n + 1), f"{title}, one potential to a row")]
    return [bars(relative, range(n + 1), title)]
