"""Which natural parameters of a model are free, tied or fixed.

The natural parameters are the logits, all log-tables of groups, packed, and all log-tables of edges, packed.
A label per entry says which free parameter moves it: entries with one label move together, -1 stays.
``natural = base + free[label]``. Tables of potentials with few parameters follow from these instead, whose coordinates
come last among the free parameters.

Of an edge only the entry (1, 1) may move. It carries the interaction ``log t(1,1) - log t(1,0) - log t(0,1) +
log t(0,0)``; what else a table of four can say is two logits and a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..arrays import Bools, Float64, Ints
from ..errors import ParameterError
from ..models.count import CountModel
from .parametric import Parameter, ParametricPotential
from .parametric_tables import ParametricTables, Place
from .statistics import CountFeatures


@dataclass(frozen=True, eq=False)
class FreeParameters:
    """Labels of the natural parameters, (D + T + 4 E,), and their values where nothing has moved yet."""

    labels: Ints
    base: Float64
    n_variables: int
    n_linear: int
    pairs: Ints
    parametric: ParametricTables

    @property
    def n_free(self) -> int:
        """Number of free parameters, those of potentials included."""
        return self.n_linear + len(self.parametric)

    def coordinates(self, values: Float64) -> Float64:
        """Coordinates of the parameters of potentials, (P,)."""
        return values[self.n_linear :]

    def parameters(self, values: Float64) -> dict[str, float]:
        """Values of the parameters of potentials by name."""
        return self.parametric.values(self.coordinates(values))

    def in_range(self, values: Float64) -> bool:
        """Whether the parameters of potentials make tables."""
        return self.parametric.in_range(self.coordinates(values))

    @property
    def moves_edges(self) -> bool:
        """Whether some interaction is free."""
        return bool((self.labels[self.parts[2]] >= 0).any())

    @property
    def start(self) -> Float64:
        """Values at which nothing has moved yet."""
        return np.concatenate([np.zeros(self.n_linear), self.parametric.start])

    @property
    def parts(self) -> tuple[slice, slice, slice]:
        """Where logits, tables and edges lie among the natural parameters."""
        d, end = self.n_variables, len(self.labels)
        edges = end - 4 * len(self.pairs)
        return slice(0, d), slice(d, edges), slice(edges, end)

    def natural(self, values: Float64) -> tuple[Float64, Float64, Float64]:
        """Logits (D,), packed tables (T,) and packed edges (4 E,) for values of the free parameters."""
        moved = self.base + self._spread(values)
        logits, tables, edges = self.parts
        return moved[logits], self.parametric.fill(moved[tables], self.coordinates(values)), moved[edges]

    def _spread(self, values: Float64) -> Float64:
        """The value that moves each natural parameter, 0 where none does."""
        return np.append(values[: self.n_linear], 0.0)[self.labels]

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
        return np.concatenate([self.nearest(self._change(natural)), self.parametric.start])

    def nearest(self, change: Float64) -> Float64:
        """Values of the labels, (n_linear,), that come nearest to a change of the natural parameters: its means."""
        return self._summed(change) / np.maximum(self._summed(np.ones(len(change))), 1.0)

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

    def pull(self, gradient: Float64, values: Float64) -> Float64:
        """Gradient with respect to the free parameters from one with respect to the natural ones."""
        few = self.parametric.pull(gradient[self.parts[1]], self.coordinates(values))
        return np.concatenate([self._summed(gradient), few])

    def push(self, direction: Float64, values: Float64) -> Float64:
        """Direction in the natural parameters of one in the free ones."""
        natural = self._spread(direction)
        tables = natural[self.parts[1]]  # a view
        tables += self.parametric.push(self.coordinates(direction), self.coordinates(values), len(tables))
        return natural

    def squares(self, weights: Float64, values: Float64) -> Float64:
        """``sum_i weights_i (d natural_i / d free)^2`` of every free parameter."""
        few = self.parametric.squares(weights[self.parts[1]], self.coordinates(values))
        return np.concatenate([self._summed(weights), few])

    def _summed(self, natural: Float64) -> Float64:
        """Sums over the natural parameters of every label, (n_linear,)."""
        free = self.labels >= 0
        return np.bincount(self.labels[free], natural[free], self.n_linear).astype(np.float64)

    def penalties(self, logits: float, tables: float, edges: float) -> Float64:
        """The penalty of every free parameter, (n_free,); the parameters of potentials have none."""
        found = np.zeros(self.n_free)
        for part, weight in zip(self.parts, (logits, tables, edges)):
            own = self.labels[part]
            found[own[own >= 0]] = weight  # no label is in two parts
        return found

    def first_radius(self, scale: Float64) -> float:
        """Limit on the first step, in the metric of the diagonal `scale` of the free parameters.

        In logits and tables the objective is convex, and none is needed. A parameter must not be thrown to the end of
        its range, where nothing depends on it any more: at first it moves by a half of its logarithm or log-odds.
        """
        bounded = self.coordinates(scale)[self.parametric.bounded]
        return 0.5 * math.sqrt(float(bounded.min())) if len(bounded) else math.inf


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
    tables : "free", "fixed", "by-size", a ParametricPotential, or a list with "free", "fixed", one or a label per group
        "by-size" ties the tables of groups of equal size, as do equal labels.
    edges : "free", "tied", "fixed" or (E,) int array
        As for logits, for the interactions of the edges.
    """
    if model.batch_shape:
        raise ParameterError(
            f"`model` must be a single model, not a batch; batch shape {model.batch_shape} arrived."
        )
    cells, sizes = np.full(features.n_cells, -1, np.int64), np.diff(features.offset)
    start_of: dict[Any, int] = {}
    places: list[Place] = []
    n = 0
    for g, name in enumerate(_table_labels(tables, sizes)):
        if name is None:
            continue
        if isinstance(name, ParametricPotential):
            places.append(Place(int(features.offset[g]), int(features.offset[g + 1]), name))
            continue
        key = (name, int(sizes[g]))
        if key not in start_of:
            start_of[key] = n
            n += int(sizes[g])
        cells[features.offset[g] : features.offset[g + 1]] = start_of[key] + np.arange(sizes[g])
    own, pairs = _labels("logits", logits, model.n_variables), pairs_of(model)
    return _assembled(
        natural_parameters(model), own, cells, _labels("edges", edges, len(pairs)), pairs, places
    )


def shared_parameters(
    n_variables: int,
    intercept: str,
    tables: Float64,
    moves: Bools,
    places: list[Place],
    edges: Any,
    forest: Any,
) -> FreeParameters:
    """What all rows of a conditional model share: intercepts, tables of classes (n_classes, T), tables of edges.

    `intercept` is "own", "shared" or "none"; `moves` are the entries of tables that are free.
    """
    pairs, of_edges = np.zeros((0, 2), np.int64), np.zeros(0)
    if forest is not None:
        pairs, of_edges = forest.pairs, forest.log_tables.reshape(-1)
    base = np.concatenate([np.zeros(n_variables), tables.reshape(-1), of_edges])
    logits = _labels("intercept", {"own": "free", "shared": "tied", "none": "fixed"}[intercept], n_variables)
    cells = np.where(moves.reshape(-1), np.arange(tables.size), -1)
    return _assembled(base, logits, cells, _labels("interactions", edges, len(pairs)), pairs, places)


def _assembled(
    base: Float64, logits: Ints, cells: Ints, edges: Ints, pairs: Ints, places: list[Place]
) -> FreeParameters:
    """One numbering for the labels of logits, of entries of tables and of edges, each counted from 0."""
    d, labels, n = len(logits), np.full(len(base), -1, np.int64), 0
    tables = slice(d, d + len(cells))
    for part, own in ((slice(0, d), logits), (tables, cells), (slice(tables.stop + 3, None, 4), edges)):
        labels[part] = np.where(own >= 0, n + own, -1)  # of an edge the entry (1, 1)
        n += int(own.max(initial=-1)) + 1
    parametric = ParametricTables(places, base[tables])
    base[tables] = parametric.fill(base[tables], parametric.start)
    labels[~np.isfinite(base)] = -1  # structural zeros and forced variables stay
    used, compact = np.unique(labels[labels >= 0], return_inverse=True)
    labels[labels >= 0] = compact
    return FreeParameters(labels, base, d, len(used), pairs, parametric)


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
    if isinstance(tables, str) and tables == "by-size":
        return ["size"] * len(sizes)
    if isinstance(tables, ParametricPotential) or (isinstance(tables, str) and tables in ("free", "fixed")):
        tables = [tables] * len(sizes)
    listed = isinstance(tables, Sequence) and not isinstance(tables, str) and len(tables) == len(sizes)
    if not listed or any(isinstance(entry, Parameter) for entry in tables):
        raise ParameterError(
            "`tables` must be 'free', 'fixed', 'by-size', a potential from `parametric`, or a list with 'free', "
            f"'fixed', such a potential or a label for each of the {len(sizes)} groups; {tables!r} arrived."
        )
    for g, entry in enumerate(tables):
        if not isinstance(entry, (str, int, np.integer, ParametricPotential)):
            raise ParameterError(
                f"`tables` must have 'free', 'fixed' or a label (an integer) per group; "
                f"{checks.describe(entry)} arrived for group {g}."
            )
    named = [{"free": ("own", g), "fixed": None} for g in range(len(sizes))]
    return [
        entry if isinstance(entry, ParametricPotential) else known.get(entry, ("label", entry))
        for entry, known in zip(tables, named)
    ]
