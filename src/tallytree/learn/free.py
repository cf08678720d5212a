"""Which natural parameters of a model are free, tied or fixed.

The natural parameters are the logits, all log-tables of groups, packed, and all log-tables of edges, packed.
A label per entry says which free parameter moves it: entries with one label move together, -1 stays.
``natural = base + free[label]``.

Of an edge only the entry (1, 1) may move. It carries the interaction ``log t(1,1) - log t(1,0) - log t(0,1) +
log t(0,0)``; what else a table of four can say is two logits and a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..models.count import CountModel
from .statistics import CountFeatures


@dataclass(frozen=True, eq=False)
class FreeParameters:
    """Labels of the natural parameters, (D + T + 4 E,), and their values where nothing has moved yet."""

    labels: Ints
    base: Float64
    n_variables: int
    n_free: int
    pairs: Ints

    @property
    def parts(self) -> tuple[slice, slice, slice]:
        """Where logits, tables and edges lie among the natural parameters."""
        d, end = self.n_variables, len(self.labels)
        edges = end - 4 * len(self.pairs)
        return slice(0, d), slice(d, edges), slice(edges, end)

    def natural(self, values: Float64) -> tuple[Float64, Float64, Float64]:
        """Logits (D,), packed tables (T,) and packed edges (4 E,) for values of the free parameters."""
        moved = self.base + np.append(values, 0.0)[self.labels]
        logits, tables, edges = self.parts
        return moved[logits], moved[tables], moved[edges]

    def values(self, model: CountModel) -> Float64:
        """Values of the free parameters that come nearest to a model on the same structure."""
        natural = natural_parameters(model)
        free = self.labels >= 0
        if (
            len(natural) != len(self.labels)
            or not np.array_equal(pairs_of(model), self.pairs)
            or not np.isfinite(natural[free]).all()
        ):
            raise ParameterError(
                "`start` must have the structure of `model` and finite values where they are free."
            )
        labels = self.labels[free]
        uses = np.bincount(labels, minlength=self.n_free)
        change = self._change(natural)
        return np.asarray(np.bincount(labels, change[free], self.n_free) / np.maximum(uses, 1))

    def _change(self, natural: Float64) -> Float64:
        """Difference from the base with that of the edges moved to logits and entries (1, 1)."""
        both = np.isfinite(natural) & np.isfinite(self.base)
        change = np.zeros(len(natural))
        change[both] = natural[both] - self.base[both]
        edges = self.parts[2]
        table, fixed = change[edges].reshape(-1, 4), ~both[edges].reshape(-1, 4)[:, 3]
        one, other = table[:, 2] - table[:, 0], table[:, 1] - table[:, 0]
        np.add.at(change, self.pairs[:, 0], one)
        np.add.at(change, self.pairs[:, 1], other)
        moved = np.zeros_like(table)
        moved[:, 3] = np.where(fixed, 0.0, table[:, 3] - table[:, 0] - one - other)
        change[edges] = moved.reshape(-1)
        return change

    def pull(self, gradient: Float64) -> Float64:
        """Gradient with respect to the free parameters."""
        free = self.labels >= 0
        return np.bincount(self.labels[free], gradient[free], self.n_free).astype(np.float64)


def pairs_of(model: CountModel) -> Ints:
    """The pairs of a model's edges, (E, 2)."""
    return np.zeros((0, 2), np.int64) if model.edges is None else model.edges.pairs


def natural_parameters(model: CountModel) -> Float64:
    """Logits, log-tables of groups and log-tables of edges of a model, packed, (D + T + 4 E,)."""
    edges = np.zeros(0) if model.edges is None else model.edges.log_tables.reshape(-1)
    return np.concatenate([np.asarray(model.logits, np.float64), *map(np.asarray, model.tables), edges])


def free_parameters(
    model: CountModel, features: CountFeatures, logits: Any, tables: Any, edges: Any = "free"
) -> FreeParameters:
    """Labels from what the user says about logits, tables and edges.

    Parameters
    ----------
    logits : "free", "tied", "fixed" or (D,) int array
        "tied" moves all logits together; in an array equal numbers move together and -1 stays.
    tables : "free", "fixed", "by-size" or a list with "free", "fixed" or a label (int) per group
        "by-size" ties the tables of groups of equal size, as do equal labels.
    edges : "free", "tied", "fixed" or (E,) int array
        As for logits, for the interactions of the edges.
    """
    if model.batch_shape:
        raise ParameterError(
            f"`model` must be a single model, not a batch; batch shape {model.batch_shape} arrived."
        )
    d = model.n_variables
    base, pairs = natural_parameters(model), pairs_of(model)
    labels = np.full(len(base), -1, np.int64)
    labels[:d] = _labels("logits", logits, d)
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
    own = _labels("edges", edges, len(pairs))
    labels[len(base) - 4 * len(pairs) :][3::4] = np.where(own >= 0, n + own, -1)  # entries (1, 1)
    labels[~np.isfinite(base)] = -1  # structural zeros and forced variables stay
    used, compact = np.unique(labels[labels >= 0], return_inverse=True)
    labels[labels >= 0] = compact
    return FreeParameters(labels, base, d, len(used), pairs)


def _labels(name: str, given: Any, n: int) -> Ints:
    if isinstance(given, str):
        if given == "free":
            return np.arange(n)
        if given == "tied":
            return np.zeros(n, np.int64)
        if given == "fixed":
            return np.full(n, -1, np.int64)
        raise ParameterError(f"`{name}` must be 'free', 'tied', 'fixed' or {n} labels; {given!r} arrived.")
    labels = checks.rectangular(name, given, f"'free', 'tied', 'fixed' or {n} integer labels")
    if labels.shape != (n,) or labels.dtype.kind not in "iu" or (labels < -1).any():
        raise ParameterError(
            f"`{name}` must be 'free', 'tied', 'fixed' or {n} integer labels of at least -1; shape "
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
    for g, entry in enumerate(tables):
        if not isinstance(entry, (str, int, np.integer)):
            raise ParameterError(
                f"`tables` must have 'free', 'fixed' or a label (an integer) per group; "
                f"{checks.describe(entry)} arrived for group {g}."
            )
    return [
        ("own", g) if entry == "free" else None if entry == "fixed" else ("label", entry)
        for g, entry in enumerate(tables)
    ]
