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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from .. import checks
from ..arrays import Bools, Float64, Ints
from ..errors import ParameterError
from ..memo import cached
from ..models.count import CountModel
from ..models.parameters import pack
from ..potentials.formulas import Domain
from .parametric import Parameter, ParametricPotential
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
        return self.n_linear + len(self.parametric.names)

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
        moved = self.base + self._linear @ values[: self.n_linear]
        moved = self.parametric.fill(moved, self.coordinates(values))
        logits, tables, edges = self.parts
        return moved[logits], moved[tables], moved[edges]

    @cached
    def _linear(self) -> Any:
        """A one for every natural parameter that a label moves, (D + T + 4 E, n_linear)."""
        own = np.flatnonzero(self.labels >= 0)
        shape = (len(self.labels), self.n_linear)
        return csr_array((np.ones(len(own)), (own, self.labels[own])), shape=shape)

    def jacobian(self, values: Float64) -> Any:
        """Derivatives of the natural parameters by the free ones, (D + T + 4 E, n_free), sparse."""
        if not self.parametric.names:
            return self._linear
        return hstack([self._linear, self.parametric.jacobian(self.coordinates(values))], format="csr")

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
        return np.concatenate([self.nearest(natural), self.parametric.start])

    def nearest(self, natural: Float64) -> Float64:
        """Values of the labels, (n_linear,), that come nearest to natural parameters: the means of their changes.

        Changes of the tables of edges are moved to logits and entries (1, 1).
        """
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
        return np.asarray(self._linear.T @ change / np.maximum(self._linear.sum(axis=0), 1.0))

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
    return np.concatenate([np.asarray(model.logits, np.float64), pack(model.tables), edges])


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
    own, pairs = _labels("logits", logits, model.n_variables), pairs_of(model)
    of_edges, base = _labels("edges", edges, len(pairs)), natural_parameters(model)
    return _assembled(base, own, *_table_labels(tables, features.offset, 1), of_edges, pairs)


def shared_parameters(
    intercept: str, tables: Any, edges: Any, features: CountFeatures, base: Float64, forest: Any
) -> FreeParameters:
    """What all rows of a conditional model share: intercepts, tables of classes (n_classes, T), tables of edges.

    `intercept` is "own", "shared" or "none"; `tables` is as above, or a list with such a choice per class.
    """
    d, pairs = features.tree.n_variables, features.pairs
    of_edges = np.zeros(0) if forest is None else forest.log_tables.reshape(-1)
    natural = np.concatenate([np.zeros(d), base.reshape(-1), of_edges])
    logits = _labels("intercept", {"own": "free", "shared": "tied", "none": "fixed"}[intercept], d)
    moving = _table_labels(tables, features.offset, len(base))
    return _assembled(natural, logits, *moving, _labels("interactions", edges, len(pairs)), pairs)


def _assembled(
    base: Float64, logits: Ints, cells: Ints, places: list[Place], edges: Ints, pairs: Ints
) -> FreeParameters:
    """One numbering for the labels of logits, of entries of tables and of edges, each counted from 0."""
    d, labels, n = len(logits), np.full(len(base), -1, np.int64), 0
    tables = slice(d, d + len(cells))
    for part, own in ((slice(0, d), logits), (tables, cells), (slice(tables.stop + 3, None, 4), edges)):
        labels[part] = np.where(own >= 0, n + own, -1)  # of an edge the entry (1, 1)
        n += int(own.max(initial=-1)) + 1
    parametric = ParametricTables([(slice(d + at.start, d + at.stop), own) for at, own in places], base)
    base = parametric.fill(base, parametric.start)
    labels[~np.isfinite(base)] = -1  # structural zeros and forced variables stay
    used, compact = np.unique(labels[labels >= 0], return_inverse=True)
    labels[labels >= 0] = compact
    return FreeParameters(labels, base, d, len(used), pairs, parametric)


def _labels(name: str, given: Any, n: int) -> Ints:
    known = {"free": np.arange(n), "tied": np.zeros(n, np.int64), "fixed": np.full(n, -1)}
    if isinstance(given, str):
        return known[checks.one_of(name, given, tuple(known))]
    entries = checks.Entries("integer labels of at least -1", -1, 2**62, "iu", np.int64)
    return checks.array(name, given, (n,), entries, hint=" Or say 'free', 'tied' or 'fixed'.")


def _table_labels(tables: Any, offset: Ints, n_classes: int) -> tuple[Ints, list[Place]]:
    """Labels of the entries of packed tables, class after class, (n_classes T,), and the tables with parameters."""
    sizes, cells, places = np.diff(offset), np.full(n_classes * int(offset[-1]), -1), []
    first: dict[Any, int] = {}  # of tables that move together, the label of entry 0
    for k, of_class in enumerate(_choices(tables, len(sizes), n_classes)):
        for g, choice in enumerate(of_class):
            start = k * int(offset[-1]) + int(offset[g])
            stop = start + int(sizes[g])
            if isinstance(choice, ParametricPotential):
                places.append((slice(start, stop), choice))
            elif choice != "fixed":
                key = ((k, g) if choice == "free" else choice, stop - start)
                cells[start:stop] = first.setdefault(key, start) + np.arange(stop - start)
    return cells, places


def _choices(tables: Any, n_groups: int, n_classes: int) -> list[list[Any]]:
    """What is said of the table of every group, class by class."""
    if isinstance(tables, (str, ParametricPotential)):
        if tables not in ("free", "fixed", "by-size") and isinstance(tables, str):
            tables = None  # refused below
        tables = [tables] * n_groups
    nested = isinstance(tables, Sequence) and len(tables) > 0 and all(map(_listed, tables))
    rows = [list(row) for row in tables] if nested else [tables] * n_classes
    for row in rows:
        known = _listed(row) and all(isinstance(t, (str, int, np.integer, ParametricPotential)) for t in row)
        if not known or len(row) != n_groups or len(rows) != n_classes:
            raise ParameterError(
                "`tables` must be 'free', 'fixed', 'by-size', a potential from `parametric`, or a list with 'free', "
                f"'fixed', such a potential or a label for each of the {n_groups} groups, or {n_classes} lists of "
                f"these; {tables!r} arrived."
            )
    return rows


def _listed(entry: Any) -> bool:
    return isinstance(entry, Sequence) and not isinstance(entry, str)


_LARGEST = 1e12  # logarithms of this size count as infinite


Place = tuple[slice, ParametricPotential]  # where its table is


class ParametricTables:
    """Tables among the natural parameters as functions of the coordinates of parameters.

    Parameters
    ----------
    places : list of (slice, ParametricPotential)
        Which tables have parameters. Parameters of the same name are one.
    base : (D + T + 4 E,) array
        Natural parameters, of which entries of -inf stay.
    """

    def __init__(self, places: list[Place], base: Float64) -> None:
        self._places = places
        self._closed = base == -math.inf
        self._domains = _distinct(places)
        self.names = [parameter.name for parameter in self._domains]
        self._pattern = self._closed.copy()
        for _, at, table, _ in self._tables(self.start):
            self._pattern[at] |= np.isneginf(table)

    @property
    def start(self) -> Float64:
        """Coordinates at which the parameters start, (P,)."""
        return np.array([d.to_coordinate(p.start) for p, d in self._domains.items()], np.float64)

    @property
    def bounded(self) -> Bools:
        """Whether a parameter's range ends somewhere, (P,): its coordinate has a natural unit."""
        return np.array([d.low > -math.inf or d.high < math.inf for d in self._domains.values()], bool)

    def values(self, coordinates: Float64) -> dict[str, float]:
        """Values of the parameters by name."""
        pairs = zip(self._domains.items(), coordinates.tolist())
        return {parameter.name: domain.to_value(x) for (parameter, domain), x in pairs}

    def coordinates(self, values: Mapping[str, float]) -> Float64:
        """Coordinates (P,) of values by name."""
        return np.array([d.to_coordinate(values[p.name]) for p, d in self._domains.items()], np.float64)

    def fill(self, natural: Float64, coordinates: Float64) -> Float64:
        """A copy of the natural parameters with the entries that follow from the coordinates."""
        out = natural.copy()
        for name, at, table, _ in self._tables(coordinates):
            out[at] = np.where(self._closed[at], -math.inf, table)
            if not np.array_equal(np.isneginf(out[at]), self._pattern[at]):
                raise ParameterError(
                    f"`{name}` must exclude the same counts whatever its parameters are; other entries became -inf. "
                    "Exclude counts by -inf in the tables of the model."
                )
        return out

    def _tables(self, coordinates: Float64) -> Iterator[tuple[str, slice, Float64, dict[str, Float64]]]:
        """Name, place and entries of every table, and their derivatives by the names of the parameters."""
        named = dict(zip(self.names, coordinates.tolist()))
        for at, potential in self._places:
            yield potential.name, at, *potential.table(at.stop - at.start - 1, named)

    def in_range(self, coordinates: Float64) -> bool:
        """Whether the tables are logarithms of numbers that a model can tell from 0."""
        # Far below its largest entry a table counts as -inf, and a NaN is below nothing.
        return all(
            (np.abs(table[~self._pattern[at]]) < _LARGEST).all()
            for _, at, table, _ in self._tables(coordinates)
        )

    def jacobian(self, coordinates: Float64) -> Any:
        """Derivatives of the natural parameters by the coordinates, (D + T + 4 E, P), sparse; 0 at entries of -inf."""
        entries: list[tuple[Ints, Ints, Float64]] = []
        for _, at, _, slopes in self._tables(coordinates):
            for name, slope in slopes.items():
                own = np.flatnonzero(~self._pattern[at])
                entries.append((at.start + own, np.full(len(own), self.names.index(name)), slope[own]))
        row, column, value = (np.concatenate(each) for each in zip(*entries))
        return csr_array((value, (row, column)), shape=(len(self._closed), len(self.names)))


def _distinct(places: list[Place]) -> dict[Parameter, Domain]:
    """The parameters in the order in which they appear, with their ranges."""
    found: dict[str, tuple[Parameter, Domain]] = {}
    for _, potential in places:
        for parameter, domain in potential.ranges():
            known, same = found.setdefault(parameter.name, (parameter, domain))
            if known.start != parameter.start:
                raise ParameterError(
                    f"Parameters of one name are one number; {parameter.name!r} arrived with the starts {known.start} "
                    f"and {parameter.start}. Give them one start, or two names."
                )
            if same is not domain:
                raise ParameterError(
                    f"Parameters of one name are one number; {parameter.name!r} stands for {same.name} and for "
                    f"{domain.name}. Give them two names."
                )
    return dict(found.values())
