"""Which natural parameters of a model are free, tied or fixed.

The natural parameters are the logits followed by all log-tables, packed. A label per entry says which free
parameter moves it: entries with one label move together, -1 stays. ``natural = base + free[label]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ParameterError
from ..model import CountModel
from .statistics import CountFeatures

Float64 = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FreeParameters:
    """Labels of the natural parameters, (D + T,), and their values where nothing has moved yet."""

    labels: Ints
    base: Float64
    n_variables: int
    n_free: int

    def natural(self, values: Float64) -> tuple[Float64, Float64]:
        """Logits (D,) and packed tables (T,) for values of the free parameters."""
        moved = self.base + np.append(values, 0.0)[self.labels]
        return moved[: self.n_variables], moved[self.n_variables :]

    def values(self, model: CountModel) -> Float64:
        """Values of the free parameters that come nearest to a model on the same structure."""
        natural = np.concatenate([np.asarray(model.logits, np.float64), *model.tables])
        free = self.labels >= 0
        if len(natural) != len(self.labels) or not np.isfinite(natural[free]).all():
            raise ParameterError(
                "`start` must have the structure of `model` and finite values where they are free."
            )
        labels = self.labels[free]
        uses = np.bincount(labels, minlength=self.n_free)
        return np.asarray(np.bincount(labels, (natural - self.base)[free], self.n_free) / np.maximum(uses, 1))

    def pull(self, gradient: Float64) -> Float64:
        """Gradient with respect to the free parameters."""
        free = self.labels >= 0
        return np.bincount(self.labels[free], gradient[free], self.n_free).astype(np.float64)


def free_parameters(model: CountModel, features: CountFeatures, logits: Any, tables: Any) -> FreeParameters:
    """Labels from what the user says about logits and tables.

    Parameters
    ----------
    logits : "free", "tied", "fixed" or (D,) int array
        "tied" moves all logits together; in an array equal numbers move together and -1 stays.
    tables : "free", "fixed", "by-size" or a list with "free", "fixed" or a label (int) per group
        "by-size" ties the tables of groups of equal size, as do equal labels.
    """
    if model.batch_shape:
        raise ParameterError(
            f"`model` must be a single model, not a batch; batch shape {model.batch_shape} arrived."
        )
    d = model.n_variables
    base = np.concatenate([np.asarray(model.logits, np.float64), *(np.asarray(t) for t in model.tables)])
    labels = np.full(len(base), -1, np.int64)
    labels[:d] = _logit_labels(logits, d)
    n = int(labels.max(initial=-1)) + 1
    sizes = np.diff(features.offset)
    start_of: dict[Any, int] = {}
    for g, name in enumerate(_table_labels(tables, sizes)):
        if name is None:
            continue
        key = (name, int(sizes[g]))
        if key not in start_of:
            start_of[key] = n
            n += int(sizes[g])
        labels[d + features.offset[g] : d + features.offset[g + 1]] = start_of[key] + np.arange(sizes[g])
    labels[~np.isfinite(base)] = -1  # structural zeros and forced variables stay
    used, compact = np.unique(labels[labels >= 0], return_inverse=True)
    labels[labels >= 0] = compact
    return FreeParameters(labels, base, d, len(used))


def _logit_labels(logits: Any, d: int) -> Ints:
    if isinstance(logits, str):
        if logits == "free":
            return np.arange(d)
        if logits == "tied":
            return np.zeros(d, np.int64)
        if logits == "fixed":
            return np.full(d, -1, np.int64)
        raise ParameterError(f"`logits` must be 'free', 'tied', 'fixed' or {d} labels; {logits!r} arrived.")
    labels = np.asarray(logits)
    if labels.shape != (d,) or labels.dtype.kind not in "iu" or (labels < -1).any():
        raise ParameterError(
            f"`logits` must be 'free', 'tied', 'fixed' or {d} integer labels of at least -1; shape "
            f"{labels.shape} and "
            f"dtype {labels.dtype} arrived."
        )
    return labels.astype(np.int64)


def _table_labels(tables: Any, sizes: Ints) -> list[Any]:
    if isinstance(tables, str):
        named: dict[str, list[Any]] = {
            "free": [("own", g) for g in range(len(sizes))],
            "fixed": [None] * len(sizes),
            "by-size": ["size"] * len(sizes),
        }
        if tables in named:
            return named[tables]
    if isinstance(tables, str) or not isinstance(tables, Sequence) or len(tables) != len(sizes):
        raise ParameterError(
            "`tables` must be 'free', 'fixed', 'by-size' or a list with 'free', 'fixed' or a label "
            "for each of the "
            f"{len(sizes)} groups; {tables!r} arrived."
        )
    return [
        ("own", g) if entry == "free" else None if entry == "fixed" else ("label", entry)
        for g, entry in enumerate(tables)
    ]
